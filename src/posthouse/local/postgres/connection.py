"""Connection: one session of a PostgreSQL server, as the store and the broker use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import asyncpg

from posthouse.store import Rows

Isolation = Literal["read_committed", "repeatable_read"]
BEGIN: Mapping[Isolation, str] = {
    "read_committed": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "repeatable_read": "BEGIN ISOLATION LEVEL REPEATABLE READ",
}

RESET_ROLE = "RESET SESSION AUTHORIZATION; RESET ROLE"
"""RESET ALL leaves both as they are. The first one alone also takes away a role that the login has from the start."""


class Watcher(Protocol):
    """Hears of what a user runs on a connection that was lent to him."""

    def before(self, sql: object) -> None:
        """It is about to run; an error refuses it."""
        ...

    def after(self, sql: object) -> None:
        """It was run."""
        ...

    def failed(self, sql: object) -> None:
        """It was run, or not: its answer was an error, or never comes this way."""
        ...


class ServerConnection(asyncpg.Connection):
    """A connection that says what goes to the server together with BEGIN and COMMIT, and that is reset between two users only
    when it needs to be."""

    unclean = False
    """Somebody may have changed the session: settings, locks, listeners."""
    status = ""
    """The server's word on the last command: COMMIT of a failed transaction says ROLLBACK."""
    prepared: frozenset[str] = frozenset()
    """The names of the statements that we have prepared in this session."""
    generation = 0
    """Of the pool, when it came from there: one from before the pool expired is not used again."""
    watcher: Watcher | None = None
    """Who hears of statements, once a user has the connection."""
    lent: asyncpg.Connection
    """What the pool gave out for it: good for whoever gets it only until it is given back. Ours do without that detour."""

    @property
    def itself(self) -> ServerConnection:
        """The connection behind what the pool gives out."""
        return self

    async def begin(self, *statements: str, isolation: Isolation = "read_committed") -> str:
        """BEGIN, and behind it statements without parameters, in one round trip; the server's word on the last one. The
        driver is told, so that its own blocks inside become savepoints."""
        self._top_xact = self.transaction(isolation=isolation)
        return await self.execute("; ".join((BEGIN[isolation], *statements)))

    async def commit(self, *statements: str) -> str:
        """Statements without parameters, and behind them COMMIT, in one round trip; the server's word on the last one. When
        one of them fails, nothing is committed, and the transaction is to be rolled back."""
        self._top_xact = None  # type: ignore[assignment]  # as the driver itself has it outside of a transaction
        return await self.execute("; ".join((*statements, "COMMIT")))

    async def roll_back(self) -> None:
        self._top_xact = None  # type: ignore[assignment]  # as the driver itself has it outside of a transaction
        await self.execute("ROLLBACK")

    async def run(self, sql: str, parameters: Sequence[object]) -> Rows:
        """Rows and the number of rows changed, in one round trip, which none of asyncpg's own methods gives."""
        run: Any = super()._execute  # type: ignore[misc]
        found, status, _ = await run(sql, parameters, 0, None, return_status=True)
        return rows_of(found, status.decode())

    def mark_unclean(self) -> None:
        """Reset the session before the next one has it."""
        self.unclean = True

    def get_reset_query(self) -> str:
        return f"{RESET_ROLE}; {super().get_reset_query()}" if self.unclean else ""

    async def reset(self, *, timeout: float | None = None) -> None:
        await super().reset(timeout=timeout)
        self.unclean = False

    async def execute(self, query: str, *arguments: object, timeout: float | None = None) -> str:
        run = super().execute
        if self.watcher is None:
            self.status = await run(query, *arguments, timeout=timeout)
        else:
            self.status = await _watched(self.watcher, run, query, *arguments, timeout=timeout)
        return self.status

    async def _execute(self, query: str, *arguments: Any, **options: Any) -> Any:
        """All of the driver's ways to fetch, as the user calls them."""
        run: Any = super()._execute  # type: ignore[misc]
        if self.watcher is None:
            return await run(query, *arguments, **options)
        return await _watched(self.watcher, run, query, *arguments, **options)

    async def _prepare(self, query: str, *arguments: Any, **options: Any) -> Any:
        self._unseen(query)
        return await super()._prepare(query, *arguments, **options)  # type: ignore[misc]

    async def _executemany(self, query: str, *arguments: Any, **options: Any) -> Any:
        self._unseen(query)
        return await super()._executemany(query, *arguments, **options)  # type: ignore[misc]

    def _unseen(self, query: str) -> None:
        """What the user prepares is run without us: nobody would hear of a savepoint."""
        if self.watcher is not None:
            self.watcher.before(query)
            self.watcher.failed(query)


async def _watched(watcher: Watcher, run: Any, query: str, *arguments: Any, **options: Any) -> Any:
    watcher.before(query)
    try:
        found = await run(query, *arguments, **options)
    except BaseException:
        watcher.failed(query)
        raise
    watcher.after(query)
    return found


def rows_of(found: Sequence[Sequence[object]], status: str) -> Rows:
    """What a statement returned, and how many rows it says it changed."""
    rows = Rows(map(tuple, found))
    verb, _, rest = status.partition(" ")
    if verb in ("INSERT", "UPDATE", "DELETE", "MERGE"):
        rows.rowcount = int(rest.rpartition(" ")[2])
    return rows
