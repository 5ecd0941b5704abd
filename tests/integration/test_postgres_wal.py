"""The relay that follows PostgreSQL's log: what it brings, in which order, and what it does when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from posthouse import App, Service
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from posthouse.seam.frames import frame_of
from posthouse.sending import RelaySettings
from posthouse.store import WalReader, shard_of
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing.store_contract.samples import TOPIC, row
from posthouse.testing.store_contract.steps import add, drain, failing
from tests.integration.wal_relay import (
    Sink,
    assert_in_order,
    committed_by,
    following,
    number_of,
    numbers_of,
    relaying,
    settled,
)
from tests.kit.servers.logical import logical_server, logical_url
from tests.kit.servers.postgres import PostgresServer, session
from tests.kit.waiting import eventually

__all__ = ["logical_server", "logical_url"]

BINARY = {"ce-specversion": "1.0", "ce-id": "1"}
SLOTS = "SELECT slot_name, active_pid, restart_lsn FROM pg_replication_slots WHERE database = current_database()"


@pytest_asyncio.fixture
async def store(logical_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(logical_url)
    await store.upgrade()
    yield store
    await store.aclose()


@pytest_asyncio.fixture
async def other(logical_url: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    other = PostgresStore(logical_url)
    yield other
    await other.aclose()


def inside(tail: WalReader) -> Any:
    """What only the tail knows."""
    return tail._now  # type: ignore[attr-defined]


@pytest.fixture
def sink() -> Sink:
    return Sink()


async def run(url: str, sql: str, *parameters: object) -> Any:
    async with session(url) as connection:
        return await connection.fetch(sql, *parameters)


# What it brings


async def test_a_backlog_is_polled_and_what_comes_then_is_followed(store: PostgresStore, sink: Sink) -> None:
    await add(store, *(row(f"k{number % 7}") for number in range(50)))
    async with relaying(store, sink) as tail:
        await eventually(lambda: len(sink.frames) == 50)
        await following(tail)
        for number in range(50):
            await add(store, row(f"k{number % 7}"))
        await eventually(lambda: len(sink.frames) == 100)
        assert (tail.mode, tail.why) == ("wal", "")
        assert await settled(store) == {TOPIC: 100}
    assert_in_order(sink.numbers(), committed_by(f"k{number % 7}" for number in [*range(50)] * 2))
    assert sink.repeats == 0
    assert await drain(store) == [], "the cursors have passed everything"


async def test_rows_are_the_same_as_polls_bring_them(store: PostgresStore, sink: Sink, logical_url: str) -> None:
    rows = [
        row("k", body=random.Random(1).randbytes(1_000_000), headers={**BINARY, "ce-x": "Zürich \U0001f40e"}),
        row(None, body=b"", headers={}),
        row("ключ", tenant="t\\2", headers=BINARY),
        row("k", body=b"{}", numbered=False),
    ]
    async with relaying(store, sink) as tail:
        await following(tail)
        await add(store, *rows)
        await eventually(lambda: len(sink.frames) == 4)
        assert tail.mode == "wal"
        await settled(store)
    await run(logical_url, "UPDATE posthouse.shard SET s1 = '1:1:'")
    polled = [frame_of(found) for found in await drain(store)]
    assert {frame.id: frame for frame in sink.frames} == {frame.id: frame for frame in polled}


async def test_rows_come_while_no_table_of_cursors_can_be_read(
    store: PostgresStore, sink: Sink, logical_url: str
) -> None:
    async with relaying(store, sink, RelaySettings(lease=60.0)) as tail, session(logical_url) as connection:
        await following(tail)
        async with connection.transaction():
            await connection.execute("LOCK TABLE posthouse.shard IN ACCESS EXCLUSIVE MODE")
            await add(store, row("k"), row("l"))
            await eventually(lambda: len(sink.frames) == 2)
        await settled(store)


async def test_what_was_rolled_back_is_never_seen(store: PostgresStore, sink: Sink, logical_url: str) -> None:
    async with relaying(store, sink) as tail, session(logical_url) as connection:
        await following(tail)
        async with failing(store) as tx:
            await store.outbox.append(tx, [row("k", event_id="never")])
        async with connection.transaction():
            joined = store.join(connection)
            for number in range(70):
                with contextlib.suppress(ZeroDivisionError):
                    async with connection.transaction():
                        await store.outbox.append(joined, [row("k", event_id=f"s{number}")])
                        if number % 2:
                            raise ZeroDivisionError
        await connection.execute("BEGIN")
        await store.outbox.append(store.join(connection), [row("p", event_id="prepared")])
        await connection.execute("PREPARE TRANSACTION 'kept'")
        await connection.execute("BEGIN")
        await store.outbox.append(store.join(connection), [row("q", event_id="never either")])
        await connection.execute("PREPARE TRANSACTION 'dropped'")
        await eventually(lambda: len(sink.frames) == 35)
        await add(store, row("r", event_id="meanwhile"))
        await eventually(lambda: len(sink.frames) == 36)
        await connection.execute("COMMIT PREPARED 'kept'")
        await connection.execute("ROLLBACK PREPARED 'dropped'")
        await eventually(lambda: len(sink.frames) == 37)
        assert tail.mode == "wal"
        assert await settled(store) == {TOPIC: 37}
    assert sink.ids == [*(f"s{number}" for number in range(0, 70, 2)), "meanwhile", "prepared"]


async def test_a_transaction_larger_than_memory_allows_at_once_comes_whole(store: PostgresStore, sink: Sink) -> None:
    async with relaying(store, sink) as tail:
        await following(tail)
        async with store.begin() as tx:
            for part in range(12):
                await store.outbox.append(
                    tx, [row(f"k{number % 9}") for number in range(1000 * part, 1000 * part + 1000)]
                )
        await eventually(lambda: len(sink.frames) == 12_000)
        assert tail.mode == "wal"
        assert await settled(store) == {TOPIC: 12_000}
    assert_in_order(sink.numbers(), committed_by(f"k{number % 9}" for number in range(12_000)))
    assert sink.repeats == 0


async def test_writers_of_every_kind_lose_and_invert_nothing(
    store: PostgresStore, sink: Sink, logical_url: str
) -> None:
    """Slow and quick ones, rollbacks, savepoints, prepared ones, and one that is open all the time."""
    chance, keys, committed = random.Random(11), [f"k{number}" for number in range(12)], list[str]()

    async def write(worker: int) -> None:
        async with session(logical_url) as connection:
            for number in range(30):
                said = sorted(chance.sample(keys, 2))
                joined = store.join(connection)
                await connection.execute("BEGIN")
                await store.outbox.append(joined, [row(key) for key in said])
                if chance.random() < 0.3:
                    await connection.execute("SAVEPOINT one")
                    await store.outbox.append(joined, [row(said[-1])])
                    await connection.execute("ROLLBACK TO one")
                await asyncio.sleep(chance.random() * (0.03 if worker < 4 else 0.002))
                end = chance.choices(["COMMIT", "ROLLBACK", "PREPARE"], [8, 1, 1])[0]
                if end == "PREPARE":
                    await connection.execute(f"PREPARE TRANSACTION '{worker} {number}'")
                    await asyncio.sleep(chance.random() * 0.05)
                    await connection.execute(f"COMMIT PREPARED '{worker} {number}'")
                else:
                    await connection.execute(end)
                if end != "ROLLBACK":
                    committed.extend(said)

    async with relaying(store, sink) as tail, session(logical_url) as idle:
        await following(tail)
        async with idle.transaction():
            await store.outbox.append(store.join(idle), [row("open all the time")])
            await asyncio.gather(*(write(worker) for worker in range(8)))
            await eventually(lambda: len(sink.frames) >= len(committed))
        await eventually(lambda: len(sink.frames) >= len(committed) + 1)
        assert tail.mode == "wal"
        await settled(store)
    assert len(committed) > 350
    assert_in_order(sink.numbers(), committed_by([*committed, "open all the time"]))
    assert sink.repeats == 0


# From polls to the log and back


async def test_a_writer_that_was_open_before_the_slot_delays_nobody(store: PostgresStore, sink: Sink) -> None:
    async with relaying(store, sink) as tail:
        async with store.begin() as slow:
            await store.outbox.append(slow, [row("slow", event_id="slow")])
            await eventually(lambda: "open transactions" in tail.why)
            await add(store, row("quick", event_id="quick"))
            await eventually(lambda: sink.ids == ["quick"])
            assert tail.mode == "poll"
        await eventually(lambda: sink.ids == ["quick", "slow"])
        await following(tail)
    assert sink.repeats == 0


async def test_a_commit_that_is_in_the_log_but_not_yet_visible_is_waited_for(
    store: PostgresStore, other: PostgresStore, sink: Sink, logical_url: str
) -> None:
    """It is written before the slot was ready, so that the stream does not bring it, and no poll sees it: it waits for a
    standby. Were the log trusted now, the cursors would pass it."""
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' AND transactionid::text = $1"
    name = logical_url.rpartition("/")[2]
    async with session(logical_url) as connection:
        await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = local')
    patient = PostgresStore(logical_url)
    async with session(logical_url) as a, session(logical_url) as b, session(logical_url) as late:

        async def awaited(xid: str) -> bool:
            return bool(await run(logical_url, waits, xid))

        async with relaying(patient, sink) as tail:
            await a.execute("BEGIN")
            first = await a.fetchval("SELECT pg_current_xact_id()::text")
            await eventually(partial(awaited, first))  # the slot is being made
            await b.execute("BEGIN")
            second = await b.fetchval("SELECT pg_current_xact_id()::text")
            await a.execute("COMMIT")
            await eventually(partial(awaited, second))  # it was ready but for those who write just now
            async with standbys_that_never_answer(logical_url):
                await late.execute("SET synchronous_commit = on")
                transaction = late.transaction()
                await transaction.start()
                await patient.outbox.append(patient.join(late), [row("late", event_id="late")])
                committing = asyncio.create_task(transaction.commit())
                await eventually(partial(waits_for_a_standby, logical_url))
                await b.execute("COMMIT")
                await eventually(lambda: "has not ended" in tail.why)
                await add(patient, row("k", event_id="meanwhile"))
                await eventually(lambda: sink.ids == ["meanwhile"])
                assert tail.mode == "poll"
            await committing
            await eventually(lambda: sink.ids == ["meanwhile", "late"])
            await following(tail)
    await patient.aclose()


async def waits_for_a_standby(url: str) -> bool:
    return bool(await run(url, "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))


async def test_a_slot_that_is_cut_off_is_made_again(store: PostgresStore, sink: Sink, logical_url: str) -> None:
    async with relaying(store, sink) as tail:
        await following(tail)
        committed = []
        for _ in range(3):
            for number in range(40):
                committed.append(f"k{number % 5}")
                await add(store, row(committed[-1]))
                if number == 20:
                    [slot] = await run(logical_url, SLOTS)
                    await run(logical_url, "SELECT pg_terminate_backend($1)", slot["active_pid"])
            await eventually(lambda: tail.mode == "poll" or len(set(sink.ids)) == len(committed))
            await following(tail)
        await eventually(lambda: len(set(sink.ids)) == 120)
        assert await settled(store) == {TOPIC: 120}
    assert_in_order(sink.numbers(), committed_by(committed))
    assert sink.repeats <= 3 * 21, "no more than came since the cursors moved last"
    await eventually(partial(no_slots, logical_url))  # one goes with its session, a moment after that was closed


async def no_slots(url: str) -> bool:
    """Whether nothing is left to hold back the log."""
    return not await run(url, SLOTS)


async def test_a_publication_that_was_changed_is_noticed_before_a_row_is_missed(
    store: PostgresStore, sink: Sink, logical_url: str
) -> None:
    """The server goes on streaming, without the rows: the cursors must not follow."""
    async with relaying(store, sink) as tail:
        await following(tail)
        await add(store, row("k"))
        await run(logical_url, "ALTER PUBLICATION posthouse_outbox SET (publish = 'delete')")
        for _ in range(20):
            await add(store, row("k"))
        await eventually(lambda: len(set(sink.ids)) == 21)
        await following(tail)
        await run(logical_url, "DROP PUBLICATION posthouse_outbox")
        for _ in range(20):
            await add(store, row("k"))
        await eventually(lambda: len(set(sink.ids)) == 41)
        await following(tail)
        assert await settled(store) == {TOPIC: 41}
    assert_in_order(sink.numbers(), {"t1:k": 41})


async def test_a_broker_that_is_away_makes_the_slot_let_go_of_the_log(
    store: PostgresStore, sink: Sink, logical_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.stores.postgres.wal.receiving.LOOK", 0.2)
    monkeypatch.setattr("posthouse.stores.postgres.wal.unsent.MOST_ROWS", 5)
    store._wal_keep = 2_000_000
    async with relaying(store, sink, RelaySettings(last_delay=0.2)) as tail:
        await following(tail)
        sink.away = True
        await add(store, *(row("k") for _ in range(10)))
        await run(logical_url, "CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
        await eventually(lambda: "wal_keep" in tail.why)
        for _ in range(200):
            if not (slots := await run(logical_url, SLOTS)):
                break
            await asyncio.sleep(0.05)
        assert slots == []
        sink.away = False
        await eventually(lambda: len(sink.frames) >= 10)
        await following(tail)
    assert_in_order(sink.numbers(), {"t1:k": 10})


async def test_the_cursors_follow_also_where_the_server_writes_nothing_more(
    store: PostgresStore, sink: Sink, logical_url: str
) -> None:
    """Behind a switch of files the log seems to go on where nothing was written yet."""
    async with relaying(store, sink, RelaySettings(lease=90.0)) as tail:  # a lease would write something
        await following(tail)
        sink.then = partial(run, logical_url, "SELECT pg_switch_wal()")
        await add(store, row("k"))
        assert await settled(store, within=10) == {TOPIC: 1}
        assert tail.mode == "wal"


async def test_an_idle_relay_writes_nothing(store: PostgresStore, sink: Sink, logical_url: str) -> None:
    cursors = "SELECT number, xmin::text, s1::text FROM posthouse.shard ORDER BY number"
    leases = "SELECT max(until) FROM posthouse.shard"
    async with relaying(store, sink, RelaySettings(lease=60.0)) as tail:
        await following(tail)
        await add(store, row("k"))
        await settled(store)
        await eventually(lambda: not inside(tail).untidy)
        before = await run(logical_url, cursors), await run(logical_url, leases)
        await asyncio.sleep(2.5)  # long enough for two moves, if there were any
        assert (await run(logical_url, cursors), await run(logical_url, leases)) == before


async def test_the_log_that_others_write_is_not_held_back(
    store: PostgresStore, sink: Sink, logical_server: PostgresServer, logical_url: str
) -> None:
    retained = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn)::bigint FROM pg_replication_slots"
    async with relaying(store, sink) as tail:
        await following(tail)
        with logical_server.database() as elsewhere:
            async with session(elsewhere) as connection:
                await connection.execute("CREATE TABLE filler (t text)")
                for _ in range(10):
                    await connection.execute(
                        "INSERT INTO filler SELECT repeat(md5(n::text), 40) FROM generate_series(1, 2500) n"
                    )
                assert (await run(logical_url, retained))[0][0] > 2_000_000, "there was something to hold back"

                async def small() -> bool:
                    await connection.execute("CHECKPOINT")
                    return bool((await run(logical_url, retained))[0][0] < 500_000)

                await eventually(small, within=30)
        assert tail.mode == "wal"


# What the broker refuses


async def test_a_refused_key_waits_and_nothing_else_does(store: PostgresStore, sink: Sink) -> None:
    sink.refuses = lambda frame: frame.key == "t1:bad" and number_of(frame) == 2
    async with relaying(store, sink) as tail:
        await following(tail)
        for _ in range(4):
            await add(store, row("bad"), row("good"))
        await eventually(lambda: sink.numbers().get("t1:good") == [1, 2, 3, 4])
        await until_stuck(store, 3)
        await add(store, row("bad"), row("good"))
        await until_stuck(store, 4)
        assert sink.numbers() == {"t1:bad": [1], "t1:good": [1, 2, 3, 4, 5]}
        sink.refuses = lambda _: False
        await eventually(lambda: len(sink.frames) == 10)
        await add(store, row("bad"))
        await eventually(lambda: len(sink.frames) == 11)
        assert tail.mode == "wal"
        assert await settled(store) == {TOPIC: 11}
    assert_in_order(sink.numbers(), committed_by(["bad"] * 6 + ["good"] * 5))
    assert sink.repeats == 0


async def test_a_key_that_was_refused_before_waits_still(
    store: PostgresStore, other: PostgresStore, sink: Sink
) -> None:
    sink.refuses, sink.final = lambda frame: frame.key == "t1:bad", True
    async with relaying(store, sink) as tail:
        await following(tail)
        await add(store, row("bad"))
        await until_stuck(store, 1)
    sink.refuses = lambda _: False
    async with relaying(other, sink) as tail:
        await following(tail)
        await add(store, row("bad"), row("good"))
        await until_stuck(store, 2)
        assert sink.numbers() == {"t1:good": [1]}
        [first, _] = await store.outbox.stuck()
        await other.outbox.retry_stuck(first.row.id)
        await eventually(lambda: len(sink.frames) == 3)
        assert tail.mode == "wal"
    assert sink.numbers()["t1:bad"] == [1, 2]


async def test_while_the_broker_is_away_nothing_is_passed_over(store: PostgresStore, sink: Sink) -> None:
    async with relaying(store, sink) as tail:
        await following(tail)
        sink.away = True
        for _ in range(10):
            await add(store, row("k"))
        await eventually(lambda: len(inside(tail).unsent) == 10)  # they have come, and wait
        assert (await store.counts()).unsent == {TOPIC: 10}
        sink.away = False
        await eventually(lambda: len(sink.frames) == 10)
        assert tail.mode == "wal"
    assert_in_order(sink.numbers(), {"t1:k": 10})


async def until_stuck(store: PostgresStore, number: int) -> None:
    async def as_many() -> bool:
        return len(await store.outbox.stuck()) == number

    await eventually(as_many)


# Several relays


async def test_what_was_said_in_a_shard_before_it_was_ours_is_not_passed_over(
    store: PostgresStore, other: PostgresStore, sink: Sink
) -> None:
    """The stream has brought it, and it was thrown away, because it was another relay's to publish."""
    await other.outbox.lease("other", 60)
    async with relaying(store, sink, RelaySettings(lease=2.0, idle=0.1)) as tail:
        await eventually(partial(gave_up_half, other))
        await following(tail)
        for number in range(40):
            await add(store, row(f"k{number}", event_id=f"{number}"))
        theirs = {shard.number for shard in await other.outbox.lease("other", 60)}
        ours = {f"{number}" for number in range(40) if shard_of("t1", f"k{number}", 16) not in theirs}
        await eventually(lambda: set(sink.ids) == ours)
        assert 5 < len(ours) < 35
        await other.outbox.release("other")
        await eventually(lambda: len(set(sink.ids)) == 40)
        await following(tail)
        assert await settled(store) == {TOPIC: 40}


async def gave_up_half(store: PostgresStore) -> bool:
    return len(await store.outbox.lease("other", 60)) == 8


async def test_shards_that_are_taken_over_begin_with_polls(
    store: PostgresStore, other: PostgresStore, logical_url: str
) -> None:
    one, two, committed, both = Sink(), Sink(), list[str](), list[tuple[str, int]]()
    one.heard = two.heard = lambda frame: both.append((str(frame.key), number_of(frame)))
    settings = RelaySettings(lease=2.0, idle=0.3)

    async def write(number: int) -> None:
        for turn in range(number):
            committed.append(f"k{turn % 40}")
            await add(store, row(committed[-1]))

    async with relaying(store, one, settings) as first:
        await following(first)
        await write(80)
        async with relaying(other, two, settings) as second:
            await following(second)
            await write(80)
            await eventually(lambda: len(two.frames) > 0)
            await following(first)
            assert len(await run(logical_url, SLOTS)) == 2
        await write(80)
        await eventually(lambda: len({*one.ids, *two.ids}) == 240)
        await following(first)
        assert await settled(store) == {TOPIC: 240}
    assert_in_order(numbers_of(both), committed_by(committed))


# Refusals


async def test_a_server_without_a_log_to_follow_is_refused(postgres_url: str) -> None:
    async with session(postgres_url) as connection:
        if await connection.fetchval("SHOW wal_level") == "logical":
            pytest.skip("the server that was given has wal_level=logical")
    store = PostgresStore(postgres_url)
    await store.upgrade()
    with pytest.raises(ConfigurationError, match="wal_level=logical"):
        await store.wal_reader()
    await store.aclose()


async def test_sqlite_has_no_log_to_follow() -> None:
    store = SqliteStore(":memory:")
    with pytest.raises(ConfigurationError, match="--relay wal"):
        await store.wal_reader()
    await store.aclose()


async def test_a_role_that_may_not_replicate_is_told_what_it_lacks(store: PostgresStore, logical_url: str) -> None:
    await (await store.wal_reader()).aclose()
    async with session(logical_url) as connection:
        await connection.execute("DROP PUBLICATION posthouse_outbox")
        await connection.execute("DROP ROLE IF EXISTS plain")
        await connection.execute("CREATE ROLE plain LOGIN")
        await connection.execute("GRANT USAGE ON SCHEMA posthouse TO plain")
        await connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA posthouse TO plain")
    try:
        plain = PostgresStore(logical_url.replace("postgres@", "plain@"))
        with pytest.raises(ConfigurationError, match="CREATE PUBLICATION posthouse_outbox FOR TABLE"):
            await plain.wal_reader()
        await (await store.wal_reader()).aclose()
        with pytest.raises(ConfigurationError, match="REPLICATION"):
            await plain.wal_reader()
        await plain.aclose()
    finally:
        async with session(logical_url) as connection:
            await connection.execute("DROP OWNED BY plain")
            await connection.execute("DROP ROLE plain")


async def test_commits_that_wait_for_standbys_are_refused_where_the_log_does_not(
    store: PostgresStore, logical_url: str
) -> None:
    async with standbys_that_never_answer(logical_url):
        with pytest.raises(ConfigurationError, match="synchronized_standby_slots"):
            await store.wal_reader()


@contextlib.asynccontextmanager
async def standbys_that_never_answer(url: str) -> AsyncIterator[None]:
    """Commits wait, unless they are local."""
    async with session(url) as connection:
        await connection.execute("SET synchronous_commit = local")
        try:
            await connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'elsewhere'")
            await connection.execute("SELECT pg_reload_conf()")
            await eventually(partial(shows, connection, "elsewhere"))
            yield
        finally:
            await connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            await connection.execute("SELECT pg_reload_conf()")
            await eventually(partial(shows, connection, ""))


async def shows(connection: Any, standbys: str) -> bool:
    return bool(await connection.fetchval("SHOW synchronous_standby_names") == standbys)


# What people see


async def test_a_doctor_is_told_where_rows_come_from_and_why(
    store: PostgresStore, sink: Sink, logical_url: str, other: PostgresStore
) -> None:
    async def found(words: str, judgement: str) -> bool:
        checks = [check for check in await other.checks() if check.name == "rows of relays"]
        return any(words in check.found and check.judgement == judgement for check in checks)

    async with relaying(store, sink, RelaySettings(lease=1.0, idle=0.1)) as tail:
        await following(tail)
        await eventually(partial(found, "1 from the log", "ok"))
        async with other.begin() as slow:
            await other.outbox.append(slow, [row("slow")])
            [slot] = await run(logical_url, SLOTS)
            await run(logical_url, "SELECT pg_terminate_backend($1)", slot["active_pid"])
            await eventually(partial(found, "1 by polls, because", "warn"))
        await following(tail)
        await eventually(partial(found, "1 from the log", "ok"))


# The front door


async def test_a_service_runs_its_relay_on_the_log(logical_url: str) -> None:
    shop = Service("shop")
    App(shop, store=logical_url, broker=(sink := Sink()))

    @shop.event("order.placed.v1", key="order")
    @dataclasses.dataclass
    class Placed:
        order: str

    await app_of(shop).store.upgrade()
    async with shop.running(only=["relay"], relay="wal"):
        async with shop.transaction("t1") as tx:
            tx.publish(Placed(order="o1"))
        await eventually(lambda: len(sink.frames) == 1)
        await eventually(partial(has_slot, logical_url))
    assert not await has_slot(logical_url)


async def has_slot(url: str) -> bool:
    return bool(await run(url, SLOTS))
