"""What a relay that keeps up sees at a glance: all that a search would find, with its shards moved together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest
import pytest_asyncio

from posthouse.errors import StoreError
from posthouse.store import OutboxRow, OutboxShard
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.poll import FEW, found_in
from posthouse.testing.store_contract.samples import row, stuck
from posthouse.testing.store_contract.steps import add, drain, failing

# Where the cursors stand, each place once.
PLACES = "SELECT count(DISTINCT l.s1::text) FROM posthouse.shard l"

# How many rows a glance and a search show, both in one snapshot.
BOTH = """
SELECT (SELECT count(g.id) FROM posthouse.poll_fast($1, $2, $3, 1000) g),
    (SELECT count(p.id) FROM posthouse.poll($1, $2, $3, 1000, false, 0, NULL) p)
"""

# How often leaves were read whole in this transaction, and by which indexes.
SCANS = """
SELECT sum(t.seq_scan)::integer, array_agg(DISTINCT h.inhparent::regclass::text) FILTER (
    WHERE pg_stat_get_xact_numscans(i.indexrelid) > 0)
FROM pg_inherits l JOIN pg_stat_xact_user_tables t ON t.relid = l.inhrelid
JOIN pg_index i ON i.indrelid = l.inhrelid JOIN pg_inherits h ON h.inhrelid = i.indexrelid
WHERE l.inhparent = 'posthouse.outbox'::regclass
"""


@pytest_asyncio.fixture
async def session(postgres_url: str, store: PostgresStore) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


def ids(rows: Sequence[OutboxRow]) -> set[str]:
    return {found.event_id for found in rows}


def numbers(shards: Sequence[OutboxShard]) -> tuple[list[int], list[int], str]:
    return [shard.number for shard in shards], [shard.epoch for shard in shards], shards[0].run


async def test_shards_are_moved_together_also_those_without_a_row(
    store: PostgresStore, session: asyncpg.Connection[asyncpg.Record]
) -> None:
    for number in range(3):
        await add(store, row(f"k{number}"))
        assert len(await drain(store)) == 1
        assert await session.fetchval(PLACES) == 1


@pytest.mark.parametrize("passed", [3, 700], ids=["few ended since", "many ended since"])
async def test_a_transaction_that_was_open_is_seen_when_it_commits(
    store: PostgresStore, session: asyncpg.Connection[asyncpg.Record], passed: int
) -> None:
    """Be it that only a few transactions ended since it began, or too many to pass over them one by one."""
    shards = await store.outbox.lease("a", 60)
    async with store.begin() as first, store.begin() as second:
        await store.outbox.append(first, [row("k1", event_id="first")])
        await store.outbox.append(second, [row("k2", event_id="second")])
        await session.execute(
            f"DO $$ BEGIN FOR n IN 1..{passed} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
        )
        await add(store, row("k3", event_id="between"))
        poll = await store.outbox.poll(shards, 50)
        assert ids(poll.rows) == {"between"}
        assert await store.outbox.settle("a", poll, [])
        await add(store, row("k4", event_id="then"))
        assert list(await session.fetchrow(BOTH, *numbers(shards)) or ()) == [1, 1]
    poll = await store.outbox.poll(shards, 50)
    assert ids(poll.rows) == {"first", "second", "then"}
    assert await store.outbox.settle("a", poll, [])
    assert not (await store.outbox.poll(shards, 50)).rows


async def test_shards_that_stand_apart_are_each_read_from_where_they_stand(
    store: PostgresStore, session: asyncpg.Connection[asyncpg.Record]
) -> None:
    await add(store, *(row(f"k{number}") for number in range(40)))
    assert len(await drain(store)) == 40
    before = await session.fetchval("SELECT l.s1::text FROM posthouse.shard l LIMIT 1")
    await add(store, *(row(f"k{number}", event_id=f"again {number}") for number in range(40)))
    assert len(await drain(store)) == 40
    back = await session.fetch(
        "UPDATE posthouse.shard SET s1 = $1::text::pg_snapshot WHERE number < 5 RETURNING number", before
    )
    assert len(back) == 5
    shards = await store.outbox.lease("a", 60)
    again, searched = await session.fetchrow(BOTH, *numbers(shards)) or (0, 0)
    assert 0 < again == searched < 40, "what is in the shards that were put back"
    poll = await store.outbox.poll(shards, 50)
    assert len(poll.rows) == again
    assert await store.outbox.settle("a", poll, [])
    await add(store, *(row(f"k{number}") for number in range(40)))
    assert len(await drain(store)) == 40
    assert await session.fetchval(PLACES) == 1


@pytest.mark.parametrize("count", [FEW, FEW + 1, 3 * FEW])
async def test_more_than_a_few_are_searched_for_and_none_is_left_out(store: PostgresStore, count: int) -> None:
    await add(store, *(row(f"k{number % 7}", event_id=f"e{number}") for number in range(count)))
    shards = await store.outbox.lease("a", 60)
    found: list[OutboxRow] = []
    while (poll := await store.outbox.poll(shards, 500)).rows:
        found += poll.rows
        assert await store.outbox.settle("a", poll, [])
    assert len(found) == len(ids(found)) == count
    for key in range(7):
        sequence = [one.sequence for one in found if one.key == f"k{key}"]
        assert sequence == list(range(1, len(sequence) + 1))


async def test_it_says_whether_anything_is_stuck(store: PostgresStore) -> None:
    shards = await store.outbox.lease("a", 60)
    await add(store, row("k", event_id="refused"))
    poll = await store.outbox.poll(shards, 50)
    assert poll.none_stuck
    assert await store.outbox.settle("a", poll, [stuck(poll.rows[0])])
    await add(store, row("k", event_id="behind"), row("other", event_id="free"))
    poll = await store.outbox.poll(shards, 50)
    assert not poll.none_stuck
    assert poll.stuck == {one.id for one in poll.rows if one.event_id == "behind"}
    assert await store.outbox.settle("a", poll, [])
    assert {one.row.event_id for one in await store.outbox.stuck()} == {"refused", "behind"}


async def test_shards_that_another_relay_took_are_not_moved(
    store: PostgresStore, session: asyncpg.Connection[asyncpg.Record]
) -> None:
    shards = await store.outbox.lease("a", 60)
    await add(store, row("k"))
    poll = await store.outbox.poll(shards, 50)
    await session.execute("UPDATE posthouse.shard SET owner = 'b', epoch = epoch + 1 WHERE number = 3")
    before = await session.fetchval(PLACES)
    assert not await store.outbox.settle("a", poll, [])
    assert await session.fetchval(PLACES) == before
    assert await session.fetchval("SELECT count(*) FROM posthouse.sent") == 0


async def test_a_poll_that_was_settled_is_not_settled_again(store: PostgresStore) -> None:
    shards = await store.outbox.lease("a", 60)
    await add(store, row("k"))
    poll = await store.outbox.poll(shards, 50)
    assert await store.outbox.settle("a", poll, [])
    assert not await store.outbox.settle("a", poll, [])


async def test_it_is_refused_inside_a_transaction_that_wrote(store: PostgresStore) -> None:
    shards = await store.outbox.lease("a", 60)
    async with failing(store) as tx:
        await store.outbox.append(tx, [row("k")])
        with pytest.raises(StoreError, match="a poll inside a transaction that has written"):
            await tx.execute("SELECT * FROM posthouse.poll_fast($1, $2, $3, 10)", numbers(shards))


async def test_it_reads_by_index_with_nothing_and_with_many_rows(
    store: PostgresStore, session: asyncpg.Connection[asyncpg.Record]
) -> None:
    shards = await store.outbox.lease("a", 3600)
    glance = "SELECT count(id) FROM posthouse.poll_fast($1, $2, $3, 200)"
    await session.execute("ANALYZE posthouse.outbox")
    for many in (0, 20_000):
        await session.execute(
            "INSERT INTO posthouse.outbox (shard, topic, tenant, key, sequence, lineage, event_id, body, slot) "
            "SELECT n % 16, 't', 't1', 'k' || n % 16, n / 16 + 1, 1, 'e' || n, '\\x7b7d', n % 4 FROM generate_series(1, $1) n",
            many,
        )
        await session.execute("UPDATE posthouse.shard SET s1 = pg_current_snapshot()")
        await add(store, row("k"))
        for _ in range(7):
            async with session.transaction():
                assert await session.fetchval(glance, *numbers(shards)) == 1
                assert list(await session.fetchrow(SCANS) or ()) == [0, ["posthouse.outbox_by_transaction"]]


def test_shards_that_are_behind_are_not_taken_for_quiet_ones() -> None:
    drawn = ("drawn", None, None, "7:7:", None, None, None, 7, *[None] * 9, False)
    assert not found_in([drawn]).behind
    assert found_in([drawn, ("behind", [1], *[None] * 16)]).behind
