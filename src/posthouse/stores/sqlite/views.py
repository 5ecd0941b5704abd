"""Views: an open transaction in the shape that a handler asks for."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from posthouse.errors import ConfigurationError
from posthouse.stores.sqlite.borrowed import SessionConnection
from posthouse.stores.sqlite.database import SqliteTransaction

SHAPES = "sqlite3.Connection, sqlalchemy.orm.Session, sqlalchemy.Connection"

_handing_over: ContextVar[SessionConnection] = ContextVar("posthouse_handing_over")


def can_view(wanted: type) -> bool:
    """Whether a transaction can be had as `wanted`."""
    if wanted is sqlite3.Connection:
        return True
    if wanted.__module__.partition(".")[0] != "sqlalchemy":
        return False
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    return issubclass(wanted, Session | Connection)


def refused(wanted: type) -> str:
    """The words when it cannot."""
    return f"a handler cannot have the transaction as {wanted.__module__}.{wanted.__qualname__}: possible are {SHAPES}"


@contextlib.contextmanager
def viewed(tx: SqliteTransaction, wanted: type) -> Iterator[object]:
    """`tx` as `wanted`, until the block ends."""
    if not can_view(wanted):
        raise ConfigurationError(refused(wanted))
    if wanted is sqlite3.Connection:
        yield tx.connection
        return
    from sqlalchemy.orm import Session

    with _sqlalchemy(tx, wanted, Session) as view:
        yield view


@contextlib.contextmanager
def _sqlalchemy(tx: SqliteTransaction, wanted: type, session_type: Any) -> Iterator[object]:
    """SQLAlchemy on our connection. It may begin, commit and close as it likes around the handler; inside, a commit of
    the session only flushes, and a rollback rolls all back."""
    borrowed = tx.lend(SessionConnection)
    with _connected(borrowed) as connection, connection.begin():
        if not issubclass(wanted, session_type):
            with borrowed.working():
                yield connection
            return
        with wanted(bind=connection, join_transaction_mode="rollback_only") as session:
            with borrowed.working():
                yield session
                session.flush()
            session.commit()


def _connected(borrowed: SessionConnection) -> Any:
    token = _handing_over.set(borrowed)
    try:
        return _engine().connect()
    finally:
        _handing_over.reset(token)


@functools.cache
def _engine() -> Any:
    """An engine that owns no connection: it takes the one that is handed over."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    return create_engine("sqlite://", creator=_handing_over.get, poolclass=NullPool, pool_reset_on_return=None)
