"""The desk against entries: a verb that meets a change of its key looks again, under the lock of the key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from posthouse.clock import ManualClock
from posthouse.errors import DeskError
from posthouse.receiving.held import HeldEvents
from posthouse.store import HeldFilter, HeldState, KeyPosition, Store, Transaction
from posthouse.stores import open_store
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import CONSUMER, entry, held
from tests.kit.waiting import eventually

Change = Callable[[Transaction], Awaitable[None]]


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    """PostgreSQL: on SQLite nobody else writes while a verb is at work."""
    async with begun(PostgresStore(postgres_url, clock=ManualClock())) as store:
        yield store


@pytest.fixture(params=["sqlite", "postgres"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    async with begun(open_store(url, clock=ManualClock())) as store:
        yield store


@asynccontextmanager
async def begun(store: Store) -> AsyncIterator[Store]:
    """With number 1 of the key applied."""
    await store.upgrade()
    async with store.begin() as tx:
        assert await store.inbox.claim(tx, CONSUMER, [entry(1)]) == [True]
    yield store
    await store.aclose()


async def holds(store: Store, sequence: int, state: HeldState) -> int:
    async with store.begin() as tx:
        assert await store.held.hold(tx, held(entry(sequence), state))
    return next(event.id for event in await store.held.find(HeldFilter()) if event.entry.sequence == sequence)


async def meanwhile(store: Store, change: Change, verb: Awaitable[object]) -> None:
    """Begin the verb while a worker has locked the key, and let that one change it before the verb can go on."""
    async with store.begin() as tx:
        await store.inbox.position_of(tx, CONSUMER, entry(1))
        deciding = asyncio.ensure_future(verb)
        await eventually(lambda: waits(store), "the verb to wait for the key")
        await change(tx)
    await deciding


async def waits(store: Store) -> bool:
    async with store.begin() as tx:
        return bool((await tx.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar())


async def states(store: Store) -> dict[int | None, HeldState]:
    return {event.entry.sequence: event.state for event in await store.held.find(HeldFilter())}


async def head(store: Store) -> int:
    async with store.begin() as tx:
        known = await store.inbox.position_of(tx, CONSUMER, entry(1))
    assert isinstance(known, KeyPosition)
    return known.sequence


async def test_a_missing_number_that_arrives_and_is_held_meanwhile_is_not_given_up(store: Store) -> None:
    third = await holds(store, 3, "gap")

    async def second_fails(tx: Transaction) -> None:
        assert await store.held.hold(tx, held(entry(2), "retrying"))

    await meanwhile(store, second_fails, HeldEvents(store).release(third))
    assert await states(store) == {2: "retrying", 3: "gap"}
    assert await head(store) == 1, "number 2 was given up, and would never run"


async def test_a_missing_number_that_is_applied_meanwhile_is_not_given_up(store: Store) -> None:
    third = await holds(store, 3, "gap")

    async def second_is_applied(tx: Transaction) -> None:
        await store.inbox.advance(tx, CONSUMER, entry(2))
        assert await store.held.promote(tx, CONSUMER, entry(2))

    await meanwhile(store, second_is_applied, HeldEvents(store).release(third))
    assert await states(store) == {3: "retrying"}
    assert await head(store) == 2
    [due] = await store.held.claim_due(CONSUMER, 10, 30)
    assert due.entry.sequence == 3


async def test_an_event_that_was_set_aside_is_refused_when_its_key_passes_it_meanwhile(store: Store) -> None:
    aside = await holds(store, 2, "quarantined")

    async def key_goes_on(tx: Transaction) -> None:
        await store.inbox.advance(tx, CONSUMER, entry(2, event_id="another"))

    with pytest.raises(DeskError, match="went on to number 2"):
        await meanwhile(store, key_goes_on, HeldEvents(store).retry(aside))
    assert await states(store) == {2: "quarantined"}


@pytest.mark.parametrize("verb", [HeldEvents.skip, HeldEvents.quarantine])
async def test_an_event_that_is_applied_meanwhile_is_not_skipped(
    store: Store, verb: Callable[[HeldEvents, int], Awaitable[object]]
) -> None:
    second = await holds(store, 2, "dead")

    async def applied(tx: Transaction) -> None:
        [event] = await store.held.find(HeldFilter(ids=[second]))
        assert await store.held.remove(tx, event)
        await store.inbox.advance(tx, CONSUMER, entry(2))

    with pytest.raises(DeskError, match=f"no held event has the number {second}"):
        await meanwhile(store, applied, verb(HeldEvents(store), second))
    assert await head(store) == 2


async def test_an_event_that_its_key_left_behind_is_refused_and_runs_by_force(either: Store) -> None:
    second = await holds(either, 2, "retrying")
    async with either.begin() as tx:
        await either.inbox.advance(tx, CONSUMER, entry(3))
    assert await either.held.claim_due(CONSUMER, 10, 30) == [], "it can never be its turn"
    for verb in (HeldEvents(either).retry, HeldEvents(either).release):
        with pytest.raises(DeskError, match="went on to number 3"):
            await verb(second)
    await HeldEvents(either).retry(second, force=True)
    [due] = await either.held.claim_due(CONSUMER, 10, 30)
    assert due.entry.event_id == entry(2).event_id


async def test_who_leaves_the_line_out_of_turn_does_not_lead_the_key_past_those_before_it(either: Store) -> None:
    fourth = await holds(either, 4, "quarantined")
    await HeldEvents(either).retry(fourth)
    await HeldEvents(either).skip(fourth)
    assert await head(either) == 1, "numbers 2 and 3 are still to come"
    async with either.begin() as tx:
        assert await either.inbox.claim(tx, CONSUMER, [entry(2)]) == [True]
