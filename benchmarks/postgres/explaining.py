"""Explaining: every statement that reaches the server while something is asked, and the large tables that its plan reads whole."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

import asyncpg
import msgspec

from posthouse.local.postgres.connection import ServerConnection
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.leaps import PINNED

EACH = 3
"""So often a statement is explained, with what it was run with: another value may make another plan."""
READ = ("SELECT", "WITH", "(")
LARGE = 1_000
"""Rows from which on a table counts as large, of those that may be."""

# Tables of ours that are large now.
TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'posthouse'::regnamespace AND relkind = 'r' AND reltuples > $1"
)


class Heard:
    """Statements as the driver sent them, each with some of the values that it was sent with. `pinned`: in a transaction that had
    said `PINNED` before."""

    def __init__(self) -> None:
        self._statements: dict[tuple[str, bool], list[Sequence[object]]] = {}
        self._connections: dict[ServerConnection, Any] = {}
        self._pinned: set[ServerConnection] = set()

    def listen(self, connection: ServerConnection) -> None:
        """Hear of what is sent on it from now on."""
        if connection not in self._connections:
            self._connections[connection] = partial(self._hear, connection)
            connection.add_query_logger(self._connections[connection])

    def close(self) -> None:
        """Hear no more."""
        for connection, hear in self._connections.items():
            if not connection.is_closed():
                connection.remove_query_logger(hear)

    def _hear(self, connection: ServerConnection, sent: Any) -> None:
        words = sent.query.lstrip().upper()
        if sent.query == PINNED:
            self._pinned.add(connection)
        elif words.startswith(("BEGIN", "COMMIT", "ROLLBACK")):
            self._pinned.discard(connection)
        elif sent.exception is None and "posthouse." in sent.query and words.startswith(READ):
            seen = self._statements.setdefault((sent.query, connection in self._pinned), [])
            if len(seen) < EACH and sent.args not in seen:
                seen.append(sent.args)

    async def read_whole(
        self, url: str, large: Collection[str], besides: Collection[str] = ()
    ) -> tuple[int, Sequence[str]]:
        """How many plans were looked at, and what of the `large` tables any of them reads whole, with the statement. `besides`:
        statements that are not looked at."""
        connection: Any = await asyncpg.connect(url)
        found: dict[str, None] = {}
        try:
            there = {str(name) for (name,) in await connection.fetch(TABLES, LARGE)}
            asked = {name for name in there if name.startswith(tuple(large))}
            plans = 0
            for (sql, pinned), every in self._statements.items():
                for values in every if sql not in besides else ():
                    plan = await _plan(connection, sql, values, pinned=pinned)
                    plans += 1
                    found |= dict.fromkeys(f"{table} by {' '.join(sql.split())[:120]}" for table in whole(plan) & asked)
        finally:
            await connection.close()
        return plans, list(found)


async def _plan(connection: Any, sql: str, values: Sequence[object], *, pinned: bool) -> Any:
    async with connection.transaction(readonly=True):
        if pinned:
            await connection.fetch(PINNED, "60000")
        [(text,)] = await connection.fetch(f"EXPLAIN (FORMAT JSON) {sql}", *values)
    return msgspec.json.decode(text)


def whole(plan: Any) -> set[str]:
    """The tables that a plan reads from the first row to the last."""
    if isinstance(plan, list):
        return {name for one in plan for name in whole(one)}
    if not isinstance(plan, dict):
        return set()
    mine = {plan["Relation Name"]} if plan.get("Node Type") == "Seq Scan" else set()
    return mine | {name for one in plan.values() for name in whole(one)}


@contextlib.contextmanager
def hearing() -> Iterator[Heard]:
    """Everything that stores of this process send while the block runs."""
    heard, acquire = Heard(), Database.acquire

    async def listened(database: Database) -> ServerConnection:
        connection = (await acquire(database)).itself
        heard.listen(connection)
        return connection

    Database.acquire = listened  # type: ignore[assignment, method-assign]  # no seam of the store's own: users have no need of it
    try:
        yield heard
    finally:
        Database.acquire = acquire  # type: ignore[method-assign]
        heard.close()
