"""A backlog that is read page by page: shared, taken over, refused in the middle, and long open transactions beside it."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from posthouse.store import OutboxRow, OutboxShard, Poll
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import row, stuck
from posthouse.testing.store_contract.steps import add

KEYS = [f"k{number}" for number in range(40)]
EACH = 10


@pytest_asyncio.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as store:
        await store.upgrade()
        yield store


@pytest_asyncio.fixture
async def other(store: PostgresStore, postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as other:
        yield other


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    try:
        yield store
    finally:
        await store.aclose()


async def fill(store: PostgresStore) -> None:
    """Ten events of each of forty keys."""
    for _ in range(EACH):
        await add(store, *map(row, KEYS))


async def sent(store: PostgresStore, owner: str, shards: Sequence[OutboxShard], most: int = 1_000) -> list[OutboxRow]:
    """What a relay sends in at most so many polls of 10."""
    found: list[OutboxRow] = []
    for _ in range(most):
        poll = await store.outbox.poll(shards, 10)
        if not poll.rows and poll.cursor is None:
            break
        assert await store.outbox.settle(owner, poll, [])
        found += poll.rows
    return found


async def backlogs(store: PostgresStore) -> list[tuple[object, ...]]:
    async with store.begin() as tx:
        return list(await tx.execute("SELECT b.number, b.last_id FROM posthouse.backlog b ORDER BY b.number"))


def assert_once_and_in_order(rows: Sequence[OutboxRow], *, keys: int = len(KEYS), each: int = EACH) -> None:
    numbers: dict[str | None, list[int | None]] = defaultdict(list)
    for one in rows:
        numbers[one.key].append(one.sequence)
    assert len(numbers) == keys
    assert all(found == list(range(1, each + 1)) for found in numbers.values())


async def test_a_backlog_is_one_row_in_the_order_of_commits_and_gone_at_its_end(store: PostgresStore) -> None:
    await fill(store)
    shards = await store.outbox.lease("a", 60)
    found = await sent(store, "a", shards, 3)
    assert len(await backlogs(store)) == 1
    found += await sent(store, "a", shards)
    assert [one.id for one in found] == sorted(one.id for one in found)
    assert_once_and_in_order(found)
    assert await backlogs(store) == []
    assert (await store.counts()).unsent == {}


async def test_relays_that_share_out_the_shards_share_out_the_backlog(
    store: PostgresStore, other: PostgresStore
) -> None:
    await fill(store)
    found = await sent(store, "a", await store.outbox.lease("a", 60), 5)
    await other.outbox.lease("b", 60)  # it has no shard yet, and makes the other one give up half of them
    mine = await store.outbox.lease("a", 60)
    theirs = await other.outbox.lease("b", 60)
    assert len(mine) == len(theirs)
    assert len(await backlogs(store)) == 2
    found += await sent(store, "a", mine, 4)
    found += await sent(other, "b", theirs, 7)
    found += await sent(store, "a", mine)
    found += await sent(other, "b", theirs)
    assert_once_and_in_order(found)
    assert await backlogs(store) == []


async def test_a_relay_whose_shards_were_taken_moves_nothing_in_their_backlog(
    store: PostgresStore, other: PostgresStore
) -> None:
    await fill(store)
    shards = await store.outbox.lease("a", 60)
    found = await sent(store, "a", shards, 5)
    late = await store.outbox.poll(shards, 10)
    async with store.begin() as tx:
        await tx.execute("UPDATE posthouse.shard SET until = 0")
        await tx.execute("UPDATE posthouse.member SET until = 0")
    taken = await other.outbox.lease("b", 60)
    assert len(taken) == len(shards)
    assert not await store.outbox.settle("a", late, [])
    rest = await sent(other, "b", taken, 1)
    assert [one.id for one in rest] == [one.id for one in late.rows], "it begins where the other one's last settle was"
    assert_once_and_in_order([*found, *rest, *await sent(other, "b", taken)])


async def test_a_page_that_was_read_ahead_does_not_pass_a_refused_event(store: PostgresStore) -> None:
    await add(store, *(row("k") for _ in range(30)))
    shards = await store.outbox.lease("a", 60)
    first = await store.outbox.poll(shards, 10)
    assert await store.outbox.settle("a", first, [stuck(first.rows[-1])])
    flagged: list[int] = []
    while (poll := await store.outbox.poll(shards, 10)).rows:
        flagged += poll.stuck
        assert await store.outbox.settle("a", poll, [])
    assert [one.row.sequence for one in await store.outbox.stuck()] == list(range(10, 31))
    assert len(flagged) == 20


async def test_a_transaction_that_was_open_before_is_read_though_its_ids_are_below_all_others(
    store: PostgresStore, postgres_url: str
) -> None:
    late: Any = await asyncpg.connect(postgres_url)
    transaction = late.transaction()
    await transaction.start()
    await store.outbox.append(store.join(late), [row("late") for _ in range(30)])
    shards = await store.outbox.lease("a", 60)
    for _ in range(3):  # the floor of the shards rises above its ids
        await add(store, *map(row, KEYS))
        await sent(store, "a", shards)
    await transaction.commit()
    await late.close()
    await add(store, *(row("new") for _ in range(30)))
    assert_once_and_in_order(await sent(store, "a", shards), keys=2, each=30)


async def test_what_commits_while_a_backlog_is_read_is_sent_once_behind_it(
    store: PostgresStore, postgres_url: str
) -> None:
    await fill(store)
    late: Any = await asyncpg.connect(postgres_url)
    transaction = late.transaction()
    await transaction.start()
    await store.outbox.append(store.join(late), [row("late") for _ in range(EACH)])
    for _ in range(EACH):
        await add(store, *(row(f"more {key}") for key in KEYS))
    shards = await store.outbox.lease("a", 60)
    found = await sent(store, "a", shards, 2)
    await transaction.commit()
    await late.close()
    found += await sent(store, "a", shards)
    assert_once_and_in_order(found, keys=2 * len(KEYS) + 1)


async def test_what_was_sent_before_a_backlog_is_not_sent_with_it(store: PostgresStore) -> None:
    await add(store, *map(row, KEYS[:8]))
    shards = await store.outbox.lease("a", 60)
    found = await sent(store, "a", shards, 1)  # the first look knows of no floor
    await add(store, *map(row, KEYS[8:]))
    for _ in range(EACH - 1):
        await add(store, *map(row, KEYS))
    assert_once_and_in_order([*found, *await sent(store, "a", shards)])


async def test_a_page_is_settled_once(store: PostgresStore) -> None:
    await fill(store)
    shards = await store.outbox.lease("a", 60)
    await sent(store, "a", shards, 1)
    page = await store.outbox.poll(shards, 10)
    assert await store.outbox.settle("a", page, [])
    assert not await store.outbox.settle("a", page, [])
    assert (await store.counts()).unsent == {page.rows[0].topic: len(KEYS) * EACH - 20}


async def test_shards_with_few_new_rows_do_not_wait_for_the_end_of_a_backlog(store: PostgresStore) -> None:
    await add(store, *(row("busy") for _ in range(1_000)))
    shards = await store.outbox.lease("a", 60)
    before = await sent(store, "a", shards, 2)
    await add(store, row("quiet"))
    polls: list[Poll] = []
    while not any(one.key == "quiet" for poll in polls for one in poll.rows):
        polls.append(await store.outbox.poll(shards, 10))
        assert await store.outbox.settle("a", polls[-1], [])
    rows = sum(len(poll.rows) for poll in polls)
    assert len(before) + rows < 300


@pytest.mark.parametrize("number", [1, 3])
async def test_a_floor_is_never_above_an_id_that_is_still_to_come(
    store: PostgresStore, postgres_url: str, number: int
) -> None:
    """A transaction that has drawn nothing yet when a relay looks draws its ids above every floor that this look gives."""
    shards = await store.outbox.lease("a", 60)
    await sent(store, "a", shards)
    waiting: Any = await asyncpg.connect(postgres_url)
    async with waiting.transaction():
        await waiting.execute("SELECT pg_current_xact_id()")
        for _ in range(number):
            await add(store, *map(row, KEYS))
            await sent(store, "a", shards)
        await store.outbox.append(store.join(waiting), [row("waiting")])
    await waiting.close()
    await add(store, *(row("waiting") for _ in range(30)))
    found = await sent(store, "a", shards)
    assert [one.sequence for one in found if one.key == "waiting"] == list(range(1, 32))


async def test_a_transaction_has_its_id_before_a_row_draws_one(store: PostgresStore) -> None:
    """What a floor rests on. Rows without a key take no lock that would give the transaction its id before."""
    async with store.begin() as tx:
        await tx.execute("CREATE SEQUENCE spied")
        await tx.execute("""
            CREATE FUNCTION spy() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
                IF pg_current_xact_id_if_assigned() IS NULL THEN RAISE 'drawn too early'; END IF;
                RETURN nextval('spied');
            END $$""")
        await tx.execute("ALTER TABLE posthouse.outbox ALTER id DROP IDENTITY")
        await tx.execute("ALTER TABLE posthouse.outbox ALTER id SET DEFAULT spy()")
    await add(store, row(None))
    await add(store, row(None), row(None))
    async with store.begin() as tx:
        assert (await tx.execute("SELECT count(*) FROM posthouse.outbox")).scalar() == 3
