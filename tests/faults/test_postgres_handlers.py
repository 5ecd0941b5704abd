"""Faults 33, 34, 42 and 43 on PostgreSQL: handlers that hang or do not listen, and timers that two hands reach for."""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg
import psycopg
import pytest

from posthouse import Event, Policy, Tx
from posthouse.app import app_of
from posthouse.errors import StoreError
from posthouse.store import HeldFilter
from posthouse.stores.postgres import PostgresStore
from tests.faults.plant import BOOK, Made, at_work, book, booking, effects, plant, say, settled, until

SHORT = Policy(deadline=0.3, first_delay=0.1, last_delay=0.2)


async def test_a_handler_that_hangs_is_given_up_on_time_and_others_flow(postgres_url: str) -> None:
    service, runs = plant(), list[str]()

    @service.on(Made, policy=SHORT)
    async def hang(event: Event[Made], tx: Tx) -> None:
        runs.append(event.data.key)
        await book(event, tx)
        if event.data.key == "hangs" and runs.count("hangs") == 1:
            await asyncio.Event().wait()

    async with at_work(service, postgres_url):
        await say(service, "hangs", 1, 2)
        await say(service, "fine", 1, 2)
        await settled(service)
        assert (await effects(service, "fine"), await effects(service, "hangs")) == ([1, 2], [1, 2])
        assert runs.count("hangs") == 3


async def test_a_handler_that_hangs_inside_a_statement_is_ended_on_the_server_too(postgres_url: str) -> None:
    service, runs = plant(), list[int]()

    @service.on(Made, policy=SHORT)
    async def sleep(event: Event[Made], tx: Tx) -> None:
        runs.append(event.data.number)
        await book(event, tx)
        if len(runs) == 1:
            await tx.execute("SELECT pg_sleep(600)")

    async with at_work(service, postgres_url):
        await say(service, "k", 1)
        await settled(service)
        assert await effects(service, "k") == [1]

        async def gone() -> bool:
            async with app_of(service).store.begin() as tx:
                left = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(600)%'"
                return (await tx.execute(f"{left} AND pid <> pg_backend_pid()")).scalar() == 0

        await until(gone, "the statement to be ended")


async def test_a_handler_that_swallows_its_cancellation_cannot_write_or_commit_late(postgres_url: str) -> None:
    service, refused, first, late = plant(), list[str](), [True], asyncio.Event()

    @service.on(Made, policy=SHORT)
    async def deaf(event: Event[Made], tx: Tx) -> None:
        await book(event, tx)
        if not first:
            return
        first.clear()
        connection = tx.connection
        assert isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        for attempt in (
            lambda: connection.execute(BOOK, "t1", "late", 1),
            lambda: connection.execute("COMMIT"),
            lambda: tx.execute(BOOK, ("t1", "late", 2)),
        ):
            try:
                await attempt()
            except (StoreError, asyncpg.InterfaceError, asyncpg.PostgresError) as error:
                refused.append(type(error).__name__)
        late.set()

    async with at_work(service, postgres_url):
        await say(service, "k", 1)
        await asyncio.wait_for(late.wait(), 20)
        await settled(service)
        assert len(refused) == 3
        assert (await effects(service, "k"), await effects(service, "late")) == ([1], [])


@pytest.mark.parametrize("schedulers", [2, 4])
async def test_several_schedulers_fire_each_timer_once(postgres_url: str, schedulers: int) -> None:
    service, others = booking(), [PostgresStore(postgres_url) for _ in range(schedulers)]
    async with at_work(service, postgres_url, only=("relay", "consumers")):
        for start in range(0, 200, 20):
            async with service.transaction("t1") as tx:
                for number in range(start, start + 20):
                    tx.publish(Made(key=f"k{number}", number=number), after=0.001)
        await until(lambda: due(app_of(service).store.timers), "the timers to be due")

        async def fire(store: PostgresStore) -> int:
            count = 0
            while await store.timers.next_due() is not None:
                count += await store.timers.fire(7)
            return count

        fired = await asyncio.gather(*(fire(store) for store in others))
        assert sum(fired) == 200
        figures = await settled(service)
        assert [line.applied for line in figures.lines if line.committed] == [200]
        for store in others:
            await store.aclose()


async def due(timers: object) -> bool:
    soon = await timers.next_due()  # type: ignore[attr-defined]
    return soon is not None and soon <= -0.1


async def test_of_a_timer_that_fires_and_one_that_is_cancelled_at_the_same_moment_exactly_one_wins(
    postgres_url: str,
) -> None:
    """What decides is the row: a cancellation that says True has kept the fact from being said, one that says False not."""
    service, other = booking(), PostgresStore(postgres_url)
    async with at_work(service, postgres_url, only=("relay", "consumers")):
        cancelled = set[int]()
        for number in range(60):
            async with service.transaction("t1") as tx:
                tx.publish(Made(key=f"k{number}", number=number), after=0.001, timer=f"timer {number}")

            async def cancel(number: int = number) -> None:
                await asyncio.sleep(number % 6 / 1000)  # now before the moment, now after it
                async with service.transaction("t1") as tx:
                    if await tx.cancel(f"timer {number}"):
                        await tx.execute(BOOK, ("t1", "cancelled", number))
                        cancelled.add(number)

            async def fire() -> None:
                while await other.timers.next_due() is not None:
                    await other.timers.fire(1)

            await asyncio.gather(*((cancel(), fire()) if number % 2 else (fire(), cancel())))
        await settled(service)
        for number in range(60):
            assert await effects(service, f"k{number}") == ([] if number in cancelled else [number])
        assert await effects(service, "cancelled") == sorted(cancelled)
        assert 0 < len(cancelled) < 60
    await other.aclose()


async def test_a_row_that_somebody_locks_makes_a_handler_wait_and_not_fail(postgres_url: str) -> None:
    """`lock_timeout` set on the database: the event is tried again without a counted attempt."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(
            psycopg.sql.SQL("ALTER DATABASE {} SET lock_timeout = '100ms'").format(
                psycopg.sql.Identifier(admin.info.dbname)
            )
        )
        admin.execute("CREATE TABLE stock (name text PRIMARY KEY, left_over int)")
        admin.execute("INSERT INTO stock VALUES ('a', 5)")
    service, runs = plant(), list[int]()

    @service.on(Made, policy=Policy(max_attempts=1))
    async def take(event: Event[Made], tx: Tx) -> None:
        runs.append(event.data.number)
        await tx.execute("UPDATE stock SET left_over = left_over - 1 WHERE name = 'a'")
        await book(event, tx)

    async with at_work(service, postgres_url):
        with psycopg.connect(postgres_url) as hog:
            hog.execute("SELECT * FROM stock FOR UPDATE")
            await say(service, "k", 1)
            await until(lambda: asyncio.sleep(0, len(runs) >= 1), "a first run")
            hog.rollback()
        await settled(service)
        dead = await app_of(service).store.held.find(HeldFilter(state="dead"))
        assert (await effects(service, "k"), dead) == ([1], [])
