"""What one run of a server said is never written to another: it crashes, recovers or is promoted between a poll and its
settle, while others roll transactions back, so that numbers that never reached the log are given out again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import psycopg
import pytest

from posthouse.broker import Frame, Topology, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import StoreError, StoreUnavailable
from posthouse.sending import Relay, RelaySettings
from posthouse.store import OutboxReader, WalReader
from posthouse.store.projections import Generation
from posthouse.store.streams import StreamEvent
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, entry, row, stuck
from posthouse.testing.store_contract.steps import add, standing
from tests.faults.plant import until
from tests.faults.test_postgres_failover import both_of
from tests.kit.running import at_work
from tests.kit.servers.pgbouncer import pooling
from tests.kit.servers.postgres import PATIENCE, SETTINGS, Unavailable, binaries, give_up
from tests.kit.servers.restartable import RestartablePostgres, restartable
from tests.kit.servers.standby import following

FORGETFUL = {**SETTINGS, "wal_writer_delay": "10s", "wal_level": "logical"}
"""What nobody waits for reaches the disk late, as on a server that is busy with other things."""

QUICK = RelaySettings(lease=3.0, idle=0.1, first_delay=0.05, last_delay=0.2)

# Numbers of transactions and of rows that are given out and never committed.
ROLLED_BACK = """
DO $$ BEGIN FOR n IN 1..2000 LOOP PERFORM pg_current_xact_id(); ROLLBACK; END LOOP; END $$
"""
DRAWN_IN_VAIN = "SELECT nextval('posthouse.outbox_id_seq') FROM generate_series(1, 5000)"

AFTER = 60
"""Events that are committed in the second run."""


@pytest.fixture
def server() -> Iterator[RestartablePostgres]:
    try:
        folder = binaries()
    except Unavailable as error:
        give_up(f"no PostgreSQL that may be crashed: {error}")
    with restartable(folder, FORGETFUL) as server:
        yield server


@contextlib.asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, patience=5, **options)  # type: ignore[arg-type]
    try:
        yield store
    finally:
        await store.aclose()


def spend(url: str) -> None:
    """Let transactions and ids of rows come and go; nothing of it has to reach the disk."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(ROLLED_BACK)
        connection.execute("BEGIN")
        connection.execute(DRAWN_IN_VAIN)
        connection.execute("ROLLBACK")


@contextlib.contextmanager
def rolling_back(url: str) -> Iterator[None]:
    """Two clients that roll transactions back all the time: what a snapshot says is never all on the disk."""
    over = threading.Event()

    def spend_on() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not over.is_set():
                connection.execute(ROLLED_BACK)

    clients = [threading.Thread(target=spend_on) for _ in range(2)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        over.set()
        for client in clients:
            client.join(PATIENCE)


def crash(server: RestartablePostgres) -> None:
    """`pg_ctl stop -m immediate`, and start."""
    server.crash()
    server.start()


def kill_a_session(server: RestartablePostgres) -> None:
    """SIGKILL for one backend: the postmaster stays, ends all others and recovers."""
    connection = psycopg.connect(server.url, autocommit=True)
    started = connection.execute("SELECT pg_postmaster_start_time()").fetchone()
    os.kill(connection.info.backend_pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(psycopg.OperationalError):
            connection.execute("SELECT 1")  # as long as it lives, the server has not noticed
        try:
            with psycopg.connect(server.url, connect_timeout=2) as fresh:
                assert fresh.execute("SELECT pg_postmaster_start_time()").fetchone() == started
            if connection.closed:
                return
        except psycopg.OperationalError:
            pass
        assert time.monotonic() < deadline, "the server did not come back"
        time.sleep(0.02)


ENDS: Sequence[Callable[[RestartablePostgres], None]] = (crash, kill_a_session)


async def again(store: PostgresStore) -> None:
    """Until its connections are to a server that answers."""

    async def answers() -> bool:
        await store.counts()
        return True

    await until(answers, "the server to answer")


async def say(url: str, first: int, count: int, key: str = "k") -> list[str]:
    """Committed one by one, through connections of their own."""
    names = [f"{key}{number}" for number in range(first, first + count)]
    async with opened(url) as other:
        for name in names:
            await add(other, row(key, event_id=name))
    return names


async def everything(reader: OutboxReader, owner: str = "a") -> list[str]:
    """The ids of what is left, in the order in which it came."""
    found: list[str] = []
    while True:
        shards = await reader.lease(owner, 600)
        poll = await reader.poll(shards, 20)
        if not poll.rows:
            return found
        found += [one.event_id for one in poll.rows]
        assert await reader.settle(owner, poll, [])


# A settle that comes too late, for each way of reading.


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("many", [5, 90], ids=["few", "backlog"])
async def test_what_was_polled_in_one_run_is_not_settled_in_the_next(
    server: RestartablePostgres, end: Callable[[RestartablePostgres], None], many: int
) -> None:
    async with opened(server.url) as store:
        await store.upgrade()
        before = await say(server.url, 0, many)
        shards = await store.outbox.lease("a", 600)
        spend(server.url)
        poll = await store.outbox.poll(shards, 20)
        assert len(poll.rows) == min(many, 20)
        end(server)
        await again(store)
        after = await say(server.url, many, AFTER)
        settled = await store.outbox.settle("a", poll, [])
        spend(server.url)  # no cursor is ahead of the server any more
        assert await everything(store.outbox) == before + after
        assert not settled


async def test_a_disk_that_was_copied_back_is_another_run(server: RestartablePostgres) -> None:
    """Of the same server, on the same timeline, with all that unlogged tables had."""
    async with opened(server.url) as store:
        await store.upgrade()
        await store.outbox.lease("a", 600)
        server.back_up()
        await again(store)
        shards = await store.outbox.lease("a", 600)
        await say(server.url, 0, 5)
        spend(server.url)
        poll = await store.outbox.poll(shards, 20)
        assert len(poll.rows) == 5
        server.bring_back()
        await again(store)
        after = await say(server.url, 5, AFTER)
        settled = await store.outbox.settle("a", poll, [])
        spend(server.url)
        assert await everything(store.outbox) == after
        assert not settled


async def test_pages_that_were_read_ahead_in_one_run_are_not_settled_in_the_next(server: RestartablePostgres) -> None:
    async with opened(server.url) as store:
        await store.upgrade()
        before = await say(server.url, 0, 90)
        shards = await store.outbox.lease("a", 600)
        spend(server.url)
        first = await store.outbox.poll(shards, 20)
        assert await store.outbox.settle("a", first, [])
        second = await store.outbox.poll(shards, 20)
        assert len(second.rows) == 20
        crash(server)
        await again(store)
        after = await say(server.url, 90, AFTER)
        settled = await store.outbox.settle("a", second, [])
        with pytest.raises(StoreUnavailable, match="another run"):
            await store.outbox.poll(shards, 20)
        assert not settled
        found = await everything(store.outbox)
        assert set(found) | {one.event_id for one in first.rows} == {*before, *after}
        assert found == sorted(found, key=(before + after).index), "in order"
        assert len(found) >= 70 + AFTER


async def test_what_a_relay_of_the_log_polled_in_one_run_is_not_settled_in_the_next(
    server: RestartablePostgres,
) -> None:
    async with opened(server.url) as store:
        await store.upgrade()
        tail = await store.wal_reader()
        before = await say(server.url, 0, 5)
        shards = await tail.lease("a", 600)
        spend(server.url)
        poll = await tail.poll(shards, 20)
        assert len(poll.rows) == 5
        crash(server)
        await again(store)
        after = await say(server.url, 5, AFTER)
        settled = await tail.settle("a", poll, [])
        spend(server.url)
        assert await everything(tail) == before + after
        assert not settled
        await tail.aclose()


async def test_refused_rows_of_one_run_are_not_settled_in_the_next(server: RestartablePostgres) -> None:
    """Their ids may be those of others by then."""
    async with opened(server.url) as store:
        await store.upgrade()
        await say(server.url, 0, 2)
        shards = await store.outbox.lease("a", 600)
        poll = await store.outbox.poll(shards, 20)
        assert await store.outbox.settle("a", poll, [stuck(one) for one in poll.rows])
        (due,) = await store.outbox.stuck_due(shards, 20)
        await say(server.url, 2, 1)  # a commit that is waited for: what came before it is on the disk too
        crash(server)
        await again(store)
        assert not await store.outbox.settle_stuck("a", shards, [due.row.id], [])
        assert len(await store.outbox.stuck()) == 2
        shards = await store.outbox.lease("a", 600)
        assert await store.outbox.settle_stuck("a", shards, [due.row.id], [])


async def test_behind_a_pooler_no_floor_is_carried_into_another_run(server: RestartablePostgres) -> None:
    """The connections to the pooler outlive the server, so they tell nothing; a floor above its ids hides a whole key."""
    place = psycopg.conninfo.conninfo_to_dict(server.url)
    with pooling(f"* = host=127.0.0.1 port={place['port']} user=postgres") as port:
        async with opened(f"postgresql://postgres@127.0.0.1:{port}/postgres", pooler="transaction") as store:
            await store.upgrade()
            await say(server.url, 0, 5)
            assert len(await everything(store.outbox)) == 5
            shards = await store.outbox.lease("a", 600)
            spend(server.url)
            await store.outbox.poll(shards, 20)
            crash(server)
            await again(store)
            await say(server.url, 5, 1)

            async def one_more() -> bool:
                return "k5" in await everything(store.outbox)

            await until(one_more, "the next one to come")
            hot = await say(server.url, 6, 2 * AFTER)
            assert await everything(store.outbox) == hot


# Cursors that somebody keeps outside of the server.


async def happen(url: str, first: int, count: int) -> list[str]:
    """Facts of one stream, each committed by itself."""
    names = [f"f{number}" for number in range(first, first + count)]
    async with opened(url) as other:
        for version, name in enumerate(names, first + 1):
            async with other.begin() as tx:
                await other.streams.append(tx, [StreamEvent("t1", "room", "1", version, name, "x.v1", {}, b"{}")])
    return names


async def heard(store: PostgresStore, cursor: str) -> tuple[list[str], str]:
    """What is behind a cursor, and where it stands then."""
    found: list[str] = []
    while True:
        page = await store.streams.read_all(cursor, 20)
        found, cursor = found + [one.event_id for one in page.events], page.cursor
        if not page.more:
            return found, cursor


async def test_whoever_reads_all_streams_misses_nothing_after_a_crash(server: RestartablePostgres) -> None:
    async with opened(server.url) as store:
        await store.upgrade()
        before = await happen(server.url, 0, 50)
        spend(server.url)
        found, cursor = await heard(store, "")
        assert found == before
        spend(server.url)
        again_, same = await heard(store, cursor)
        assert again_ == []
        crash(server)
        await again(store)
        after = await happen(server.url, 50, AFTER)
        spend(server.url)
        assert (await heard(store, same))[0] == after


async def test_a_cursor_from_before_a_promotion_is_refused(server: RestartablePostgres) -> None:
    """The new server may lack what it had seen, and gives the numbers of that again. How far a rebuild is stands in the
    database, behind what it has read: that goes on."""
    async with opened(server.url) as store:
        await store.upgrade()
        await happen(server.url, 0, 5)
        with following(server) as standby:
            _, cursor = await heard(store, "")
            begun = Generation(projection="p", number=1, version=1, phase="bulk", cursor=cursor, read=5, owner="me")
            async with store.begin() as tx:
                assert await store.projections.begin(tx, begun)
            standby.catch_up()
            server.crash()
            standby.promote()
            async with opened(standby.url) as new:
                after = await happen(standby.url, 5, 5)
                with pytest.raises(StoreError, match="begin again"):
                    await heard(new, cursor)
                assert len((await heard(new, ""))[0]) == 5 + len(after)
                await new.outbox.lease("a", 10)
                (stands,) = await new.projections.generations()
                assert (await heard(new, stands.cursor))[0] == after
                async with new.begin() as tx:
                    assert not await new.projections.swap(tx, begun, None), "it believes what the old server said"
                    assert await new.projections.swap(tx, stands, None)


# A relay whose broker is slow, from end to end.


class SlowBroker(MemoryBroker):
    """Holds the next frames back until it may go on."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.accepted: list[str] = []

    def hold(self) -> None:
        self.reached.clear()
        self.go_on.clear()

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        self.reached.set()
        await self.go_on.wait()
        verdicts = await super().publish(frames)
        self.accepted += [frame.id for frame in frames]
        return verdicts


@contextlib.asynccontextmanager
async def relaying(store: PostgresStore, broker: SlowBroker, tail: WalReader | None) -> AsyncIterator[None]:
    await broker.ensure(Topology(topics=[TOPIC]))
    async with at_work(Relay(store, broker, SystemClock(), QUICK, tail).run):
        try:
            yield
        finally:
            broker.go_on.set()


async def slowly(
    store: PostgresStore, url: str, new_url: str, end: Callable[[], None], tail: WalReader | None = None
) -> None:
    """A publish that takes as long as the server needs to come back: all that is committed comes out, in order."""
    broker = SlowBroker()
    async with relaying(store, broker, tail):
        first = await say(url, 0, 5)
        await until(lambda: _is(set(first) <= set(broker.accepted)), "the first ones")
        if tail is not None:
            await until(lambda: _is(tail.mode == "wal"), "the relay to follow the log")
        with rolling_back(url):
            broker.hold()
            second = await say(url, 5, 1)  # no commit behind it, which would bring to the disk what the snapshot says
            await broker.reached.wait()
        end()
        third = await say(new_url, 6, AFTER)
        await again(store)
        broker.go_on.set()
        spend(new_url)
        fourth = await say(new_url, 6 + AFTER, 5)
        await until(lambda: _is(set(fourth) <= set(broker.accepted)), "what came last", 20)
    said = first + second + third + fourth
    firsts = list(dict.fromkeys(broker.accepted))
    assert firsts == said, "all, in their order"


async def _is(value: bool) -> bool:
    return value


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
async def test_a_slow_publish_around_a_crash_loses_nothing(
    server: RestartablePostgres,
    end: Callable[[RestartablePostgres], None],
    pooled: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = psycopg.conninfo.conninfo_to_dict(server.url)
    with contextlib.ExitStack() as stack, caplog.at_level(logging.WARNING):
        url, options = server.url, {}
        if pooled:
            port = stack.enter_context(pooling(f"* = host=127.0.0.1 port={place['port']} user=postgres"))
            url, options = f"postgresql://postgres@127.0.0.1:{port}/postgres", {"pooler": "transaction"}
        async with opened(url, **options) as store:
            await store.upgrade()
            await slowly(store, server.url, server.url, lambda: end(server))
            assert (await store.counts()).unsent == {}
    assert [one for one in caplog.records if "another run" in one.message], "the log says it"


async def test_a_slow_publish_of_a_relay_that_follows_the_log_loses_nothing_in_a_crash(
    server: RestartablePostgres,
) -> None:
    async with opened(server.url) as store:
        await store.upgrade()
        tail = await store.wal_reader()
        await slowly(store, server.url, server.url, lambda: crash(server), tail)
        assert (await store.counts()).unsent == {}


async def test_a_slow_publish_around_a_promotion_loses_nothing_that_the_new_server_has(
    server: RestartablePostgres,
) -> None:
    async with opened(server.url) as store:
        await store.upgrade()
        await store.outbox.lease("z", 0.01)
    with following(server) as standby:

        def promote() -> None:
            standby.catch_up()
            server.crash()
            standby.promote()

        async with opened(both_of(server.url, standby.url)) as store:
            await slowly(store, server.url, standby.url, promote)


# What was told to the broker.


@pytest.mark.parametrize("shape", [None, psycopg.AsyncConnection], ids=["asyncpg", "psycopg"])
async def test_what_was_applied_stays_so_after_a_crash_where_commits_are_not_waited_for(
    server: RestartablePostgres, shape: type | None
) -> None:
    """The broker was told, so the event does not come again."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres SET synchronous_commit = off")
    async with opened(server.url) as store:
        await store.upgrade()
        for number in (1, 2, 3):
            async with store.begin(shape) as tx:
                assert await store.inbox.claim(tx, CONSUMER, [entry(number)]) == [True]
        crash(server)
        await again(store)
        head = await standing(store, entry(4))
        assert head.sequence == 3
