"""Statements on the connections of psycopg 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.store import Parameters, Rows
from posthouse.stores.postgres.statements import autocommit, by_name, named
from posthouse.stores.postgres.steps import rows_of


class PsycopgStatements:
    """A `psycopg.Connection`."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    def refuse_autocommit(self) -> None:
        _refuse_autocommit(self.theirs)

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return self.run(by_name(sql), named(parameters))

    def run(self, sql: str, parameters: Parameters) -> Rows:
        from psycopg.rows import tuple_row

        with self.theirs.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(sql, parameters or None)
            return rows_of(cursor.fetchall() if cursor.description else (), cursor.statusmessage or "")


class AsyncPsycopgStatements:
    """A `psycopg.AsyncConnection`."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    async def refuse_autocommit(self) -> None:
        _refuse_autocommit(self.theirs)

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return await self.run(by_name(sql), named(parameters))

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        from psycopg.rows import tuple_row

        async with self.theirs.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(sql, parameters or None)
            return rows_of(await cursor.fetchall() if cursor.description else (), cursor.statusmessage or "")


def _refuse_autocommit(connection: Any) -> None:
    """Psycopg begins by itself unless it is told to commit by itself."""
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise autocommit("open `with connection.transaction():` first")
