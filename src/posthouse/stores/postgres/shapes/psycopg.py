"""A line on psycopg 3: for handlers that want its connection, or a synchronous session of SQLAlchemy on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import psycopg
from psycopg.pq import TransactionStatus

from posthouse.errors import StoreError, TransactionClosed
from posthouse.store import Parameters, Rows
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import PASSED_OVER, comes_from
from posthouse.stores.postgres.shapes.lent import LentConnection
from posthouse.stores.postgres.shapes.plug import Plug
from posthouse.stores.postgres.shapes.transaction import ENDED_INSIDE
from posthouse.stores.postgres.statements.psycopg import PsycopgStatements

# What a handler may have left behind in the session.
RESET = "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL"


class PsycopgLine:
    """One connection of the store's own, made when it is first used and again when it was lost."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: LentConnection | None = None
        self._plug: Plug | None = None
        self._used = False

    @property
    def connection(self) -> LentConnection:
        if self._connection is None:
            raise TransactionClosed("the transaction has not begun")
        return self._connection

    @property
    def lost(self) -> bool:
        return self._connection is None or self._connection.closed

    @property
    def process(self) -> int | None:
        if self._connection is None or self._connection.closed or self._database.settings.pooled:
            return None
        return self._connection.info.backend_pid

    def begin(self) -> None:
        if self._connection is not None and (self._connection.closed or self._plug is None or self._plug.stale):
            self.close()
        if self._connection is None:
            self._connection = self._connect()
            self._plug = Plug(self._connection.fileno())
        self._used = False

    def _connect(self) -> LentConnection:
        settings = self._database.settings
        options: dict[str, object] = {"connect_timeout": max(2, int(settings.patience))}
        if "target_session_attrs" not in self._database.url:
            options["target_session_attrs"] = "read-write"
        connection = LentConnection.connect(
            self._database.url,
            prepare_threshold=None if settings.pooled else 5,
            **options,  # type: ignore[arg-type]  # libpq's own, by name
        )
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        self._used = True
        return PsycopgStatements(self.connection).ours(sql, parameters)

    def run(self, sql: str, parameters: Parameters) -> Rows:
        self._used = True
        return PsycopgStatements(self.connection).run(sql, parameters)

    def view(self, wanted: type) -> AbstractContextManager[object]:
        self._used = True
        if comes_from(wanted, "sqlalchemy"):
            from posthouse.stores.postgres.shapes.sessions import session_on

            return session_on(self.connection, wanted)
        return self._bare()

    @contextlib.contextmanager
    def _bare(self) -> Iterator[LentConnection]:
        connection = self.connection
        before = connection.row_factory
        try:
            yield connection
        finally:
            connection.row_factory = before

    def commit(self) -> None:
        connection = self.connection
        status = connection.info.transaction_status
        if connection.rolled_back or (self._used and status == TransactionStatus.IDLE):
            connection.end(commit=False)
            raise TransactionClosed(ENDED_INSIDE)
        if status == TransactionStatus.INERROR:
            connection.end(commit=False)
            raise StoreError(PASSED_OVER)
        connection.end(commit=True)

    def roll_back(self) -> None:
        self.connection.end(commit=False)

    def clean(self) -> None:
        if not self._database.settings.pooled:
            connection = self.connection
            connection.execute(RESET, prepare=False)
            connection.end(commit=True)

    def cut(self) -> None:
        if self._plug is not None:
            self._plug.pull()

    def close(self) -> None:
        connection, plug = self._connection, self._plug
        self._connection = self._plug = None
        if plug is not None:
            plug.close()
        if connection is not None:
            connection.hang_up()
