"""The essential path on every version of PostgreSQL from 13 to 18 that can be had here.

POSTHOUSE_VERSIONS=1 runs the whole store contract on each version as well.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import asyncpg
import psycopg
import pytest
import pytest_asyncio

from posthouse.store import OutboxRow, Restoration, Store, Timer
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract import StoreContract
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, entry, held, row, stuck
from posthouse.testing.store_contract.steps import add, claim, drain, hold
from tests.kit.servers.postgres import PostgresServer, Unavailable, give_up, running
from tests.kit.servers.versions import VERSIONS, binaries_of


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda version: f"PostgreSQL {version}")
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    try:
        folder = binaries_of(request.param)
    except Unavailable as error:
        give_up(str(error))
    with running(folder) as url:
        yield PostgresServer(url)


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    with server.database() as url:
        yield url


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.upgrade()
    yield store
    await store.aclose()


async def test_events_go_out_in_order_through_pages_savepoints_and_prepared_transactions(
    store: PostgresStore, url: str
) -> None:
    connection = await asyncpg.connect(url)
    async with store.begin() as slow:
        await store.outbox.append(slow, [row("slow")])
        await add(store, *(row("k") for _ in range(10)))
        await connection.execute("BEGIN")
        joined = store.join(connection)
        await store.outbox.append(joined, [row("p")])
        await connection.execute("SAVEPOINT s")
        await store.outbox.append(joined, [row("p", event_id="never")])
        await connection.execute("ROLLBACK TO SAVEPOINT s")
        await connection.execute("PREPARE TRANSACTION 'p'")
        shards = await store.outbox.lease("a", 60)
        found: list[OutboxRow] = []
        while (poll := await store.outbox.poll(shards, 3)).rows:
            found += poll.rows
            assert await store.outbox.settle("a", poll, [])
        assert [one.sequence for one in found] == list(range(1, 11))
        await connection.execute("COMMIT PREPARED 'p'")
    await connection.close()
    assert sorted(str(one.key) for one in await drain(store)) == ["p", "slow"]


async def test_the_ring_turns_and_keeps_what_is_stuck(store: PostgresStore, url: str) -> None:
    shards = await store.outbox.lease("a", 60)
    await add(store, row("bad"))
    poll = await store.outbox.poll(shards, 10)
    assert await store.outbox.settle("a", poll, [stuck(poll.rows[0])])
    connection = await asyncpg.connect(url)
    for turn in range(6):
        await add(store, row("k"))
        assert [one.sequence for one in await drain(store)] == [turn + 1]
        left = await connection.fetchval("SELECT slot FROM posthouse.meta")
        await connection.execute("SELECT posthouse.rotate(1, 1, 0)")
        assert await connection.fetchval("SELECT posthouse.empty_partition($1)", left)
    assert await connection.fetchval("SELECT count(*) FROM posthouse.outbox") == 1
    await connection.close()
    assert [one.row for one in await store.outbox.stuck_due(shards, 10)] == list(poll.rows)
    assert await store.outbox.settle_stuck("a", shards, [poll.rows[0].id], [])
    assert await store.outbox.purge(10) == 1
    assert (await store.counts()).committed == {TOPIC: 7}


async def test_plans_are_pinned(store: PostgresStore, url: str) -> None:
    shards = await store.outbox.lease("a", 60)
    said: list[str] = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: said.append(notice.message_detail or ""))
        connection.execute(
            "INSERT INTO posthouse.outbox (shard, topic, tenant, key, sequence, lineage, event_id, body, slot) "
            "SELECT n % 16, 't', 't1', 'k', n, 1, n::text, '', n % 4 FROM generate_series(1, 50000) n"
        )
        connection.execute("SET client_min_messages = log")
        connection.execute("SET debug_print_plan = on")
        connection.execute(
            "SELECT count(*) FROM posthouse.poll(%s::smallint[], %s::bigint[], %s, 100, true, 0, NULL)",
            ([shard.number for shard in shards], [shard.epoch for shard in shards], shards[0].run),
        )
    plans = "".join(said)
    assert "{MERGEAPPEND" in plans
    for node in ("{SEQSCAN", "{SORT", "{INCREMENTALSORT", "{BITMAPHEAPSCAN"):
        assert node not in plans


async def test_claims_held_events_timers_and_figures(store: PostgresStore) -> None:
    assert await claim(store, entry(1))
    assert not await claim(store, entry(1))
    assert await hold(store, held(entry(3), "gap"))
    async with store.begin() as tx:
        await store.timers.set(tx, Timer(name="t", due_at=0.0, row=row("later")))
    assert await store.timers.fire(10) == 1
    assert [one.key for one in await drain(store)] == ["later"]
    counts = await store.counts()
    assert (counts.applied, counts.held) == ({(CONSUMER, TOPIC): 1}, {(CONSUMER, TOPIC, "gap"): 1})


async def test_a_restored_database_sends_again_under_a_new_lineage(store: PostgresStore) -> None:
    await add(store, row("k"))
    await drain(store)
    assert (await store.restored(dry_run=True)).lineage == 2
    assert await store.restored() == Restoration(lineage=2, again=1)
    await add(store, row("k"))
    assert [one.lineage for one in await drain(store)][-1] == 2


if os.environ.get("POSTHOUSE_VERSIONS") == "1":

    class TestContract(StoreContract):
        @pytest.fixture(autouse=True)
        def _database(self, url: str) -> None:
            self.url = url

        async def make_store(self) -> Store:
            return PostgresStore(self.url, clock=self.clock)
