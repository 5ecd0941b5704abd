"""asyncpg, the driver that the PostgreSQL store itself uses: a handler gets the connection of the store's own transaction."""

from __future__ import annotations

from typing import Any

import asyncpg

from posthouse.store import Parameters, Rows
from posthouse.store.placeholders import DOLLAR, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.sessions import Kind, Session, autocommit


def join(theirs: Any) -> Session | None:
    """An `asyncpg.Connection`, also one of a pool."""
    return AsyncpgSession(theirs) if isinstance(theirs, asyncpg.Connection) else None


class AsyncpgSession(Session):
    """It tells of a statement with the loop's next turn."""

    needs_loop = True
    late = True

    async def attend(self, savepoints: Savepoints) -> Detach:
        def told(query: Any) -> None:
            if query.exception is None:
                savepoints.hear(query.query)
            else:
                savepoints.hear_failed(query.query, query.exception)

        self.theirs.add_query_logger(told)

        def end() -> None:
            if not self.theirs.is_closed():
                self.theirs.remove_query_logger(told)

        return end

    async def refuse_autocommit(self, kind: Kind) -> None:
        if not self.theirs.is_in_transaction():
            raise autocommit("open `async with connection.transaction():` first")

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        sql, parameters = bound(sql, parameters, DOLLAR)
        return Rows(map(tuple, await self.theirs.fetch(sql, *parameters)))
