"""Faults 5, 10 and 59: sessions are ended, the server refuses to write, connections run out. InboundEvent waits and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

import psycopg
import pytest

from posthouse import Event, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.broker import Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import StoreError, StoreUnavailable
from posthouse.store import HeldFilter
from tests.faults.plant import Made, at_work, book, booking, effects, plant, say, settled, until

ALL_SESSIONS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def told(url: str, *statements: str) -> list[tuple[object, ...]]:
    """What an administrator does, in a session of their own; the rows of the last statement."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.replace("{database}", connection.info.dbname))
        return cursor.fetchall() if cursor.description else []


async def stubborn(service: Service, key: str, number: int) -> None:
    """Say it until it was said; the idempotency key makes it one fact."""
    while True:
        try:
            return await say(service, key, number)
        except StoreError:
            await asyncio.sleep(0.01)


async def test_sessions_that_are_ended_all_the_time_lose_double_and_invert_nothing(postgres_url: str) -> None:
    service, over, ended = booking(Policy(first_delay=0.05, last_delay=0.2, max_attempts=100)), asyncio.Event(), 0

    async def storm() -> None:
        nonlocal ended
        while not over.is_set():
            ended += int(str((await asyncio.to_thread(told, postgres_url, ALL_SESSIONS))[0][0]))
            await asyncio.sleep(0.5)

    async with at_work(service, postgres_url):
        storming = asyncio.create_task(storm())
        for number in range(40):
            await asyncio.gather(*(stubborn(service, f"k{key}", number) for key in range(3)))
            await asyncio.sleep(0.05)
        over.set()
        await storming
        figures = await settled(service, 90)
        assert ended > 10
        for key in range(3):
            assert await effects(service, f"k{key}") == list(range(40))
        assert [line.applied for line in figures.lines if line.committed] == [120]
        assert await app_of(service).store.held.find(HeldFilter()) == []


class SlowBroker(MemoryBroker):
    """Takes frames only when it is told to."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.open = asyncio.Event()
        self.asked = asyncio.Event()
        self.calls: list[int] = []

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        self.calls.append(len(frames))
        self.asked.set()
        await self.open.wait()
        return await super().publish(frames)


async def test_a_relay_whose_session_was_ended_while_it_published_sends_that_batch_again_and_no_other(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease is a row, not a session: it goes on with its shards, and the consumer drops what comes twice."""
    service, broker = booking(), SlowBroker()
    async with at_work(service, postgres_url, broker):
        async with service.transaction("t1") as tx:
            for number in range(5):
                tx.publish(Made(key="k", number=number))
        await asyncio.wait_for(broker.asked.wait(), 10)
        told(postgres_url, ALL_SESSIONS)
        broker.open.set()
        await settled(service)
        assert await effects(service, "k") == [0, 1, 2, 3, 4]
        assert broker.calls in ([5], [5, 5])
        assert "lost its shards" not in caplog.text


async def test_a_server_that_takes_no_writes_is_waited_for(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    service = booking()
    with caplog.at_level(logging.WARNING, "posthouse"):
        async with at_work(service, postgres_url):
            await say(service, "k", 1, 2)
            await settled(service)
            told(postgres_url, 'ALTER DATABASE "{database}" SET default_transaction_read_only = on', ALL_SESSIONS)
            for _ in range(20):
                with pytest.raises(StoreUnavailable):
                    await say(service, "k", 3)
            told(
                postgres_url,
                "SET default_transaction_read_only = off",
                'ALTER DATABASE "{database}" SET default_transaction_read_only = off',
            )
            await stubborn(service, "k", 3)
            await settled(service)
            assert await effects(service, "k") == [1, 2, 3]
    assert not [record for record in caplog.records if "failed and is started again" in record.message], "no crash loop"


@pytest.fixture
async def tight(postgres_url: str) -> AsyncIterator[str]:
    """A role that may have twelve sessions, which is what one store wants."""
    told(
        postgres_url,
        "CREATE ROLE tight LOGIN CONNECTION LIMIT 12",
        'GRANT ALL ON DATABASE "{database}" TO tight',
        "GRANT ALL ON SCHEMA public TO tight",
    )
    yield postgres_url.replace("postgres@", "tight@")
    told(postgres_url, "DROP OWNED BY tight", "DROP ROLE tight")


async def test_when_connections_run_out_work_waits_and_goes_on_when_there_are_some(tight: str) -> None:
    service = booking()
    async with at_work(service, f"{tight}?patience=2"):
        await say(service, "k", 1)
        await settled(service)
        with contextlib.ExitStack() as hogs:
            taken = 0
            with contextlib.suppress(psycopg.OperationalError):
                while taken < 20:
                    hogs.enter_context(psycopg.connect(tight))
                    taken += 1
            assert 0 < taken < 12
            said = [asyncio.create_task(say(service, f"k{number}", number)) for number in range(30)]
            outcomes = await asyncio.gather(*said, return_exceptions=True)
            refused = [outcome for outcome in outcomes if outcome is not None]
            assert all(isinstance(outcome, StoreUnavailable) for outcome in refused), refused
        for number in range(30):
            await stubborn(service, f"k{number}", number)
        figures = await settled(service)
        assert [line.applied for line in figures.lines if line.committed] == [31]


async def test_handlers_that_use_every_connection_do_not_keep_the_runtime_from_its_work(postgres_url: str) -> None:
    """Every transaction is in the hands of a handler that waits; relay, timers and acknowledgements go on."""
    service, waiting, go = plant(), set[str](), asyncio.Event()

    @service.on(Made)
    async def wait(event: Event[Made], tx: Tx) -> None:
        await book(event, tx)
        waiting.add(event.data.key)
        await go.wait()

    async with at_work(service, f"{postgres_url}?writers=3&patience=5"):
        for number in range(6):
            await say(service, f"k{number}", number)
            if number == 2:
                await until(lambda: asyncio.sleep(0, len(waiting) == 3), "all transactions to be in use")
                break
        assert (await app_of(service).store.counts()).unsent == {}
        shards = await app_of(service).store.outbox.lease("another", 5)
        assert shards is not None
        with pytest.raises(StoreUnavailable, match="all 3 transactions of this process were open for 5 s"):
            await say(service, "k9", 9)
        go.set()
        await settled(service)


async def test_a_session_that_idles_in_its_transaction_is_ended_and_the_event_runs_again(postgres_url: str) -> None:
    """`idle_in_transaction_session_timeout`: a handler that waits for something else loses its transaction."""
    told(postgres_url, "ALTER DATABASE \"{database}\" SET idle_in_transaction_session_timeout = '300ms'")
    service, runs = plant(), list[int]()

    @service.on(Made, policy=Policy(first_delay=0.05, last_delay=0.1))
    async def dawdle(event: Event[Made], tx: Tx) -> None:
        await book(event, tx)
        runs.append(event.data.number)
        if runs.count(event.data.number) == 1 and event.data.number == 1:
            await asyncio.sleep(1.0)  # the fault itself: longer than the server allows

    async with at_work(service, postgres_url):
        await say(service, "k", 0, 1, 2)
        await settled(service)
        assert await effects(service, "k") == [0, 1, 2]
        assert runs.count(1) == 2
