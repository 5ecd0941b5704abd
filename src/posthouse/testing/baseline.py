"""Baseline: a PostgreSQL database as it was at one moment, and the way back to it in milliseconds.

Nothing is truncated: one statement asks which tables and sequences are not as they were, and those alone are put back. Most tests
touch a handful of rows, and a DELETE of a few rows is a tenth of what a TRUNCATE costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from posthouse.errors import PosthouseError

COPIES = "posthouse_baseline"
"""The schema that holds the rows of tables that were not empty."""
PATIENCE = 2.0
"""Seconds for transactions that a test left open to end."""
ROUNDS = 3
"""Putting rows back may wake triggers that write others."""

# Every table of the users of a database, ours among them; what belongs to an extension does not. A partition is seen through
# its table.
TABLES = r"""
SELECT c.oid::bigint, format('%I.%I', n.nspname, c.relname), c.relkind = 'p',
    ARRAY(SELECT quote_ident(a.attname) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum),
    ARRAY(SELECT f.conrelid::bigint FROM pg_constraint f WHERE f.contype = 'f' AND f.confrelid = c.oid AND f.conparentid = 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
    AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'posthouse_baseline')
    AND ($1::text[] IS NULL OR n.nspname = ANY ($1))
    AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 2
"""

SEQUENCES = r"""
SELECT c.oid::bigint, format('%I.%I', n.nspname, c.relname), s.seqstart
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_sequence s ON s.seqrelid = c.oid
WHERE c.relpersistence <> 't' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'posthouse_baseline')
    AND ($1::text[] IS NULL OR n.nspname = ANY ($1))
    AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 2
"""

# A row that is not to be seen is an error, not a leak; and what is put back need not survive a crash.
SETTINGS = "SET row_security = off; SET synchronous_commit = off"

# Which tables and sequences there are, in one figure; who has written something and not ended yet; and what was prepared for a
# commit that may come in the next test.
LOOK = r"""
SELECT (SELECT coalesce(sum(hashint8extended(c.oid::bigint, 1)), 0) FROM pg_class c WHERE c.relkind IN ('r', 'p', 'S')
        AND c.relpersistence <> 't' AND c.oid >= 16384)::text,
    ARRAY(SELECT a.pid FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_xid IS NOT NULL),
    ARRAY(SELECT quote_literal(t.gid) FROM pg_prepared_xacts t WHERE t.database = current_database())
"""

# Whatever is written from now on is younger than this.
MARK = "SELECT set_config('posthouse.baseline', pg_current_xact_id()::xid::text, false)"

# What they were doing.
OPEN = """
SELECT a.pid, a.application_name, a.state, a.query, pg_terminate_backend(a.pid) FROM pg_stat_activity a WHERE a.pid = ANY ($1)
"""


class BaselineBroken(PosthouseError):
    """A test left something behind that cannot be put back quietly; the message says what."""


class Table(msgspec.Struct, frozen=True):
    """A table by its number; `rows` of it were there."""

    oid: int
    name: str
    partitioned: bool
    columns: Sequence[str]
    referring: Sequence[int]
    """The tables whose foreign keys lead here."""
    rows: int = 0

    @property
    def itself(self) -> str:
        """Without those that inherit from it, which are tables of their own."""
        return self.name if self.partitioned else f"ONLY {self.name}"

    @property
    def copy(self) -> str:
        return f"{COPIES}.copy_{self.oid}"

    def is_changed(self) -> str:
        """An expression. A row that was added or changed is younger than the baseline; one that is gone is missing."""
        if not self.rows:
            return f"EXISTS (SELECT FROM {self.itself})"
        younger = "age(xmin) < age(current_setting('posthouse.baseline')::xid)"
        return f"(EXISTS (SELECT FROM {self.itself} WHERE {younger}) OR (SELECT count(*) FROM {self.itself}) <> {self.rows})"


class Numbers(msgspec.Struct, frozen=True):
    """A sequence, and where it stood."""

    oid: int
    name: str
    value: int
    called: bool

    def is_changed(self) -> str:
        return (
            f"EXISTS (SELECT FROM {self.name} WHERE (last_value, is_called) <> ({self.value}::bigint, {self.called}))"
        )


class Baseline:
    """The rows of all tables, and the numbers of all sequences, of the `schemas` that are named, or of all. It works over one
    connection at a time, which nobody else uses."""

    def __init__(self, connection: Any, schemas: Sequence[str] | None = None) -> None:
        self._connection = connection
        self._schemas = None if schemas is None else list(schemas)
        self._known: dict[int, Table] = {}
        self._numbers: dict[int, Numbers] = {}
        self._tables: list[Table] = []
        self._sequences: list[Numbers] = []
        self._youngest = ""
        self._seen = ""
        self._probe: Any = None
        self._mute = False
        """Whether triggers and foreign keys may be left out."""

    async def take(self) -> None:
        """This is how it shall be again."""
        run = self._connection.execute
        await run(SETTINGS)
        self._mute = await self._connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        async with self._connection.transaction():
            await run(f"DROP SCHEMA IF EXISTS {COPIES} CASCADE; CREATE SCHEMA {COPIES}")
            tables = [await self._copied(table) for table in await self._list_tables()]
            self._known = {table.oid: table for table in tables}
            sequences = await self._connection.fetch(SEQUENCES, self._schemas)
            self._numbers = {oid: await self._standing(oid, name) for oid, name, _ in sequences}
        self._youngest = await self._connection.fetchval(MARK)
        await self._learn(str((await self._connection.fetchrow(LOOK))[0]))

    async def over(self, connection: Any) -> None:
        """From now on over this connection."""
        self._connection = connection
        await connection.execute(f"{SETTINGS}; SELECT set_config('posthouse.baseline', '{self._youngest}', false)")
        self._seen = ""

    async def restore(self) -> Sequence[str]:
        """Put back what is not as it was; the names of what was not. Raises BaselineBroken when a transaction was left open that
        had written something: it is ended, and the rest is put back all the same."""
        look = await self._nobody_writes()
        left_open = await self._end(look[1]) if look[1] else ""
        if look[0] != self._seen:
            await self._learn(look[0])
        changed: list[str] = []
        for _ in range(ROUNDS):
            found: Sequence[int] = await self._probe.fetchval()
            if not found:
                break
            changed += await self._put_back(found)
        else:
            raise BaselineBroken(
                f"these do not stay as they were, however often they are put back: {', '.join(changed)}"
            )
        if left_open:
            raise BaselineBroken(left_open)
        return changed

    async def _nobody_writes(self) -> tuple[str, Sequence[int]]:
        """The last look, when nobody has a transaction open in which something was written, or patience is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while True:
            seen, writers, prepared = await self._connection.fetchrow(LOOK)
            for name in prepared:
                await self._connection.execute(f"ROLLBACK PREPARED {name}")
            if not writers or loop.time() > deadline:
                return str(seen), list(writers)
            await asyncio.sleep(0.005)

    async def _end(self, pids: Sequence[int]) -> str:
        found = await self._connection.fetch(OPEN, list(pids))
        said = "; ".join(
            f"{name or 'a connection'} ({state}): {' '.join(query.split())[:200]}" for _, name, state, query, _ in found
        )
        return (
            f"the test left a transaction open that had written something; it was ended and rolled back: {said}. Commit it, roll it "
            "back or close its connection before the test ends"
        )

    async def _learn(self, seen: str) -> None:
        """The tables and sequences that there are now. One that was not there before is to be empty again."""
        tables = {table.oid: table for table in await self._list_tables()}
        if gone := [table.name for oid, table in self._known.items() if oid not in tables]:
            raise BaselineBroken(
                f"these tables were dropped by a test, and nobody can put them back: {', '.join(gone)}"
            )
        self._tables = [
            msgspec.structs.replace(table, rows=self._known[oid].rows if oid in self._known else 0)
            for oid, table in tables.items()
        ]
        self._sequences = [
            self._numbers.get(oid) or Numbers(oid, name, start, False)
            for oid, name, start in await self._connection.fetch(SEQUENCES, self._schemas)
        ]
        things: list[Table | Numbers] = [*self._tables, *self._sequences]
        asked = " UNION ALL ".join(f"SELECT {place} WHERE {thing.is_changed()}" for place, thing in enumerate(things))
        self._probe = await self._connection.prepare(f"SELECT ARRAY({asked or 'SELECT 0 WHERE false'})")
        self._seen = seen

    async def _put_back(self, places: Sequence[int]) -> list[str]:
        tables = self._reached([self._tables[place] for place in places if place < len(self._tables)])
        sequences = [self._sequences[place - len(self._tables)] for place in places if place >= len(self._tables)]
        steps = [f"SET LOCAL lock_timeout = '{int(PATIENCE * 1000)}ms'"]
        if self._mute:
            steps.append("SET LOCAL session_replication_role = replica")
        # One statement for all of them: foreign keys are looked at when it ends.
        if tables:
            steps.append(_together([f"DELETE FROM {table.itself}" for table in tables]))
        if filled := [table for table in tables if table.rows]:
            steps.append(_together([_refill(table) for table in filled]))
        steps += [f"SELECT setval('{one.name}', {one.value}, {one.called})" for one in sequences]
        await self._connection.execute("; ".join(["BEGIN", *steps, "COMMIT"]))
        self._youngest = await self._connection.fetchval(MARK)
        return [*(table.name for table in tables), *(one.name for one in sequences)]

    def _reached(self, tables: Sequence[Table]) -> list[Table]:
        """With those whose rows refer to theirs."""
        by_oid = {table.oid: table for table in self._tables}
        found: dict[int, Table] = {}
        waiting = list(tables)
        while waiting:
            table = waiting.pop()
            if table.oid not in found:
                found[table.oid] = table
                waiting += [by_oid[oid] for oid in table.referring if oid in by_oid]
        return list(found.values())

    async def _list_tables(self) -> list[Table]:
        return [Table(*row) for row in await self._connection.fetch(TABLES, self._schemas)]

    async def _copied(self, table: Table) -> Table:
        rows = await self._connection.fetchval(f"SELECT count(*) FROM {table.itself}")
        if rows:
            columns = ", ".join(table.columns)
            await self._connection.execute(
                f"CREATE UNLOGGED TABLE {table.copy} AS SELECT {columns} FROM {table.itself}"
            )
        return msgspec.structs.replace(table, rows=rows)

    async def _standing(self, oid: int, name: str) -> Numbers:
        value, called = await self._connection.fetchrow(f"SELECT last_value, is_called FROM {name}")
        return Numbers(oid, name, value, called)


def _together(statements: Sequence[str]) -> str:
    return f"WITH {', '.join(f'step_{n} AS ({one})' for n, one in enumerate(statements))} SELECT 1"


def _refill(table: Table) -> str:
    columns = ", ".join(table.columns)
    return f"INSERT INTO {table.name} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {table.copy}"
