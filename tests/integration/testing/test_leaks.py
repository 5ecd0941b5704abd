"""What one test does, the next one never sees: all rows of all tables, and all sequences, are as they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from posthouse import Event, Payload, Policy, Saga, Service, Turn, Tx, deadline, starts
from posthouse.testing import Harness
from posthouse.testing.baseline import BaselineBroken
from posthouse.testing.scratch import ScratchDatabase

TABLES = """
SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = $1 AND n.nspname IN ('public', 'posthouse') ORDER BY 1
"""


class Counted(Payload):
    key: str


class Opened(Payload):
    key: str


def one_more(state: int, fact: Opened) -> int:
    return state + 1


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def dump(url: str) -> dict[str, list[str]]:
    """Everything in the database."""
    async with connected(url) as connection:
        tables = [name for (name,) in await connection.fetch(TABLES, b"r")]
        found = {name: sorted(map(repr, await connection.fetch(f"SELECT * FROM {name}"))) for name in tables}
        sequences = [name for (name,) in await connection.fetch(TABLES, b"S")]
        return found | {
            name: [repr(await connection.fetchrow(f"SELECT last_value, is_called FROM {name}"))] for name in sequences
        }


async def a_busy_test(url: str, store: str) -> list[int | None]:
    """Facts, numbers, timers, held events, a saga, a stream, rows of its own; the numbers that were given."""
    service = Service("shop")
    counted = service.event("thing.counted.v1", key="key")(Counted)
    opened = service.event("account.opened.v1", key="key")(Opened)
    accounts = service.aggregate("account", initial=int, evolve=one_more, events=[opened])

    @service.on(counted, policy=Policy(first_delay=60.0))
    async def count(event: Event[Counted], tx: Tx) -> None:
        await tx.execute("INSERT INTO invoice (order_id) VALUES (:key)", {"key": event.data.key})
        if event.data.key == "bad":
            raise RuntimeError("no")

    @service.saga("wait", correlate="id")
    class Wait(Saga):
        id: str

        @starts
        def begin(self, turn: Turn) -> None:
            turn.set(self.over)

        @deadline(600.0)
        def over(self, turn: Turn) -> None:
            turn.complete()

    async with Harness(service, store=store) as harness:
        async with service.transaction("t1") as tx:
            tx.publish(counted(key="bad"))
            tx.publish(counted(key="later"), after=3600.0, timer="later")
            tx.publish(counted(key="once"), idempotency_key="i1")
            await service.start_saga(tx, Wait(id="w1"))
            await accounts.append(tx, "a1", [opened(key="a1")], expected=0)
            await tx.execute("UPDATE kind SET name = 'tiny' WHERE name = 'large'")
            await tx.execute("INSERT INTO line VALUES (NULL, NULL, 1)")
        await harness.settled()
        assert len(await harness.held(service)) == 1
        return [event.sequence for event in await harness.published(counted)]


async def test_nothing_of_a_test_is_left_for_the_next(
    posthouse_database: ScratchDatabase, posthouse_store: str
) -> None:
    before = await dump(posthouse_database.url)
    numbers = await a_busy_test(posthouse_database.url, posthouse_store)
    dirty = await dump(posthouse_database.url)
    touched = {name for name in before if before[name] != dirty[name]}
    assert {
        "posthouse.held",
        "posthouse.timer",
        "posthouse.saga",
        "posthouse.key",
        "public.invoice",
        "public.kind",
    } <= touched
    assert posthouse_database.reset()
    assert await dump(posthouse_database.url) == before
    assert await a_busy_test(posthouse_database.url, posthouse_store) == numbers, "numbers begin anew"


async def test_tables_that_a_test_makes_are_empty_in_the_next(
    posthouse_database: ScratchDatabase, posthouse_store: str
) -> None:
    async with connected(posthouse_database.url) as connection:
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS made_late (id serial); INSERT INTO made_late DEFAULT VALUES"
        )
        assert "public.made_late" in posthouse_database.reset()
        assert await connection.fetchval("INSERT INTO made_late DEFAULT VALUES RETURNING id") == 1


async def test_rows_that_were_deleted_or_changed_come_back(
    posthouse_database: ScratchDatabase, posthouse_store: str
) -> None:
    async with connected(posthouse_database.url) as connection:
        await connection.execute("DELETE FROM kind WHERE name = 'small'")
        assert posthouse_database.reset()
        assert [tuple(row) for row in await connection.fetch("SELECT * FROM kind ORDER BY 2")] == [
            ("small", 1, 2),
            ("large", 2, 2),
        ]
        assert posthouse_database.reset() == []


async def test_a_transaction_that_a_test_left_open_is_named_and_ended(
    posthouse_database: ScratchDatabase, posthouse_store: str
) -> None:
    async with connected(posthouse_database.url) as connection:
        await connection.execute("BEGIN; INSERT INTO invoice (order_id) VALUES ('forgotten')")
        with pytest.raises(BaselineBroken, match=r"INSERT INTO invoice .* Commit it, roll it back"):
            await asyncio.to_thread(posthouse_database.reset)
    async with connected(posthouse_database.url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM invoice") == 0
    assert posthouse_database.reset() in ([], ["public.invoice_id_seq"])


async def test_a_transaction_that_a_test_prepared_is_rolled_back(
    posthouse_database: ScratchDatabase, posthouse_store: str
) -> None:
    """The next test could commit it, or wait for its locks."""
    async with connected(posthouse_database.url) as connection:
        await connection.execute("BEGIN; INSERT INTO invoice (order_id) VALUES ('prepared')")
        await connection.execute("PREPARE TRANSACTION 'left ''behind'")
        posthouse_database.reset()
        prepared = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
        assert await connection.fetchval(prepared) == 0


async def test_an_open_transaction_that_has_only_read_is_nobodys_business(
    posthouse_database: ScratchDatabase, posthouse_store: str
) -> None:
    async with connected(posthouse_database.url) as connection:
        await connection.execute("BEGIN; SELECT * FROM invoice")
        assert posthouse_database.reset() == []
