"""The ring of partitions: what was sent is truncated, what is needed never, whoever writes, sends, stalls or dies meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from posthouse.errors import StoreUnavailable
from posthouse.store import OutboxRow, OutboxShard
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.outbox import PARTITION_BYTES
from posthouse.testing.store_contract.samples import TOPIC, row, stuck
from posthouse.testing.store_contract.steps import add, drain
from tests.kit.long import LONG
from tests.kit.servers.postgres import session
from tests.kit.waiting import eventually

RING = (0, 1, 2, 3)


@pytest_asyncio.fixture
async def keeper(postgres_url: str, store: PostgresStore) -> AsyncIterator[Keeper]:
    async with session(postgres_url) as connection:
        yield Keeper(connection)


class Keeper:
    """Turns and empties the ring at will, where housekeeping would wait until a partition is large."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def turn(self) -> int:
        """Let writers go on; the partition that they have now."""
        await self.connection.fetchval("SELECT posthouse.rotate(1, 1, 0)")
        return await self.written()

    async def written(self) -> int:
        return int(await self.connection.fetchval("SELECT slot FROM posthouse.meta"))

    async def empty(self, partition: int) -> bool:
        return bool(await self.connection.fetchval("SELECT posthouse.empty_partition($1)", partition))

    async def rows(self) -> dict[int, int]:
        """How many rows each partition has; the kept ones are under -1."""
        found = await self.connection.fetch("SELECT slot, count(*) FROM posthouse.outbox GROUP BY slot")
        return dict(found)

    async def size(self) -> int:
        """Bytes of all partitions, with indexes."""
        return int(
            await self.connection.fetchval(
                "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'posthouse.outbox'::regclass"
            )
        )

    async def files(self) -> dict[str, int]:
        """The file of each partition: another one after a truncation."""
        found = await self.connection.fetch(
            "SELECT relname, relfilenode FROM pg_class JOIN pg_inherits ON oid = inhrelid "
            "WHERE inhparent = 'posthouse.outbox'::regclass"
        )
        return dict(found)


def ids(rows: Sequence[OutboxRow]) -> list[str]:
    return [found.event_id for found in rows]


# Housekeeping


async def test_a_large_leaf_that_was_sent_gives_its_disk_back(store: PostgresStore, keeper: Keeper) -> None:
    began, body = await keeper.size(), os.urandom(1024)
    number = PARTITION_BYTES // 1024
    for first in range(0, number, 2_000):
        await add(store, *(row(f"k{n % 50}", body=body) for n in range(first, min(first + 2_000, number))))
    full = await keeper.size()
    assert full > PARTITION_BYTES
    await store.outbox.purge(5_000)
    assert await keeper.rows() == {0: number}, "nothing was sent yet"
    shards = await store.outbox.lease("a", 60)
    sent = 0
    while (poll := await store.outbox.poll(shards, 5_000)).rows:
        assert await store.outbox.settle("a", poll, [])
        sent += len(poll.rows)
    assert sent == number
    assert await store.outbox.purge(5_000) == 0, "a partition is emptied at one stroke"
    assert await keeper.rows() == {}
    assert await keeper.size() == began
    assert (await store.counts()).committed == {TOPIC: number}


async def test_a_small_leaf_is_swept_row_by_row_and_stays(store: PostgresStore, keeper: Keeper) -> None:
    before = await keeper.files()
    await add(store, *(row(f"k{number}") for number in range(20)))
    await drain(store)
    assert [await store.outbox.purge(15), await store.outbox.purge(15)] == [15, 5]
    assert await keeper.files() == before
    assert await keeper.written() == 0


async def test_a_leaf_that_is_neither_small_nor_large_is_left_when_it_is_old(
    store: PostgresStore, keeper: Keeper
) -> None:
    await add(store, *(row(f"k{n}", body=bytes(1024)) for n in range(2_000)))
    await drain(store)
    assert await store.outbox.purge(5_000) == 0
    assert await keeper.written() == 0
    await keeper.connection.execute("UPDATE posthouse.meta SET slot_since = now() - interval '1 hour'")
    await store.outbox.purge(5_000)
    assert (await keeper.written(), await keeper.rows()) == (1, {})


async def test_an_old_empty_outbox_is_left_alone(store: PostgresStore, keeper: Keeper) -> None:
    await keeper.connection.execute("UPDATE posthouse.meta SET slot_since = now() - interval '1 hour'")
    before = await keeper.files()
    await store.outbox.purge(100)
    assert (await keeper.written(), await keeper.files()) == (0, before)


async def test_housekeeping_works_where_transactions_are_repeatable_reads_by_default(
    postgres_url: str, store: PostgresStore, keeper: Keeper
) -> None:
    name = await keeper.connection.fetchval("SELECT current_database()")
    await keeper.connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    other = PostgresStore(postgres_url)
    await add(other, row("k"))
    await drain(other)
    assert await keeper.turn() == 1
    await other.outbox.purge(100)
    await other.aclose()
    assert await keeper.rows() == {}
    async with keeper.connection.transaction(isolation="repeatable_read"):
        with pytest.raises(asyncpg.PostgresError, match="READ COMMITTED"):
            await keeper.empty(0)


async def test_whoever_follows_is_told_that_a_leaf_was_emptied_before_it_was_read(
    store: PostgresStore, keeper: Keeper, postgres_url: str
) -> None:
    name = await keeper.connection.fetchval("SELECT current_database()")
    await keeper.connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    follower = PostgresStore(postgres_url)
    await drain(store)
    before = (await follower.outbox.tail()).position
    await add(store, row("k"))
    await drain(store)
    assert await keeper.turn() == 1
    read = await follower.outbox.tail(before)
    assert (len(read.rows), read.gone) == (1, False)
    assert await keeper.empty(0)
    assert (await follower.outbox.tail(before)).gone
    assert not (await follower.outbox.tail(read.position)).gone
    await follower.aclose()


# What keeps a partition


async def test_what_was_not_sent_keeps_its_leaf(store: PostgresStore, keeper: Keeper) -> None:
    await add(store, row("sent", event_id="sent"))
    await drain(store)
    await add(store, row("k", event_id="unsent"))
    assert await keeper.turn() == 1
    assert not await keeper.empty(0)
    assert ids(await drain(store)) == ["unsent"]
    assert await keeper.empty(0)
    assert await keeper.rows() == {}


async def test_the_leaf_that_is_written_is_never_emptied(store: PostgresStore, keeper: Keeper) -> None:
    await add(store, row("k"))
    await drain(store)
    assert not await keeper.empty(0)
    assert await keeper.rows() == {0: 1}


async def test_one_key_in_many_leaves_is_read_in_its_order_page_by_page(store: PostgresStore, keeper: Keeper) -> None:
    for partition in (0, 1, 2, 3, 3, 3):
        assert await keeper.written() == partition
        await add(store, *(row("k") for _ in range(7)), row("other"))
        await keeper.turn()
    assert set(await keeper.rows()) == set(RING)
    shards = await store.outbox.lease("a", 30)
    found: list[OutboxRow] = []
    while (poll := await store.outbox.poll(shards, 4)).rows:
        found += poll.rows
        assert await store.outbox.settle("a", poll, [])
    for key, number in (("k", 42), ("other", 6)):
        assert [one.sequence for one in found if one.key == key] == list(range(1, number + 1))


async def test_a_leaf_goes_while_the_backlog_it_was_part_of_is_still_read(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, shards=1)
    await store.upgrade()
    async with session(postgres_url) as connection:
        keeper = Keeper(connection)
        for _ in range(2):
            await add(store, *(row("k") for _ in range(10)))
            await keeper.turn()
        shards = await store.outbox.lease("a", 30)
        found: list[OutboxRow] = []
        for _ in range(3):
            assert not await keeper.empty(0), "it is needed until its last page was sent"
            poll = await store.outbox.poll(shards, 4)
            found += poll.rows
            assert await store.outbox.settle("a", poll, [])
        assert await keeper.empty(0)
        assert not await keeper.empty(1)
        found += await drain(store)
    assert [one.sequence for one in found] == list(range(1, 21))
    await store.aclose()


async def test_a_writer_that_is_open_keeps_its_own_leaf_only_through_many_turns(
    store: PostgresStore, keeper: Keeper
) -> None:
    seen = set()
    async with store.begin() as slow:
        await store.outbox.append(slow, [row("slow", event_id="slow")])
        for number in range(12):
            await add(store, row("k", event_id=f"e{number}"))
            assert ids(await drain(store)) == [f"e{number}"]
            before = await keeper.written()
            seen.add(await keeper.turn())
            assert await keeper.empty(before) == (before != 0), before
    assert seen == {1, 2, 3}, "the ring went round past the partition that is held"
    assert ids(await drain(store)) == ["slow"]
    assert await keeper.empty(0)
    assert set(await keeper.rows()) <= {await keeper.written()}


async def test_a_late_commit_keeps_its_leaf_also_in_a_shard_that_has_gone_on(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, shards=1)
    await store.upgrade()
    async with session(postgres_url) as connection:
        keeper = Keeper(connection)
        async with store.begin() as slow:
            await store.outbox.append(slow, [row("slow", event_id="slow")])
            await add(store, row("k"))
            assert len(await drain(store)) == 1
        assert await keeper.turn() == 1
        assert not await keeper.empty(0)
        assert ids(await drain(store)) == ["slow"]
        assert await keeper.empty(0)
    await store.aclose()


async def test_a_prepared_transaction_keeps_its_leaf_until_it_is_read(
    store: PostgresStore, keeper: Keeper, postgres_url: str
) -> None:
    async with session(postgres_url) as connection:
        if await connection.fetchval("SHOW max_prepared_transactions") == "0":
            pytest.skip("the server has no prepared transactions")
        await connection.execute("BEGIN")
        await store.outbox.append(store.join(connection), [row("k", event_id="prepared")])
        await connection.execute("PREPARE TRANSACTION 'p'")
        await add(store, row("other"))
        await drain(store)
        assert await keeper.turn() == 1
        assert not await keeper.empty(0)
        await connection.execute("COMMIT PREPARED 'p'")
    assert not await keeper.empty(0)
    assert ids(await drain(store)) == ["prepared"]
    assert await keeper.empty(0)


async def test_a_writer_that_has_not_seen_the_turns_is_read_all_the_same(
    store: PostgresStore, keeper: Keeper, postgres_url: str
) -> None:
    """Its snapshot is older than the truncation of the partition that it writes to."""
    await add(store, row("k"))
    await drain(store)
    async with session(postgres_url) as connection, connection.transaction(isolation="repeatable_read"):
        assert await connection.fetchval("SELECT slot FROM posthouse.meta") == 0
        assert await keeper.turn() == 1
        assert await keeper.empty(0)
        await store.outbox.append(store.join(connection), [row("late", event_id="late")])
        assert not await keeper.empty(0)
    assert await keeper.rows() == {0: 1}
    assert not await keeper.empty(0)
    assert ids(await drain(store)) == ["late"]
    assert await keeper.empty(0)


async def test_a_commit_between_the_look_and_the_lock_keeps_the_leaf(
    store: PostgresStore, keeper: Keeper, postgres_url: str
) -> None:
    await keeper.connection.execute("ALTER FUNCTION posthouse.empty_partition(integer) SET lock_timeout = '20s'")
    await add(store, row("k"))
    await drain(store)
    async with session(postgres_url) as connection, session(postgres_url) as watcher:
        writing = connection.transaction(isolation="repeatable_read")
        await writing.start()
        await store.outbox.append(store.join(connection), [row("late", event_id="late")])
        assert await keeper.turn() == 1
        emptying = asyncio.create_task(keeper.empty(0))
        await eventually(
            lambda: watcher.fetchval("SELECT true FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'")
        )
        async with asyncio.timeout(5):
            await add(store, row("meanwhile", event_id="meanwhile"))  # producers do not wait behind the one who waits
        await writing.commit()
        assert not await emptying
    assert ids(await drain(store)) == ["late", "meanwhile"]


async def test_a_reader_who_stays_delays_the_truncation_and_nobody_else(
    store: PostgresStore, keeper: Keeper, postgres_url: str
) -> None:
    """As pg_dump does, which locks every table until its end."""
    await add(store, row("k"))
    await drain(store)
    assert await keeper.turn() == 1
    async with session(postgres_url) as connection:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT count(*) FROM posthouse.outbox")
            began = time.monotonic()
            assert not await keeper.empty(0)
            assert time.monotonic() - began < 5, "it gives up soon"
            await add(store, row("k", event_id="second"))
            assert ids(await drain(store)) == ["second"]
        assert await keeper.empty(0)


async def test_rows_that_seem_to_come_from_the_future_keep_their_leaf(store: PostgresStore, keeper: Keeper) -> None:
    """As after a restore into a server whose transaction ids are lower."""
    await add(store, row("k", event_id="sent"))
    await drain(store)
    await keeper.connection.execute("UPDATE posthouse.outbox SET xid = (xid::text::bigint + 4000000000)::text::xid8")
    assert await keeper.turn() == 1
    assert not await keeper.empty(0)
    assert await store.outbox.purge(100) == 0
    assert await keeper.rows() == {0: 1}


async def test_when_no_leaf_is_empty_writers_stay_where_they_are(
    store: PostgresStore, keeper: Keeper, postgres_url: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for partition in RING[:3]:
            connection = await stack.enter_async_context(session(postgres_url))
            await stack.enter_async_context(connection.transaction())
            await store.outbox.append(store.join(connection), [row(f"held{partition}")])
            assert await keeper.turn() == partition + 1
        for number in range(3):
            await add(store, row("k", event_id=f"e{number}"))
            assert await keeper.turn() == 3
            assert ids(await drain(store)) == [f"e{number}"]
    assert {one.key for one in await drain(store)} == {"held0", "held1", "held2"}
    assert await keeper.turn() == 3
    assert [await keeper.empty(partition) for partition in RING] == [True, True, True, False]
    assert await keeper.turn() == 0


# Stuck rows


async def refused(store: PostgresStore, *keys: str) -> tuple[Sequence[OutboxShard], list[OutboxRow]]:
    """Shards of relay `a`, after the broker refused a row of each key."""
    shards = await store.outbox.lease("a", 60)
    await add(store, *(row(key, body=b"what it says") for key in keys))
    poll = await store.outbox.poll(shards, 10)
    assert await store.outbox.settle("a", poll, [stuck(one) for one in poll.rows])
    return shards, list(poll.rows)


async def test_stuck_rows_outlive_their_leaf(store: PostgresStore, keeper: Keeper) -> None:
    shards, before = await refused(store, "bad", "worse")
    await add(store, row("fine"))
    await store.outbox.settle("a", await store.outbox.poll(shards, 10), [])
    assert await keeper.turn() == 1
    assert await keeper.empty(0)
    assert await keeper.rows() == {-1: 2}
    counts = await store.counts()
    assert (counts.committed, counts.unsent, counts.stuck) == ({TOPIC: 3}, {TOPIC: 2}, 2)
    assert (await store.outbox.poll(shards, 10)).rows == [], "they were dealt with: only their own time brings them"

    await add(store, row("bad", event_id="behind"))
    poll = await store.outbox.poll(shards, 10)
    assert ids(poll.rows) == ["behind"]
    assert poll.stuck == {poll.rows[0].id}
    assert await store.outbox.settle("a", poll, [])
    due = await store.outbox.stuck_due(shards, 10)
    assert [one.row for one in due] == before
    assert await store.outbox.settle_stuck("a", shards, [one.row.id for one in due], [])
    assert [one.row.event_id for one in await store.outbox.stuck_due(shards, 10)] == ["behind"]
    assert await store.outbox.purge(100) == 2
    assert await keeper.rows() == {1: 1}


async def test_stuck_rows_are_not_copied_when_the_leaf_stays(
    store: PostgresStore, keeper: Keeper, postgres_url: str
) -> None:
    await refused(store, "bad")
    async with session(postgres_url) as connection, connection.transaction():
        await store.outbox.append(store.join(connection), [row("slow")])
        assert await keeper.turn() == 1
        assert not await keeper.empty(0)
        assert await keeper.rows() == {0: 1}


async def test_a_restore_recovers_the_rows_of_every_leaf(store: PostgresStore, keeper: Keeper) -> None:
    shards, _ = await refused(store, "bad")
    await keeper.turn()
    assert await keeper.empty(0)
    for number in range(6):
        await add(store, row("k", event_id=f"e{number}"))
        await keeper.turn()
    await keeper.connection.execute("UPDATE posthouse.outbox SET xid = (xid::text::bigint + 1000000)::text::xid8")
    await keeper.connection.execute("UPDATE posthouse.shard SET s1 = '1000000:1000000:' WHERE s1::text <> '1:1:'")
    await keeper.connection.execute("UPDATE posthouse.meta SET system = 'another'")
    with pytest.raises(StoreUnavailable, match="next lease"):
        await store.outbox.poll(shards, 10)
    found = await drain(store)
    assert [one.event_id for one in found if one.key == "k"] == [f"e{number}" for number in range(6)]
    assert [one.row.key for one in await store.outbox.stuck()] == ["bad"]


# Who may


async def test_a_role_that_may_only_add_cannot_empty_a_leaf(store: PostgresStore, keeper: Keeper) -> None:
    await add(store, row("k"))
    await drain(store)
    assert await keeper.turn() == 1
    await keeper.connection.execute(
        "CREATE ROLE ring_adder; GRANT USAGE ON SCHEMA posthouse TO ring_adder; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA posthouse TO ring_adder; GRANT INSERT ON posthouse.outbox TO ring_adder"
    )
    try:
        await keeper.connection.execute("SET SESSION AUTHORIZATION ring_adder")
        for call in ("lock_partition", "truncate_partition"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await keeper.connection.execute(f"SELECT posthouse.{call}(0)")
        assert not await keeper.empty(0)
    finally:
        await keeper.connection.execute("RESET SESSION AUTHORIZATION; DROP OWNED BY ring_adder; DROP ROLE ring_adder")
    assert await keeper.rows() == {0: 1}


async def test_a_role_from_which_rows_are_hidden_empties_nothing(store: PostgresStore, keeper: Keeper) -> None:
    """It would take an unsent row that it does not see for none."""
    await add(store, row("k", event_id="hidden"))
    assert await keeper.turn() == 1
    await keeper.connection.execute(
        "CREATE ROLE ring_blind; GRANT USAGE ON SCHEMA posthouse TO ring_blind; "
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA posthouse TO ring_blind; "
        "ALTER TABLE posthouse.outbox ENABLE ROW LEVEL SECURITY; DROP POLICY IF EXISTS everybody ON posthouse.outbox"
    )
    try:
        await keeper.connection.execute("SET SESSION AUTHORIZATION ring_blind")
        assert await keeper.rows() == {}
        assert not await keeper.empty(0)
        await keeper.connection.execute("RESET SESSION AUTHORIZATION")
        await keeper.connection.execute("CREATE POLICY ring ON posthouse.outbox TO ring_blind USING (true)")
        await drain(store)
        await keeper.connection.execute("SET SESSION AUTHORIZATION ring_blind")
        assert await keeper.empty(0), "a policy that hides nothing is enough"
    finally:
        await keeper.connection.execute("RESET SESSION AUTHORIZATION; DROP OWNED BY ring_blind; DROP ROLE ring_blind")


# All at once

KEYS = [f"k{number:02}" for number in range(60)]


class Fleet:
    """Three relay processes, of which one is always being killed or paused."""

    def __init__(self, url: str, report: Path) -> None:
        self._url = url
        self._report = report
        self._running: list[subprocess.Popen[bytes]] = []
        self._made = 0
        self.done = Counter[str]()

    def start(self) -> None:
        self._made += 1
        script = Path(__file__).with_name("postgres_partitions_relay.py")
        self._running.append(
            subprocess.Popen([sys.executable, str(script), self._url, f"relay{self._made}", str(self._report)])
        )

    async def trouble(self, chance: random.Random, stop: asyncio.Event) -> None:
        for _ in range(3):
            self.start()
        while not stop.is_set():
            victim = chance.choice(self._running)
            if chance.random() < 0.4:
                victim.kill()
                await asyncio.to_thread(victim.wait)
                self._running.remove(victim)
                self.start()
                self.done["killed"] += 1
            else:
                victim.send_signal(signal.SIGSTOP)
                await asyncio.sleep(chance.uniform(1.6, 2.2))  # longer than a lease: that is the trouble
                victim.send_signal(signal.SIGCONT)
                self.done["paused"] += 1
            await asyncio.sleep(chance.uniform(0.1, 0.4))

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def published(self) -> list[tuple[str, int, str]]:
        lines = self._report.read_text().split("\n")[:-1] if self._report.exists() else []
        return [(key, int(number), event) for key, number, event in (line.split(" ") for line in lines)]


class Writers:
    """Transactions of every kind; what they committed is remembered."""

    def __init__(self, url: str, store: PostgresStore) -> None:
        self._url = url
        self._store = store
        self.committed = set[str]()
        self.prepared = 0

    async def write(self, worker: int, chance: random.Random, enough: Callable[[], bool]) -> None:
        async with session(self._url) as connection:
            turn = 0
            while not enough():
                turn += 1
                keys = sorted(chance.sample(KEYS, 12 if worker else 3))
                said = [f"{worker}-{turn}-{key}" for key in keys]
                await self._transaction(connection, worker, turn, chance, list(zip(keys, said, strict=True)))

    async def _transaction(
        self, connection: Any, worker: int, turn: int, chance: random.Random, said: list[tuple[str, str]]
    ) -> None:
        name = f"p{worker}-{turn}"
        await connection.execute("BEGIN")
        joined = self._store.join(connection)
        await self._store.outbox.append(joined, [row(key, event_id=event) for key, event in said])
        if chance.random() < 0.3:
            await connection.execute("SAVEPOINT s")
            await self._store.outbox.append(joined, [row(said[-1][0], event_id=f"never-{name}")])
            await connection.execute("ROLLBACK TO SAVEPOINT s")
        if worker == 0:
            await asyncio.sleep(chance.uniform(0.0, 0.3))
        if chance.random() < 0.05:
            await connection.execute("ROLLBACK")
            return
        if worker == 1 and chance.random() < 0.2:
            await connection.execute(f"PREPARE TRANSACTION '{name}'")
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            await connection.execute(f"COMMIT PREPARED '{name}'")
            self.prepared += 1
        else:
            await connection.execute("COMMIT")
        self.committed |= {event for _, event in said}


async def clean(store: PostgresStore, keeper: Keeper, stop: asyncio.Event, truncated: Counter[str]) -> None:
    """Turn and empty all the time; count truncations by partition."""
    while not stop.is_set():
        await keeper.connection.fetchval("SELECT posthouse.rotate(65536, 1, 60)")
        for partition in RING:
            if await keeper.empty(partition):
                truncated[str(partition)] += 1
        await store.outbox.purge(200)
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_nothing_is_lost_or_out_of_order_while_relays_die_and_leaves_are_emptied_all_the_time(
    store: PostgresStore, keeper: Keeper, postgres_url: str, tmp_path: Path
) -> None:
    goal, chance, stop = 20_000 if LONG else 6_000, random.Random(11), asyncio.Event()
    fleet, writers, truncated = (
        Fleet(postgres_url, tmp_path / "published"),
        Writers(postgres_url, store),
        Counter[str](),
    )

    def enough() -> bool:
        trouble = min(fleet.done["killed"], fleet.done["paused"]) >= 2 and writers.prepared >= 10
        return len(writers.committed) > goal and truncated.total() >= 20 and trouble

    around = [
        asyncio.create_task(fleet.trouble(random.Random(5), stop)),
        asyncio.create_task(clean(store, keeper, stop, truncated)),
    ]
    try:
        async with session(postgres_url) as connection, connection.transaction():
            await store.outbox.append(store.join(connection), [row("open", event_id="open")])
            await asyncio.gather(*(writers.write(n, random.Random(chance.random()), enough) for n in range(6)))
        writers.committed.add("open")

        async def all_there() -> bool:
            return {event for *_, event in fleet.published()} >= writers.committed

        await eventually(all_there, within=60)
    finally:
        stop.set()
        await asyncio.gather(*around)
        fleet.end()
    published = fleet.published()
    assert {event for *_, event in published} == writers.committed
    assert len(writers.committed) > goal
    last = Counter[str]()
    for key, number, event in published:
        assert number <= last[key] + 1, f"{event}: number {number} of {key} after {last[key]}"
        last[key] = max(last[key], number)
    print(
        f"{len(writers.committed)} committed, {len(published)} published, {writers.prepared} prepared, {dict(fleet.done)}, "
        f"truncated {dict(truncated)}"
    )
    assert min(fleet.done["killed"], fleet.done["paused"]) >= 2
    assert writers.prepared >= 10
    assert truncated.total() >= 20
    await drain(store)
    assert (await store.counts()).committed[TOPIC] == len(writers.committed)


# What was sent is kept for a while.


async def test_three_partitions_keep_what_was_sent_and_the_first_one_left_goes_when_its_time_is_over(
    store: PostgresStore, keeper: Keeper
) -> None:
    old = "UPDATE posthouse.meta SET slot_since = slot_since - interval '1 day'"
    for number in range(4):
        await add(store, row(f"k{number}"))
        await drain(store)
        await keeper.connection.execute(old)
        await store.outbox.purge(100, keep=3600.0, room=2**30)
    assert (await keeper.written(), await keeper.rows()) == (3, {0: 1, 1: 1, 2: 1, 3: 1}), "nothing is old enough to go"
    await keeper.connection.execute("UPDATE posthouse.meta SET slot_left[1] = slot_left[1] - 3601")
    await store.outbox.purge(100, keep=3600.0, room=2**30)
    assert await keeper.rows() == {1: 1, 2: 1, 3: 1}
    await store.outbox.purge(100, keep=3600.0, room=2**30)
    assert await keeper.written() == 0, "an empty one is there to be written to"


async def test_the_partition_that_was_left_first_goes_early_when_there_is_no_more_room(
    store: PostgresStore, keeper: Keeper
) -> None:
    rotate = "SELECT posthouse.rotate(65536, 1, 600, 3600, 262144)"
    for number in range(4):
        await add(store, *(row(f"k{n}", body=os.urandom(1024)) for n in range(80)))
        await drain(store)
        assert await keeper.connection.fetchval(rotate) == ([] if number < 3 else [0]), "only when all four are full"
    assert await keeper.written() == 3
    assert await keeper.empty(0)
    assert await keeper.connection.fetchval(rotate) == [], "the others stay"
    assert await keeper.written() == 0
