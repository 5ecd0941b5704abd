"""Statements on an `asyncpg.Connection`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.local.postgres.connection import rows_of
from posthouse.store import Parameters, Rows
from posthouse.store.placeholders import DOLLAR, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.postgres.statements import autocommit


class AsyncpgStatements:
    """An `asyncpg.Connection`, also one of a pool."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    async def attend(self, savepoints: Savepoints) -> Detach:
        """The driver tells of a statement with the loop's next turn."""

        def told(query: Any) -> None:
            (savepoints.hear if query.exception is None else savepoints.hear_failed)(query.query)

        self.theirs.add_query_logger(told)

        def end() -> None:
            if not self.theirs.is_closed():
                self.theirs.remove_query_logger(told)

        return end

    async def refuse_autocommit(self) -> None:
        if not self.theirs.is_in_transaction():
            raise autocommit("open `async with connection.transaction():` first")

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return rows_of(await self.theirs.fetch(sql, *parameters), "")

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        sql, parameters = bound(sql, parameters, DOLLAR)
        return rows_of(await self.theirs.fetch(sql, *parameters), "")
