"""Held events on PostgreSQL: what two workers do to one key at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.clock import ManualClock
from posthouse.errors import StoreCollision
from posthouse.store import HeldFilter
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.inbox import PURGE
from posthouse.stores.postgres.transaction import own
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, entry, held


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(postgres_url, clock=ManualClock())
    await opened.upgrade()
    yield opened
    await opened.aclose()


async def test_an_event_whose_turn_came_while_it_was_being_held_is_due_also_before_later_ones(
    store: PostgresStore,
) -> None:
    """Number 7 waits. Number 1 is being applied while another worker holds number 2: nobody else would promote it."""
    async with store.begin() as tx:
        await store.held.hold(tx, held(entry(7), "gap"))

    async def hold_second() -> None:
        async with store.begin() as tx:
            assert await store.held.hold(tx, held(entry(2), "gap"))

    async with store.begin() as tx:
        await store.inbox.position_of(tx, CONSUMER, entry(1))
        other = asyncio.create_task(hold_second())
        await waits_for_a_lock(store)
        await store.inbox.advance(tx, CONSUMER, entry(1))
        assert not await store.held.promote(tx, CONSUMER, entry(1))
    await other
    states = {event.entry.sequence: event.state for event in await store.held.find(HeldFilter())}
    assert states == {2: "retrying", 7: "gap"}


async def test_an_unordered_event_that_another_worker_is_about_to_apply_is_not_applied_again(
    store: PostgresStore,
) -> None:
    """Its worker stood still, so that it came again and was held: whoever runs it has to wait, and to look again."""
    one = entry(None)
    async with store.begin() as tx:
        await store.held.hold(tx, held(one, "retrying"))

    async def run_held() -> bool:
        (due,) = await store.held.claim_due(CONSUMER, 10, 60.0)
        async with store.begin() as tx:
            return await store.held.remove(tx, due) and await store.inbox.advance(tx, CONSUMER, one)

    async with store.begin() as tx:
        await store.inbox.advance(tx, CONSUMER, one)
        other = asyncio.create_task(run_held())
        await waits_for_a_lock(store)
    assert not await other
    assert (await store.counts()).applied == {(CONSUMER, TOPIC): 1}


async def test_what_comes_again_while_it_is_being_forgotten_is_not_claimed(store: PostgresStore) -> None:
    """The claim began before the purge has committed, and waits for the row that it takes away."""
    one = entry(None, time=500.0)
    async with store.begin() as tx:
        assert await store.inbox.claim(tx, CONSUMER, [one]) == [True]

    async def claim() -> bool:
        async with store.begin() as tx:
            return (await store.inbox.claim(tx, CONSUMER, [one]))[0]

    async with store.begin() as tx:
        await own(tx).run(PURGE, 2e9, 0.0, 10)
        other = asyncio.create_task(claim())
        await waits_for_a_lock(store)
    with pytest.raises(StoreCollision):
        await other
    assert not await claim()
    async with store.begin() as tx:
        assert await store.inbox.position_of(tx, CONSUMER, one) is None


async def waits_for_a_lock(store: PostgresStore) -> None:
    async with asyncio.timeout(20):
        while True:
            async with store.begin() as tx:
                waiting = await tx.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if waiting.scalar():
                return
            await asyncio.sleep(0.01)
