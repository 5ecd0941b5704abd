"""Held events on PostgreSQL: what two workers do to one key at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.clock import ManualClock
from posthouse.store import HeldFilter
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import CONSUMER, arrival, held


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
        await store.held.hold(tx, held(arrival(7), "gap"))

    async def hold_second() -> None:
        async with store.begin() as tx:
            assert await store.held.hold(tx, held(arrival(2), "gap"))

    async with store.begin() as tx:
        await store.inbox.standing(tx, CONSUMER, arrival(1))
        other = asyncio.create_task(hold_second())
        await waits_for_a_lock(store)
        await store.inbox.advance(tx, CONSUMER, arrival(1))
        assert not await store.held.promote(tx, CONSUMER, arrival(1))
    await other
    states = {event.arrival.sequence: event.state for event in await store.held.find(HeldFilter())}
    assert states == {2: "retrying", 7: "gap"}


async def waits_for_a_lock(store: PostgresStore) -> None:
    async with asyncio.timeout(20):
        while True:
            async with store.begin() as tx:
                waiting = await tx.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if waiting.scalar():
                return
            await asyncio.sleep(0.01)
