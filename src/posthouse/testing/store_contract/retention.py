"""What lies in a store is told by its age, and of it only what nobody needs any more leaves."""

from __future__ import annotations

import msgspec
import pytest

from posthouse.store import HeldEvent, HeldFilter, HeldState, Store
from posthouse.store.retention import Lying
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, entry, held, row
from posthouse.testing.store_contract.steps import claim, hold

DAY = 86_400.0
STATES: tuple[HeldState, ...] = ("retrying", "gap", "blocked", "dead", "quarantined", "skipped")


class RetentionContract(StoreFixtures):
    """What `RetentionTable` promises."""

    async def test_what_lies_where_is_told_with_its_age_and_with_what_is_due(self, store: Store) -> None:
        async with store.begin() as tx:
            await store.outbox.append(tx, [row("k"), row("k")])
        await claim(store, entry(None))
        await hold(store, held(entry(None), "skipped"), held(entry(None), "dead"))
        await self.later(3 * DAY)
        await claim(store, entry(None))
        await hold(store, held(entry(None), "skipped"))
        found = {(one.place, one.state): one for one in await store.retention.lying(inbox=2 * DAY, held=2 * DAY)}
        assert found["outbox", ""].rows == 2
        assert _about(found["inbox", ""], rows=2, oldest=3 * DAY, due=1)
        assert _about(found["held", "skipped"], rows=2, oldest=3 * DAY, due=1)
        assert _about(found["held", "dead"], rows=1, oldest=3 * DAY, due=0)
        kept = {one.place: one for one in await store.retention.lying(inbox=9 * DAY, held=None)}
        assert (kept["inbox"].due, kept["held"].due) == (0, 0)

    async def test_rows_of_the_inbox_are_read_oldest_first_and_these_alone_are_forgotten(self, store: Store) -> None:
        first, second, third = entry(None, time=900.0), entry(None, time=901.0), entry(None, time=902.0)
        for one in (first, second, third):
            await claim(store, one)
            await self.later(DAY)
        old = await store.retention.old_seen(1.5 * DAY, 10)
        assert [one.event_id for one in old] == [first.event_id, second.event_id]
        assert (old[0].consumer, old[0].topic, old[0].digest, old[0].time) == (CONSUMER, TOPIC, first.digest, 900.0)
        assert await store.retention.old_seen(1.5 * DAY, 1) == old[:1]
        assert await store.retention.forget_seen(old[:1]) == 1
        assert await store.retention.forget_seen(old) == 1
        async with store.begin() as tx:
            known = [await store.inbox.position_of(tx, CONSUMER, one) is not None for one in (first, second, third)]
        assert known == [False, False, True]
        until = await store.inbox.purged_until(CONSUMER)
        assert until is not None
        assert old[1].received_at <= until < (await store.retention.old_seen(0.5 * DAY, 9))[0].received_at
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 3}

    @pytest.mark.parametrize("state", STATES)
    async def test_of_held_events_only_those_that_were_given_up_are_ever_old(
        self, store: Store, state: HeldState
    ) -> None:
        await hold(store, held(entry(None), state))
        await self.later(100 * DAY)
        assert len(await store.retention.old_held(DAY, 10)) == (state == "skipped")

    async def test_a_given_up_event_that_leaves_still_counts_as_skipped_and_comes_back_as_doubt(
        self, store: Store
    ) -> None:
        alone = msgspec.structs.replace(held(entry(None, time=950.0), "skipped"), type="shop.orders.placed.v1")
        numbered = msgspec.structs.replace(held(entry(1), "skipped"), type="shop.orders.placed.v1")
        strange = held(entry(None, time=960.0), "skipped")
        await hold(store, alone, numbered, strange)
        before = (await store.counts()).skipped
        await self.later(2 * DAY)
        old = await store.retention.old_held(DAY, 10)
        assert len(old) == 3
        assert await store.retention.forget_held(old) == 3
        counts = await store.counts()
        assert counts.skipped == before == {(CONSUMER, TOPIC): 2}
        assert not counts.strange.get((CONSUMER, TOPIC))
        assert await store.held.find(HeldFilter()) == []
        assert await store.inbox.purged_until(CONSUMER) == 960.0

    async def test_a_given_up_event_that_somebody_took_up_again_meanwhile_stays(self, store: Store) -> None:
        await hold(store, held(entry(None), "skipped"), held(entry(None), "skipped"))
        await self.later(2 * DAY)
        taken, left = await store.retention.old_held(DAY, 10)
        async with store.begin() as tx:
            assert await store.held.change(tx, _again(taken))
        assert await store.retention.forget_held([taken, left]) == 1
        assert [one.state for one in await store.held.find(HeldFilter())] == ["retrying"]
        async with store.begin() as tx:
            given_up = (await store.held.find(HeldFilter()))[0]
            assert await store.held.change(tx, msgspec.structs.replace(given_up, state="skipped"))
        assert await store.retention.old_held(DAY, 10) == []


def _again(event: HeldEvent) -> HeldEvent:
    return msgspec.structs.replace(event, state="retrying", attempts=0, after=0.0)


def _about(found: Lying, *, rows: int, oldest: float, due: int) -> bool:
    """Ages by a clock that runs may be a little more."""
    return found.rows == rows and found.due == due and found.oldest is not None and 0 <= found.oldest - oldest < 60
