"""SqliteLedger: a registry in one file. Several processes of one machine may share it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path

from posthouse.governance.registry.ledger import Row, Session, Value
from posthouse.governance.registry.ledgers.layout import check_layout
from posthouse.governance.registry.tables import FIRST_ROW, FORMAT, INDEXES, LAYOUT, TABLES
from posthouse.local.sqlite import begin, check_place, checkpoint, connect, mapped, patiently

MEMORY = ":memory:"


class SqliteLedger:
    """`path` is a file, or `:memory:` for one that ends with the process. `patience` is seconds to wait for a writer."""

    def __init__(self, path: Path | str, *, patience: float = 10.0) -> None:
        self._path = path
        self._patience = patience
        self._writing = asyncio.Lock()
        self._reading = self._writing if path == MEMORY else asyncio.Lock()
        """A connection has one transaction at a time; in memory there is but one connection."""
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    async def open(self) -> None:
        if self._path != MEMORY:
            check_place(Path(self._path))
        self._writer = await patiently(lambda: connect(self._path), patience=self._patience)
        self._reader = self._writer if self._path == MEMORY else connect(self._path)
        async with self.writing() as session:
            for statement in (*TABLES, *INDEXES):
                await session.fetch(statement.format(bytes="blob", place=""))
            await session.fetch(FIRST_ROW, FORMAT)
            check_layout(await session.fetch(LAYOUT))

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Session]:
        async with self._reading:
            connection = _opened(self._reader)
            session = SqliteSession(connection)
            with mapped("reading the registry"):
                await patiently(lambda: connection.execute("BEGIN"), patience=self._patience)
                try:
                    yield session
                finally:
                    connection.execute("ROLLBACK")

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        async with self._writing:
            connection = _opened(self._writer)
            await begin(connection, patience=self._patience)
            with mapped("writing to the registry"):
                try:
                    yield SqliteSession(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            if self._path != MEMORY:
                checkpoint(Path(self._path), connection)

    async def aclose(self) -> None:
        for connection in {self._writer, self._reader} - {None}:
            _opened(connection).close()


class SqliteSession:
    """A transaction on a connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *values: Value) -> list[Row]:
        named = {str(number): value for number, value in enumerate(values, 1)}
        return self._connection.execute(_text(sql), named).fetchall()


@lru_cache(maxsize=128)
def _text(sql: str) -> str:
    """The file is the schema: its tables need no prefix."""
    return sql.replace("posthouse_registry.", "")


def _opened(connection: sqlite3.Connection | None) -> sqlite3.Connection:
    if connection is None:
        raise RuntimeError("the ledger was not opened: `await ledger.open()` comes first")
    return connection
