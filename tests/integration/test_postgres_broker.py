"""What is special to a log in PostgreSQL: crashes of the server, late commits, locks, settings and lost connections."""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from zlib import crc32

import asyncpg
import psycopg
import pytest

import posthouse.brokers.postgres.client as database
import posthouse.brokers.postgres.log as log_module
import posthouse.brokers.postgres.schema as schema
from posthouse import App, Event, Payload, Service, Tx
from posthouse.app import app_of
from posthouse.broker import Delivery, Frame, Start, Topology
from posthouse.brokers import open_broker
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError
from tests.kit.frames import collect
from tests.kit.servers.postgres import PostgresServer
from tests.kit.servers.restartable import RestartablePostgres, restartable_postgres

__all__ = ["restartable_postgres"]

T = TypeVar("T")
CLOCK = SystemClock()
DEADLINE = 30.0
GRANTS = Path(__file__).parents[2] / "docs" / "examples" / "deploying" / "grants.sql"
PUBLISH = """
    SELECT posthouse_log.publish($1, $2, $3, $4, $5, $6, $7, $8, $9, posthouse_log.begin_run())"""


class Placed(Payload):
    order_id: str


@pytest.fixture
async def broker(postgres_url: str) -> AsyncIterator[PostgresBroker]:
    broker = PostgresBroker(postgres_url, clock=CLOCK, lease=1.0)
    await broker.ensure(Topology(topics=["t"], groups={"g": ["t"]}))
    yield broker
    await broker.aclose()


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def partition_of(key: str) -> int:
    return crc32(key.encode()) % 8


def frame(key: str, number: int) -> Frame:
    return Frame(topic="t", id=f"{key}-{number}", key=key, body=b"%d" % number)


async def store_by_hand(connection: "asyncpg.Connection[asyncpg.Record]", key: str, ids: list[str]) -> None:
    """What one publishing statement does, on a connection whose transaction the test ends."""
    many = len(ids)
    ranks = list(range(1, many + 1))
    bodies = [id_.rpartition("-")[2].encode() for id_ in ids]
    keys = [key.encode()] * many
    encoded = [id_.encode() for id_ in ids]
    place = ([1], [partition_of(key)], [many])
    await connection.fetch(PUBLISH, *place, [1] * many, ranks, encoded, keys, [None] * many, bodies)


def numbers_by_key(deliveries: list[Delivery]) -> dict[str | None, list[int]]:
    numbers: dict[str | None, list[int]] = defaultdict(list)
    for delivery in deliveries:
        numbers[delivery.frame.key].append(int(delivery.frame.body))
    return numbers


# Late commits


async def test_a_publisher_that_commits_late_is_not_passed_over(broker: PostgresBroker, postgres_url: str) -> None:
    keys = [f"k{n}" for n in range(40)]
    slow = keys[0]
    others = [key for key in keys if partition_of(key) != partition_of(slow)]
    stream = await broker.subscribe("g", ["t"])
    async with connected(postgres_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await store_by_hand(connection, slow, [f"{slow}-1"])
        same = asyncio.create_task(broker.publish([frame(slow, 2)]))
        for number in (1, 2, 3):
            assert all(verdict.accepted for verdict in await broker.publish([frame(key, number) for key in others]))
        meanwhile = await collect(stream, 3 * len(others))
        assert {delivery.frame.key for delivery in meanwhile} == set(others), "other partitions flow"
        assert not same.done(), "who publishes behind it waits"
        assert await stream.receive(10, 0.2) == []
        await transaction.commit()
    await same
    assert [delivery.frame.id for delivery in await collect(stream, 2)] == [f"{slow}-1", f"{slow}-2"]
    assert all(numbers == [1, 2, 3] for numbers in numbers_by_key(meanwhile).values())


async def test_a_publisher_that_rolls_back_leaves_no_gap(broker: PostgresBroker, postgres_url: str) -> None:
    stream = await broker.subscribe("g", ["t"])
    async with connected(postgres_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await store_by_hand(connection, "k", ["k-1"])
        waiting = asyncio.create_task(broker.publish([frame("k", 2)]))
        await transaction.rollback()
    await waiting
    assert [delivery.frame.id for delivery in await collect(stream, 1)] == ["k-2"]
    progress = (await broker.progress("g", ["t"]))["t"]
    assert (progress.stored, progress.pending) == (1, 0)


@pytest.mark.slow
async def test_writers_that_dawdle_and_roll_back_never_hide_a_frame(broker: PostgresBroker, postgres_url: str) -> None:
    """Eight writers on a few keys, each holding its transaction open for a while, with a reader that never stops."""
    rng = random.Random(5)
    committed: set[str] = set()
    done = asyncio.Event()
    got: list[Delivery] = []

    async def write(writer: int) -> None:
        async with connected(postgres_url) as connection:
            for turn in range(25):
                ids = [f"w{writer}-{2 * turn + n}" for n in range(2)]
                transaction = connection.transaction()
                await transaction.start()
                await store_by_hand(connection, f"w{writer}", ids)
                await asyncio.sleep(rng.choice([0, 0, 0.005, 0.03]))  # the lateness is the test
                if rng.random() < 0.2:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    committed.update(ids)

    async def read() -> None:
        stream = await broker.subscribe("g", ["t"], window=20)
        while not (done.is_set() and {delivery.frame.id for delivery in got} == committed):
            batch = await stream.receive(7, 0.1)
            got.extend(batch)
            await stream.ack(batch)

    async with asyncio.timeout(DEADLINE):
        reading = asyncio.create_task(read())
        await asyncio.gather(*(write(writer) for writer in range(8)))
        done.set()
        await reading
    assert len(got) == len(committed), "nothing came twice"
    assert all(numbers == sorted(numbers) for numbers in numbers_by_key(got).values())
    async with connected(postgres_url) as connection:
        sparse = await connection.fetch(
            "SELECT partition FROM posthouse_log.frames GROUP BY partition HAVING max(number) <> count(*)"
        )
        assert sparse == [], "numbers are dense"


async def test_publishers_that_wait_do_not_keep_readers_from_the_database(
    broker: PostgresBroker, postgres_url: str
) -> None:
    stream = await broker.subscribe("g", ["t"])
    await broker.publish([frame("k1", 1)])
    async with connected(postgres_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await store_by_hand(connection, "k", ["k-1"])
        stuck = [asyncio.create_task(broker.publish([frame("k", n)])) for n in range(2, 12)]
        assert [delivery.frame.id for delivery in await collect(stream, 1)] == ["k1-1"]
        await transaction.commit()
    await asyncio.gather(*stuck)
    assert len(await collect(stream, 11)) == 11


async def test_a_publisher_that_waits_too_long_gives_up_and_stores_nothing(
    postgres_url: str, broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.3)
    hasty = PostgresBroker(postgres_url, clock=CLOCK)
    await hasty.ensure(Topology(topics=["t"]))
    async with connected(postgres_url) as connection, connection.transaction():
        await store_by_hand(connection, "k", ["k-1"])
        with pytest.raises(BrokerUnavailable):
            await hasty.publish([frame("k", 2)])
    assert (await hasty.publish([frame("k", 3)]))[0].accepted
    got = await collect(await broker.subscribe("g", ["t"]), 2)
    assert [delivery.frame.id for delivery in got] == ["k-1", "k-3"]
    await hasty.aclose()


async def test_whoever_opens_the_log_does_not_wait_for_ever_for_somebody_who_makes_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.3)
    broker = PostgresBroker(postgres_url, clock=CLOCK)
    async with asyncio.timeout(DEADLINE), connected(postgres_url) as connection, connection.transaction():
        await connection.fetchval(schema.LOCK, broker._database.schema)
        with pytest.raises(BrokerUnavailable, match="TimeoutError"):
            await broker.ensure(Topology(topics=["t"]))
    monkeypatch.setattr(database, "PATIENCE", DEADLINE)
    await broker.ensure(Topology(topics=["t"]))
    assert (await broker.publish([frame("k", 1)]))[0].accepted
    await broker.aclose()


# Crashes and lost connections


@pytest.mark.slow
async def test_a_crash_of_the_server_keeps_what_was_acknowledged_and_delivery_goes_on(
    restartable_postgres: RestartablePostgres,
) -> None:
    publisher = PostgresBroker(restartable_postgres.url, clock=CLOCK, lease=1.0)
    consumer = PostgresBroker(restartable_postgres.url, clock=CLOCK, lease=1.0)
    await publisher.ensure(Topology(topics=["t"], groups={"g": ["t"]}))
    acknowledged: set[str] = set()
    got: list[Delivery] = []
    outages = {"publishing": 0, "receiving": 0}
    stop = asyncio.Event()

    async def publish() -> None:
        turn = 0
        while not stop.is_set():
            frames = [frame(f"k{n}", turn) for n in range(20)]
            try:
                await publisher.publish(frames)
                acknowledged.update(one.id for one in frames)
                turn += 1
            except BrokerUnavailable:
                outages["publishing"] += 1
            await asyncio.sleep(0.005)

    async def consume() -> None:
        stream = await consumer.subscribe("g", ["t"])
        while not (stop.is_set() and acknowledged <= {delivery.frame.id for delivery in got}):
            try:
                batch = await stream.receive(50, 0.2)
                got.extend(batch)
                await stream.ack(batch)
            except BrokerUnavailable:
                outages["receiving"] += 1
                await asyncio.sleep(0.02)

    async with asyncio.timeout(90):
        tasks = [asyncio.create_task(publish()), asyncio.create_task(consume())]
        for _ in range(3):
            before = len(acknowledged)
            while len(acknowledged) < before + 400:  # noqa: ASYNC110 - the tasks have no event for "400 more"
                await asyncio.sleep(0.01)
            await asyncio.to_thread(restartable_postgres.crash)
            await asyncio.to_thread(restartable_postgres.start)
        before = len(acknowledged)
        while len(acknowledged) < before + 400:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*tasks)
        while (await consumer.progress("g", ["t"]))["t"].pending:  # noqa: ASYNC110 - acks that a crash undid are written again
            await asyncio.sleep(0.05)
    assert outages["publishing"] > 0
    assert outages["receiving"] > 0
    last: dict[str | None, int] = {}
    for (
        delivery
    ) in got:  # a publish whose answer was lost is repeated, so a number may come twice, but never be skipped
        number, key = int(delivery.frame.body), delivery.frame.key
        assert delivery.redelivered or number <= last.get(key, -1) + 1, f"{key}: {number} after {last.get(key)}"
        last[key] = max(number, last.get(key, -1))
    await publisher.aclose()
    await consumer.aclose()


async def without_outage(call: Callable[[], Awaitable[T]]) -> T:
    """The answer, as soon as the server gives one."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                return await call()
            except BrokerUnavailable:
                await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [20, 1000], ids=["few at once", "many at once"])
@pytest.mark.parametrize("new", [3, 30], ids=["fewer than were lost", "more than were lost"])
async def test_a_standby_that_missed_frames_hides_none_that_it_takes_itself(
    restartable_postgres: RestartablePostgres, new: int, limit: int
) -> None:
    broker = PostgresBroker(restartable_postgres.url, clock=CLOCK, lease=600.0)
    await broker.ensure(Topology(topics=["t"]))
    stream = await broker.subscribe("g", ["t"])
    await broker.publish([frame("k", n) for n in range(5)])
    await collect(stream, 5)
    await asyncio.to_thread(restartable_postgres.back_up)
    await without_outage(lambda: broker.publish([frame("k", n) for n in range(100, 110)]))
    lost: Sequence[Delivery] = await without_outage(lambda: stream.receive(limit, 1.0))
    assert len(lost) == 10
    await stream.ack(lost)
    await asyncio.to_thread(restartable_postgres.fail_over)
    await without_outage(lambda: broker.publish([frame("k", n) for n in range(200, 200 + new)]))
    got: list[int] = []
    async with asyncio.timeout(DEADLINE):
        while len(got) < new:
            batch = await without_outage(lambda: stream.receive(limit, 1.0))
            await stream.ack(batch)
            got += [int(delivery.frame.body) for delivery in batch]
    assert got == list(range(200, 200 + new))
    await broker.aclose()


async def test_a_member_that_was_replaced_hands_out_nothing_more(broker: PostgresBroker, postgres_url: str) -> None:
    sleeping = PostgresBroker(postgres_url, clock=ManualClock(CLOCK.now()), lease=0.5)  # its time stands still
    await broker.publish([frame("k", n) for n in range(10)])
    sleeper = await sleeping.subscribe("g", ["t"], window=8)
    handed = await sleeper.receive(4, DEADLINE)
    assert len(handed) == 4
    heir = await broker.subscribe("g", ["t"])
    got: list[Delivery] = []
    async with asyncio.timeout(DEADLINE):
        while len(got) < 10:
            got += await heir.receive(10, 0.2)
    assert [delivery.redelivered for delivery in got] == [True] * 8 + [False] * 2, "what a window of 8 may have reached"
    assert await sleeper.receive(10, 0.5) == [], "it knew of more, but they are no longer its own"
    await sleeper.ack(handed)
    assert (await broker.progress("g", ["t"]))["t"].pending == 10
    await sleeping.aclose()


async def test_a_session_that_the_server_ends_is_replaced(broker: PostgresBroker, postgres_url: str) -> None:
    stream = await broker.subscribe("g", ["t"])
    await broker.publish([frame("k", 1)])
    async with connected(postgres_url) as connection:
        await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await broker.publish([frame("k", 2)])
                break
            except BrokerUnavailable:
                continue
        got: list[Delivery] = []
        while "k-2" not in {delivery.frame.id for delivery in got}:
            with contextlib.suppress(BrokerUnavailable):
                got += await stream.receive(10, 0.1)
    assert got[0].frame.id == "k-1"


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:1/x", "postgresql://nobody@no.such.host.invalid/x"])
async def test_a_server_that_is_not_there_is_unavailable(url: str) -> None:
    broker = PostgresBroker(url, clock=CLOCK)
    with pytest.raises(BrokerUnavailable):
        await broker.ensure(Topology(topics=["t"]))
    with pytest.raises(BrokerUnavailable):
        await broker.publish([frame("k", 1)])
    with pytest.raises(BrokerUnavailable):
        await broker.subscribe("g", ["t"])
    await broker.aclose()


async def test_a_database_that_is_not_there_is_unavailable_and_its_password_is_not_told(postgres_url: str) -> None:
    url = postgres_url.replace("postgresql://postgres@", "postgresql://postgres:secret@") + "_not"
    broker = PostgresBroker(url, clock=CLOCK)
    with pytest.raises(BrokerUnavailable, match="does not exist") as caught:
        await broker.publish([frame("k", 1)])
    assert "secret" not in str(caught.value)
    await broker.aclose()


async def test_no_foreign_error_escapes_when_the_tables_are_gone(broker: PostgresBroker, postgres_url: str) -> None:
    stream = await broker.subscribe("g", ["t"])
    await broker.publish([frame("k", 0)])
    for attempt in (
        lambda: broker.publish([frame("k", 1)]),
        lambda: broker.progress("g", ["t"]),
        lambda: broker.seek("g", "t", position=1),
        lambda: stream.receive(1, 0),
    ):
        await without_outage(lambda: broker.ensure(Topology(topics=["t"], groups={"g": ["t"]})))
        async with connected(postgres_url) as connection:
            await connection.execute("DROP SCHEMA posthouse_log CASCADE")
        with pytest.raises(BrokerError):
            await attempt()


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_log_whose_schema_was_dropped_is_made_again_and_hides_nothing(postgres_url: str, start: Start) -> None:
    theirs = PostgresBroker(postgres_url, clock=CLOCK, lease=1.0)
    ours = PostgresBroker(postgres_url, clock=CLOCK, lease=1.0)
    try:
        await theirs.ensure(Topology(topics=["other"], groups={}))
        await ours.ensure(Topology(topics=["other", "t", "u"], groups={"g": ["t"]}))
        stream = await ours.subscribe("g", ["t"], start=start)
        await ours.publish([frame("a", n) for n in range(3)])
        await collect(stream, 3)
        async with connected(postgres_url) as connection:
            await connection.execute("DROP SCHEMA posthouse_log CASCADE")
        with pytest.raises(BrokerUnavailable, match="makes it again"):
            await theirs.publish([Frame(topic="other", id="1", key=None, body=b"")])
        await without_outage(lambda: theirs.ensure(Topology(topics=["other"], groups={})))  # made by who has no t

        async def publish() -> None:
            (verdict,) = await ours.publish([frame("a", 3)])
            assert verdict.accepted

        await without_outage(publish)
        with contextlib.suppress(BrokerError):
            await stream.aclose()
        stream = await without_outage(lambda: ours.subscribe("g", ["t"], start=start))
        assert [one.frame.id for one in await collect(stream, 1)] == ["a-3"]
        assert (await ours.progress("g", ["u"]))["u"].stored == 0
    finally:
        await asyncio.gather(ours.aclose(), theirs.aclose())


async def test_a_closed_broker_says_so(postgres_url: str) -> None:
    broker = PostgresBroker(postgres_url, clock=CLOCK)
    await broker.ensure(Topology(topics=["t"]))
    await broker.aclose()
    with pytest.raises(BrokerUnavailable, match="closed"):
        await broker.publish([frame("k", 1)])


async def test_a_member_that_leaves_frees_its_share_at_once(postgres_url: str) -> None:
    """With leases so long that waiting for one would fail the test."""
    leaving, staying = (PostgresBroker(postgres_url, clock=CLOCK, lease=600.0) for _ in range(2))
    await leaving.ensure(Topology(topics=["t"]))
    await leaving.subscribe("g", ["t"])
    stream = await staying.subscribe("g", ["t"])
    await leaving.aclose()
    await staying.publish([frame(f"k{n}", n) for n in range(80)])
    assert len(await collect(stream, 80)) == 80, "every partition"
    await staying.aclose()


async def test_a_newcomer_gets_its_share_while_the_others_work(postgres_url: str) -> None:
    first, second = (PostgresBroker(postgres_url, clock=CLOCK, lease=600.0) for _ in range(2))
    await first.ensure(Topology(topics=["t"]))
    old = await first.subscribe("g", ["t"])
    new = await second.subscribe("g", ["t"])
    turn, shares = 0, [0, 0]
    async with asyncio.timeout(DEADLINE):
        while not all(shares):
            turn += 1
            await first.publish([frame(f"k{n}", turn) for n in range(40)])
            for index, stream in enumerate((old, new)):
                batch = await stream.receive(100, 0.05)
                await stream.ack(batch)
                shares[index] = len({delivery.frame.key for delivery in batch})
    await first.aclose()
    await second.aclose()


# The schema and the server's settings


async def test_many_processes_may_make_the_schema_at_once(postgres_url: str) -> None:
    brokers = [PostgresBroker(postgres_url, clock=CLOCK, connections=2) for _ in range(8)]
    await asyncio.gather(*(broker.ensure(Topology(topics=["a", "b"], groups={"g": ["b", "c"]})) for broker in brokers))
    async with connected(postgres_url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM posthouse_log.heads") == 3 * 8
    for broker in brokers:
        await broker.aclose()


async def test_a_newer_log_is_refused(broker: PostgresBroker, postgres_url: str) -> None:
    async with connected(postgres_url) as connection:
        await connection.execute("UPDATE posthouse_log.log SET version = 99")
    late = PostgresBroker(postgres_url, clock=CLOCK)
    with pytest.raises(ConfigurationError, match="format 99"):
        await late.publish([frame("k", 1)])
    await late.aclose()


async def test_the_sheet_says_what_the_server_keeps(broker: PostgresBroker, postgres_url: str) -> None:
    assert broker.sheet.durable_ack
    assert broker.sheet.notes == ()
    async with connected(postgres_url) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    careless = PostgresBroker(postgres_url, clock=CLOCK)
    assert not careless.sheet.durable_ack, "nothing is promised before the server was asked"
    await careless.ensure(Topology(topics=["t"]))
    assert not careless.sheet.durable_ack
    assert "synchronous_commit=off" in careless.sheet.notes[0]
    await careless.aclose()


async def test_two_schemas_are_two_logs(postgres_url: str) -> None:
    one = open_broker(f"{postgres_url}?schema=one&partitions=2", clock=CLOCK)
    other = open_broker(f"{postgres_url}?schema=The%20%22other%22&connections=2", clock=CLOCK)
    await one.ensure(Topology(topics=["t"]))
    assert not (await other.publish([frame("k", 1)]))[0].accepted
    await other.ensure(Topology(topics=["t"], groups={"g": ["t"]}))
    assert (await other.publish([frame("k", 1)]))[0].accepted
    assert (await one.progress("g", ["t"]))["t"].stored == 0
    assert (await other.progress("g", ["t"]))["t"].stored == 1
    await one.aclose()
    await other.aclose()


async def test_text_that_the_database_does_not_take_as_text_goes_through(broker: PostgresBroker) -> None:
    odd = Frame(topic="t", id="i\0", key="k\0", body=b"\0", headers={"h": "a\0b"})
    assert (await broker.publish([odd]))[0].accepted
    assert (await collect(await broker.subscribe("g", ["t"]), 1))[0].frame == odd
    refused = await broker.publish([Frame(topic="t\0", id="i", body=b""), Frame(topic="\ud800", id="i", body=b"")])
    assert not any(verdict.accepted for verdict in refused)
    with pytest.raises(BrokerError, match="cannot name"):
        await broker.ensure(Topology(topics=["t\0"]))


async def test_a_call_larger_than_one_statement_is_stored_in_order(broker: PostgresBroker) -> None:
    body = bytes(3 * 1024 * 1024)
    sent = [Frame(topic="t", id=str(n), key="k", body=body) for n in range(12)]
    assert all(verdict.accepted for verdict in await broker.publish(sent))
    got = await collect(await broker.subscribe("g", ["t"]), 12)
    assert [delivery.frame.id for delivery in got] == [str(n) for n in range(12)]


async def test_a_stricter_isolation_of_the_database_changes_nothing(postgres_url: str) -> None:
    async with connected(postgres_url) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    for pooled in (False, True):
        broker = PostgresBroker(postgres_url, clock=CLOCK, pooled=pooled, connections=8)
        await broker.ensure(Topology(topics=["t"]))
        await asyncio.gather(*(broker.publish([frame("k", n)]) for n in range(40)))
        await broker.aclose()


# Retention and seeking


async def test_retention_goes_in_chunks_and_stops_at_the_slowest_group(postgres_url: str) -> None:
    broker = PostgresBroker(postgres_url, clock=CLOCK, retention=0.0)
    await broker.ensure(Topology(topics=["t"], groups={"fast": ["t"], "slow": ["t"]}))
    await broker.publish([frame(f"k{n % 10}", n) for n in range(100)])
    await collect(await broker.subscribe("fast", ["t"]), 100)
    assert await broker.prune() == 0
    slow = await broker.subscribe("slow", ["t"])
    await collect(slow, 60)
    assert await broker.prune(limit=25) == 25
    assert await broker.prune() == 35
    assert len(await collect(slow, 40)) == 40
    assert await broker.prune() == 40
    late = await broker.subscribe("late", ["t"])
    assert await late.receive(10, 0) == []
    assert (await broker.progress("late", ["t"]))["t"].truncated
    await broker.aclose()


async def test_a_seek_finds_every_position_also_after_frames_were_deleted_by_hand(
    broker: PostgresBroker, postgres_url: str
) -> None:
    await broker.publish([frame(f"k{n % 10}", n) for n in range(200)])
    stream = await broker.subscribe("g", ["t"])
    got = await collect(stream, 200)
    async with connected(postgres_url) as connection:
        await connection.execute("DELETE FROM posthouse_log.frames WHERE number % 3 = 0")
        left = {row[0] for row in await connection.fetch("SELECT position FROM posthouse_log.frames")}
    for position in random.Random(3).sample([delivery.position for delivery in got], 12):
        assert isinstance(position, int)
        await broker.seek("g", "t", position=position)
        expected = {one for one in left if one >= position}
        assert {delivery.position for delivery in await collect(stream, len(expected))} == expected
        assert await stream.receive(10, 0) == []
    await broker.seek("g", "t", position="0")
    assert len(await collect(stream, len(left))) == len(left)
    with pytest.raises(BrokerError, match="whole numbers"):
        await broker.seek("g", "t", position="soon")


async def test_a_group_that_begins_while_old_frames_are_deleted_begins_behind_them(postgres_url: str) -> None:
    broker = PostgresBroker(postgres_url, clock=CLOCK)
    await broker.ensure(Topology(topics=["t"]))
    await broker.publish([frame(f"k{n}", n) for n in range(80)])
    async with connected(postgres_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        gone = sum([row["upto"] for row in await connection.fetch("SELECT * FROM posthouse_log.retire(0, 30)")])
        beginning = asyncio.create_task(broker.subscribe("g", ["t"]))
        await broker.progress("g", ["t"])
        assert not beginning.done(), "it waits for the decision"
        await transaction.commit()
    begun = await beginning
    progress = (await broker.progress("g", ["t"]))["t"]
    assert (gone, progress.pending, progress.truncated) == (30, 50, True)
    assert len(await collect(begun, 50)) == 50
    await broker.aclose()


async def test_a_group_without_a_topic_is_refused(broker: PostgresBroker) -> None:
    with pytest.raises(BrokerError, match="no topic"):
        await broker.subscribe("g", [])
    with pytest.raises(BrokerError, match="Did you mean 't'"):
        await broker.subscribe("g", ["tt"])


# Reading ahead of what is known to be stored


async def test_a_reader_that_takes_many_gets_all_in_order_also_what_it_hands_back(broker: PostgresBroker) -> None:
    stream = await broker.subscribe("g", ["t"], window=40)
    assert await stream.receive(1000, 0) == [], "from here on it knows what is stored"
    got: list[Delivery] = []
    seen: set[str] = set()
    for step in range(12):
        await broker.publish([frame(f"k{key}", step * 3 + n) for key in range(5) for n in range(3)])
        batch = await stream.receive(1000, DEADLINE)
        assert {delivery.frame.id for delivery in batch if delivery.redelivered} == {
            delivery.frame.id for delivery in batch if delivery.frame.id in seen
        }
        seen |= {delivery.frame.id for delivery in batch}
        if step % 3 == 1:
            await stream.nack(batch)
            continue
        await stream.ack(batch)
        got += batch
    got += await collect(stream, 12 * 15 - len(got))
    assert numbers_by_key(got) == {f"k{key}": list(range(36)) for key in range(5)}
    assert (await broker.progress("g", ["t"]))["t"].pending == 0


async def test_frames_deleted_by_hand_hold_up_nobody_who_takes_many(broker: PostgresBroker, postgres_url: str) -> None:
    stream = await broker.subscribe("g", ["t"])
    assert await stream.receive(1000, 0) == []
    await broker.publish([frame("k", n) for n in range(10)])
    async with connected(postgres_url) as connection:
        await connection.execute("DELETE FROM posthouse_log.frames WHERE body IN ('0', '4', '9')")
    batch = await stream.receive(1000, DEADLINE)
    assert [int(delivery.frame.body) for delivery in batch] == [1, 2, 3, 5, 6, 7, 8]
    await stream.ack(batch)
    await broker.publish([frame("k", 10)])
    await stream.ack(await stream.receive(1000, DEADLINE))
    assert (await broker.progress("g", ["t"]))["t"].pending == 0


async def test_a_reader_that_takes_many_never_reaches_past_its_window(broker: PostgresBroker) -> None:
    stream = await broker.subscribe("g", ["t"], window=5)
    assert await stream.receive(1000, 0) == []
    await broker.publish([frame("k", n) for n in range(12)])
    got = list(await stream.receive(1000, DEADLINE))
    assert len(got) == 5
    assert await stream.receive(1000, 0) == []
    await stream.ack(got)
    got += await collect(stream, 7)
    assert numbers_by_key(got) == {"k": list(range(12))}


# Another run of the server: what was told before is neither written nor believed


def acked(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT sum(acked)::bigint FROM posthouse_log.cursors").fetchone()
    assert row is not None
    return int(row[0])


async def beaten(url: str) -> None:
    """A member whose lease this server has not seen yet renews it: its beat has then written what it has to write."""
    async with asyncio.timeout(DEADLINE):
        with psycopg.connect(url, autocommit=True) as connection:
            question = "SELECT max(until) FROM posthouse_log.members"
            before = connection.execute(question).fetchone()
            while connection.execute(question).fetchone() == before:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_the_beat_of_a_member_writes_nothing_into_a_server_that_lost_frames(
    restartable_postgres: RestartablePostgres,
) -> None:
    """Nobody receives meanwhile: only the beat talks to the new server before the new frames come."""
    url = restartable_postgres.url
    broker = PostgresBroker(url, clock=CLOCK, lease=3.0)
    await broker.ensure(Topology(topics=["t"]))
    stream = await broker.subscribe("g", ["t"])
    await broker.publish([frame("k", n) for n in range(5)])
    await collect(stream, 5)
    await asyncio.to_thread(restartable_postgres.back_up)
    await without_outage(lambda: broker.publish([frame("k", n) for n in range(100, 150)]))
    lost = await without_outage(lambda: stream.receive(100, 5.0))
    assert len(lost) == 50
    await stream.ack(lost)
    await asyncio.to_thread(restartable_postgres.fail_over)
    await beaten(url)
    assert acked(url) <= 5
    await without_outage(lambda: broker.publish([frame("k", n) for n in range(200, 270)]))
    got: list[int] = []
    async with asyncio.timeout(DEADLINE):
        while got[-70:] != list(range(200, 270)):
            batch = await without_outage(lambda: stream.receive(100, 1.0))
            await stream.ack(batch)
            got += [int(delivery.frame.body) for delivery in batch]
    assert set(got[:-70]) <= set(range(5)), "duplicates of what the new server has, and nothing else"
    await broker.aclose()


@pytest.mark.slow
async def test_what_ran_before_a_crash_comes_again_as_a_repeat_whoever_asks(
    restartable_postgres: RestartablePostgres,
) -> None:
    """Acknowledgements do not wait for the disk, so a crash may undo them."""
    url = restartable_postgres.url
    with psycopg.connect(url, autocommit=True) as connection:  # nothing reaches the disk between two beats
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        connection.execute("SELECT pg_reload_conf()")
    broker = PostgresBroker(url, clock=CLOCK, lease=600.0)
    await broker.ensure(Topology(topics=["t"]))
    stream = await broker.subscribe("g", ["t"], window=40)
    await broker.publish([frame("k", n) for n in range(200)])
    ran = await collect(stream, 140)
    await asyncio.to_thread(restartable_postgres.crash)
    await asyncio.to_thread(restartable_postgres.start)
    heir = PostgresBroker(url, clock=CLOCK, lease=600.0)
    with psycopg.connect(url, autocommit=True) as connection:  # the member before is dead for everybody
        connection.execute("DELETE FROM posthouse_log.members")
    again = await collect(await heir.subscribe("g", ["t"], window=200), 200 - acked(url))
    come = {delivery.frame.id: delivery.redelivered for delivery in again}
    assert {delivery.frame.id for delivery in ran} | come.keys() == {f"k-{n}" for n in range(200)}, "nothing is lost"
    assert [id_ for delivery in ran if not come.get(id_ := delivery.frame.id, True)] == []
    await broker.aclose()
    await heir.aclose()


async def test_a_durable_save_writes_what_was_saved_lazily_before(broker: PostgresBroker, postgres_url: str) -> None:
    stream = await broker.subscribe("g", ["t"])
    await broker.publish([frame("k", n) for n in range(3)])
    await collect(stream, 3)
    version = "SELECT xmin::text FROM posthouse_log.cursors WHERE acked = 3"
    async with connected(postgres_url) as connection, asyncio.timeout(DEADLINE):
        lazily = await connection.fetchval(version)
        assert lazily is not None
        while await connection.fetchval(version) == lazily:  # noqa: ASYNC110 - the next beat
            await asyncio.sleep(0.02)
        for holding in stream._held.values():
            while holding.window.committed < holding.window.prefix:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    await broker.aclose()


async def test_a_cursor_behind_the_end_is_noticed_and_hides_nothing(broker: PostgresBroker, postgres_url: str) -> None:
    """As a restore of some tables and not of others leaves it."""
    await broker.publish([frame("k", n) for n in range(10)])
    async with connected(postgres_url) as connection:
        await connection.execute("UPDATE posthouse_log.cursors SET acked = 500")
    (noticed,) = [check for check in await broker.checks() if check.name == "cursors"]
    assert noticed.judgement == "warn"
    stream = await broker.subscribe("g", ["t"])
    got = await collect(stream, 10)
    assert [(int(delivery.frame.body), delivery.redelivered) for delivery in got] == [(n, True) for n in range(10)]
    async with connected(postgres_url) as connection:  # and under a member at work
        await connection.execute("UPDATE posthouse_log.heads SET stored = 3 WHERE stored = 10")
        await connection.execute("DELETE FROM posthouse_log.frames WHERE number > 3")
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(DEADLINE):
        again = list(await stream.receive(10, 1.0))
    assert [int(delivery.frame.body) for delivery in again] == [0, 1, 2]
    assert asyncio.get_running_loop().time() - began < 5.0
    await stream.ack(again)
    await broker.publish([frame("k", n) for n in range(20, 25)])
    assert [int(delivery.frame.body) for delivery in await collect(stream, 5)] == list(range(20, 25))
    (noticed,) = [check for check in await broker.checks() if check.name == "cursors"]
    assert noticed.judgement == "ok"


@pytest.mark.parametrize("restless", [False, True], ids=["a cursor behind the end", "a group that never stands still"])
async def test_a_receive_returns_by_its_deadline_and_asks_seldom_whatever_it_finds(
    broker: PostgresBroker, postgres_url: str, monkeypatch: pytest.MonkeyPatch, restless: bool
) -> None:
    stream = await broker.subscribe("g", ["t"])
    asked = 0
    fetch = broker._database.fetch

    async def counted(doing: str, statement: str, *args: object) -> list[asyncpg.Record]:
        nonlocal asked
        asked += 1
        return await fetch(doing, statement, *args)

    async def disturb() -> None:
        async with connected(postgres_url) as connection:
            while restless:
                await connection.execute("UPDATE posthouse_log.groups SET version = version + 1")
            await connection.execute("UPDATE posthouse_log.cursors SET acked = 500, epoch = epoch + 1")
            await connection.execute("UPDATE posthouse_log.groups SET version = version + 1")

    monkeypatch.setattr(broker._database, "fetch", counted)
    disturbing = asyncio.create_task(disturb())
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(DEADLINE):
        assert await stream.receive(10, 1.0) == []
    assert loop.time() - began < 5.0
    disturbing.cancel()
    await asyncio.wait([disturbing])
    assert 3 <= asked < 300


async def test_topics_that_have_other_numbers_in_another_run_get_no_frames_of_each_other(
    restartable_postgres: RestartablePostgres,
) -> None:
    """The publisher's own connections never failed: nothing but the run tells."""
    url = restartable_postgres.url
    publisher = PostgresBroker(url, clock=CLOCK)
    await publisher.ensure(Topology(topics=["a", "b"]))
    assert (await publisher.publish([Frame(topic="a", id="1", key="k", body=b"")]))[0].accepted
    await asyncio.to_thread(restartable_postgres.crash)
    await asyncio.to_thread(restartable_postgres.start)
    with psycopg.connect(url, autocommit=True) as connection:  # as if each had been lost and made again
        connection.execute("UPDATE posthouse_log.topics SET name = name || '-' ")
        connection.execute("UPDATE posthouse_log.topics SET name = CASE name WHEN 'a-' THEN 'b' ELSE 'a' END")
        connection.execute("DELETE FROM posthouse_log.frames")
    publisher._database.share.expire()  # new connections, as a pool makes them by itself
    await without_outage(lambda: publisher.publish([Frame(topic="a", id="2", key="k", body=b"")]))
    with psycopg.connect(url, autocommit=True) as connection:
        names = connection.execute(
            "SELECT t.name FROM posthouse_log.frames f JOIN posthouse_log.topics t ON t.id = f.topic"
        ).fetchall()
    assert names == [("a",)]
    await publisher.aclose()


async def test_retention_deletes_nothing_of_another_server_that_has_not_decided_it(
    broker: PostgresBroker, postgres_url: str
) -> None:
    """Deciding and deleting are two statements; a failover may come between."""
    await broker.publish([frame("k", n) for n in range(5)])
    async with connected(postgres_url) as connection:
        place = await connection.fetchrow("SELECT topic, partition, stored FROM posthouse_log.heads WHERE stored = 5")
    assert place is not None
    ((deleted,),) = await broker._database.fetch("pruning", schema.DELETE, *place)
    assert deleted == 0, "no head of this server says that these may go"
    assert len(await collect(await broker.subscribe("g", ["t"]), 5)) == 5


# Behind a pooler


@contextlib.contextmanager
def publishing(url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which publishes for as long as it may."""
    command = [sys.executable, "-m", "tests.integration.broker_member", "publisher", "pooled postgres", url, "t"]
    with subprocess.Popen([*command, str(folder / "report")]) as process:
        try:
            yield process
        finally:
            process.kill()


async def stop_it_inside_a_transaction(
    process: subprocess.Popen[bytes], connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """Stop the process where it has locks: it has stored frames and not committed yet."""
    inside = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction' AND query LIKE '%publish(%'"""
    async with asyncio.timeout(DEADLINE):
        while True:
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.01)  # what it had sent arrives
            if await connection.fetchval(inside):
                return
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(random.random() / 100)


async def test_a_process_that_stands_still_behind_a_pooler_keeps_nobody_from_publishing_and_joining(
    broker: PostgresBroker, postgres_url: str, pgbouncer: PostgresServer, tmp_path: Path
) -> None:
    """A pooler's transactions are several messages each, and a process may stop between any two."""
    pooled = urlsplit(postgres_url)._replace(netloc=urlsplit(pgbouncer.url).netloc).geturl()
    loop = asyncio.get_running_loop()
    async with connected(postgres_url) as connection:
        with publishing(pooled, tmp_path) as process:
            await stop_it_inside_a_transaction(process, connection)
            began = loop.time()
            assert all(verdict.accepted for verdict in await broker.publish([frame(f"k{n}", 1) for n in range(5)]))
            stream = await broker.subscribe("g", ["t"])
            got: set[str] = set()
            async with asyncio.timeout(DEADLINE):
                while not got >= {f"k{n}-1" for n in range(5)}:
                    batch = await stream.receive(1000, 1.0)
                    await stream.ack(batch)
                    got |= {delivery.frame.id for delivery in batch}
            assert loop.time() - began < 7.0


# Partial failures and background work


async def test_a_subscribe_that_fails_half_way_leaves_nothing(broker: PostgresBroker, postgres_url: str) -> None:
    async with connected(postgres_url) as connection:
        await connection.execute("ALTER FUNCTION posthouse_log.settle RENAME TO hidden")
        for _ in range(3):
            with pytest.raises(BrokerError):
                await broker.subscribe("g", ["t"])
        assert await connection.fetchval("SELECT count(*) FROM posthouse_log.members") == 0
        assert broker._streams == set()
        assert [task for task in asyncio.all_tasks() if "member of g" in task.get_name()] == []
        await connection.execute("ALTER FUNCTION posthouse_log.hidden RENAME TO settle")
    await broker.publish([frame("k", 1)])
    assert len(await collect(await broker.subscribe("g", ["t"]), 1)) == 1


async def test_the_end_of_a_members_background_work_is_told(postgres_url: str) -> None:
    clock = ManualClock(CLOCK.now())
    broker = PostgresBroker(postgres_url, clock=clock, lease=1.0)
    await broker.ensure(Topology(topics=["t"]))
    stream = await broker.subscribe("g", ["t"])

    async def broken() -> None:
        raise RuntimeError("nobody expected this")

    stream._on_beat = broken
    async with asyncio.timeout(DEADLINE):
        while stream._beating is not None and not stream._beating.done():
            clock.advance(1.0)
            await asyncio.sleep(0.01)
    with pytest.raises(BrokerError, match="subscribe again"):
        await stream.receive(1, 0)
    with pytest.raises(BrokerError, match="subscribe again"):
        await stream.ack([])
    await broker.aclose()


# Waking up


@pytest.fixture
def _rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((database, "POLL"), (database, "RARE_POLL"), (log_module, "FIRST_POLL")):
        monkeypatch.setattr(module, name, DEADLINE)


@pytest.mark.usefixtures("_rare_looks")
async def test_a_hint_from_another_process_wakes_a_reader_long_before_it_would_look(
    broker: PostgresBroker, postgres_url: str
) -> None:
    other = PostgresBroker(postgres_url, clock=CLOCK)
    stream = await broker.subscribe("g", ["t"])
    for number in range(5):
        waiting = asyncio.create_task(stream.receive(10, DEADLINE))
        await asyncio.sleep(0.05)
        await other.publish([frame("k", number)])
        async with asyncio.timeout(DEADLINE / 3):
            await stream.ack(await waiting)
    await other.aclose()


@pytest.mark.usefixtures("_rare_looks")
async def test_a_hint_from_another_machine_wakes_a_reader_too(
    broker: PostgresBroker, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose notifier lies in another folder."""
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        other = PostgresBroker(postgres_url, clock=CLOCK)
    stream = await broker.subscribe("g", ["t"])
    waiting = asyncio.create_task(stream.receive(10, DEADLINE))
    async with asyncio.timeout(DEADLINE / 3):
        await broker._database.notifier.tried()
        await other.publish([frame("k", 1)])
        await stream.ack(await waiting)
    await other.aclose()


async def test_without_hints_a_reader_looks_by_itself(postgres_url: str) -> None:
    """As behind a pooler, where nobody can listen."""
    reader, writer = (PostgresBroker(postgres_url, clock=CLOCK, pooled=True) for _ in range(2))
    await reader.ensure(Topology(topics=["t"]))
    stream = await reader.subscribe("g", ["t"])
    waiting = asyncio.create_task(stream.receive(10, DEADLINE))
    await writer.publish([frame("k", 1)])
    async with asyncio.timeout(DEADLINE / 3):
        assert len(await waiting) == 1
    await reader.aclose()
    await writer.aclose()


# The whole way


async def test_services_on_sqlite_send_their_events_through_postgresql(postgres_url: str, tmp_path: Path) -> None:
    orders = Service("orders", namespace="shop")
    App(orders, store=f"sqlite:///{tmp_path}/orders.db", broker=postgres_url)
    billing = Service("billing", namespace="shop")
    App(billing, store=f"sqlite:///{tmp_path}/billing.db", broker=postgres_url)

    @orders.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str
        step: int

    @billing.setup
    async def tables(tx: Tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS invoice (order_id TEXT, step INTEGER)")

    @billing.on(OrderPlaced)
    async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
        await tx.execute("INSERT INTO invoice VALUES (?, ?)", (event.data.order_id, event.data.step))

    async def invoices() -> list[tuple[object, ...]]:
        async with app_of(billing).store.begin() as tx:
            return [tuple(row) for row in await tx.execute("SELECT order_id, step FROM invoice ORDER BY rowid")]

    async with orders.running(), billing.running():
        for step in range(10):
            for order in range(5):
                async with orders.transaction("t1") as tx:
                    tx.publish(OrderPlaced(order_id=f"o{order}", step=step))
        async with asyncio.timeout(DEADLINE):
            while len(await invoices()) < 50:  # noqa: ASYNC110 - the handler commits in the service, not here
                await asyncio.sleep(0.02)
        applied = await invoices()
    assert len(applied) == 50
    for order in range(5):
        assert [step for name, step in applied if name == f"o{order}"] == list(range(10))


@contextlib.contextmanager
def as_role(url: str, name: str) -> Iterator[tuple[str, psycopg.Connection]]:
    """The URL of a role that may create nothing, and a connection of the owner's."""
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN")
        try:
            parts = urlsplit(url)
            yield parts._replace(netloc=f"{name}@{parts.netloc.rpartition('@')[2]}").geturl(), owner
        finally:
            owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_a_role_that_may_make_no_log_is_told_so_at_once_and_may_use_one(postgres_url: str) -> None:
    topology = Topology(topics=["t"], groups={"g": ["t"]})
    with as_role(postgres_url, "log_user") as (url, owner):
        refused = PostgresBroker(url, clock=CLOCK)
        with pytest.raises(ConfigurationError, match=r"permission denied for database .* `posthouse topology apply`"):
            await refused.ensure(topology)
        (check,) = [check for check in await refused.checks() if check.name == "log"]
        assert check.judgement == "fail"
        assert "log_user may not make it" in check.found
        made = PostgresBroker(postgres_url, clock=CLOCK)
        await made.ensure(Topology(topics=["other"]))
        with pytest.raises(ConfigurationError, match="permission denied for schema posthouse_log"):
            await refused.ensure(topology)
        for statement in check.fix.partition("rights: ")[2].split("; "):
            owner.execute(statement.replace("…", "log_user"))
        await refused.ensure(topology)
        assert [verdict.accepted for verdict in await refused.publish([frame("k", 1)])] == [True]
        stream = await refused.subscribe("g", ["t"])
        await collect(stream, 1)
        await stream.aclose()
        assert await refused.prune() == 0
        assert [check.judgement for check in await refused.checks() if check.name == "cursors"] == ["ok"]
        await refused.aclose()
        await made.aclose()


async def test_a_role_with_the_rights_of_the_page_runs_a_service_and_creates_nothing(postgres_url: str) -> None:
    def shop(url: str) -> App:
        service = Service("shop")
        service.event("order.placed.v1", key="order_id")(Placed)
        service.on(Placed)(handled)
        return App(service, store=url, broker=url)

    got = asyncio.Event()

    async def handled(event: Event[Placed]) -> None:
        got.set()

    with as_role(postgres_url, "service_user") as (url, owner):
        owned = shop(postgres_url)
        await owned.store.upgrade(post=True)
        await owned.broker.ensure(owned.opened.topology())
        await owned.aclose()
        owner.execute(GRANTS.read_text(encoding="utf-8").replace(" web", " service_user"))
        app = shop(url)
        async with app.running(), app.services[0].transaction("t1") as tx:
            tx.publish(Placed(order_id="o1"))
        async with app.running(), asyncio.timeout(DEADLINE):
            await got.wait()
        await app.aclose()
