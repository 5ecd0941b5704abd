"""SQLAlchemy's synchronous session and connection, on a psycopg connection that is lent to them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from posthouse.stores.postgres.shapes.lent import Hands, LentConnection

_handing_over: ContextVar[LentConnection] = ContextVar("posthouse_handing_over")


@contextlib.contextmanager
def session_on(lent: LentConnection, wanted: type) -> Iterator[Session | Connection]:
    """A `wanted` on the connection. Inside, a commit of the session only flushes, and a rollback rolls all back."""
    with lent.in_hands_of(Hands.HOUSEKEEPING), _connected(lent) as connection, connection.begin():
        if not issubclass(wanted, Session):
            with lent.in_hands_of(Hands.SESSION):
                yield connection
            return
        with wanted(bind=connection, join_transaction_mode="rollback_only") as session:
            with lent.in_hands_of(Hands.SESSION):
                yield session
                session.flush()
            session.commit()


def _connected(lent: LentConnection) -> Connection:
    token = _handing_over.set(lent)
    try:
        return _engine().connect()
    finally:
        _handing_over.reset(token)


@functools.cache
def _engine() -> Engine:
    """An engine that owns no connection: it takes the one that is handed over."""
    options: dict[str, Any] = {"use_native_hstore": False}  # it would look for the type each time
    return create_engine(
        "postgresql+psycopg://", creator=_handing_over.get, poolclass=NullPool, pool_reset_on_return=None, **options
    )
