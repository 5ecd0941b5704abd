"""An event that cannot be applied yet is held; its key waits, and one worker at a time has it in hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from posthouse.errors import StoreError
from posthouse.store import HeldEvent, HeldFilter, HeldState, KeyPosition, Store
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, entry, held
from posthouse.testing.store_contract.steps import claim, hold, standing


class HeldContract(StoreFixtures):
    """What `HeldTable` promises."""

    async def test_a_held_event_comes_back_as_it_was_given(self, store: Store) -> None:
        given = msgspec.structs.replace(
            held(entry(1, lineage=3), "dead"),
            body=b"\x00\xff",
            headers={"a": "é"},
            type="order.placed",
            attempts=4,
            next_at=5.5,
            first_at=1.5,
            last_at=2.5,
            reason="because",
            error="ValueError: no",
            stack="line 1",
        )
        await hold(store, given)
        (found,) = await store.held.find(HeldFilter())
        assert found == msgspec.structs.replace(given, id=found.id, turn=found.turn, last_at=self.clock.now())
        assert found.id > 0

    async def test_an_event_is_held_once(self, store: Store) -> None:
        alone = entry(None)
        for one in (held(entry(1), "retrying"), held(alone, "retrying"), held(entry(5), "quarantined")):
            assert [await hold(store, one), await hold(store, one)] == [True, False]
        assert await hold(store, msgspec.structs.replace(held(alone, "dead"), consumer="shipping"))

    async def test_another_event_under_a_number_that_waits_is_set_aside(self, store: Store) -> None:
        await hold(store, held(entry(2), "gap"))
        assert await hold(store, held(entry(2, event_id="fork"), "gap"))
        states = {found.entry.event_id: found.state for found in await store.held.find(HeldFilter())}
        assert states == {entry(2).event_id: "gap", "fork": "quarantined"}

    async def test_a_held_key_claims_nothing_more(self, store: Store) -> None:
        await claim(store, entry(1))
        await hold(store, held(entry(2), "retrying"))
        await hold(store, held(entry(3), "blocked"))
        assert not await claim(store, entry(2))
        head = await standing(store, entry(4))
        assert (head.sequence, head.waiting, head.waiting_id) == (1, 2, entry(2).event_id)
        assert await claim(store, entry(1, key="k2")), "other keys flow"

    async def test_a_key_whose_first_event_fails_waits_for_it(self, store: Store) -> None:
        await hold(store, held(entry(1), "retrying"))
        assert not await claim(store, entry(1))
        assert not await claim(store, entry(2))
        head = await standing(store, entry(2))
        assert (head.sequence, head.event_id, head.waiting) == (0, "", 1)
        assert [due.entry.sequence for due in await self.due(store)] == [1]

    async def test_a_key_that_begins_with_a_gap_waits_for_one(self, store: Store) -> None:
        await hold(store, held(entry(3), "gap"))
        head = await standing(store, entry(1))
        assert (head.sequence, head.waiting) == (0, 3)

    async def test_an_adopted_key_whose_first_event_fails_waits_for_that(self, store: Store) -> None:
        await store.inbox.register(CONSUMER, TOPIC, True)
        await hold(store, held(entry(7), "retrying"))
        assert not await claim(store, entry(8))
        head = await standing(store, entry(8))
        assert (head.sequence, head.event_id, head.waiting) == (6, "", 7)
        assert [due.entry.sequence for due in await self.due(store)] == [7]

    async def test_a_run_is_counted_before_it_begins(self, store: Store) -> None:
        await hold(store, held(entry(1), "retrying"))
        (first,) = await self.due(store, visibility=30)
        assert (first.attempts, first.next_at) == (1, self.clock.now() + 30)
        assert await self.due(store) == [], "it is in somebody's hands"
        await self.later(31)
        (second,) = await self.due(store)
        assert second.attempts == 2
        assert second.turn > first.turn

    async def test_an_event_is_not_due_before_its_time(self, store: Store) -> None:
        await hold(store, msgspec.structs.replace(held(entry(1), "retrying"), next_at=self.clock.now() + 10))
        assert await self.due(store) == []
        await self.later(10)
        assert len(await self.due(store)) == 1

    async def test_only_the_next_of_a_key_is_due(self, store: Store) -> None:
        await hold(store, held(entry(3), "retrying"), held(entry(2), "retrying"), held(entry(1), "retrying"))
        await hold(store, held(entry(None), "retrying"), held(entry(1, key="k2"), "dead"))
        assert [found.entry.sequence for found in await self.due(store)] == [1, None]

    async def test_due_events_come_oldest_first_and_no_more_than_asked(self, store: Store) -> None:
        for key, at in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
            await hold(store, msgspec.structs.replace(held(entry(1, key=key), "retrying"), next_at=at))
        assert [found.entry.key for found in await self.due(store, limit=2)] == ["b", "c"]

    async def test_two_workers_never_get_the_same_event(self, store: Store, other: Store) -> None:
        await hold(store, *(held(entry(1, key=f"k{n}"), "retrying") for n in range(20)))
        shares = await asyncio.gather(*((store, other)[n % 2].held.claim_due(CONSUMER, 4, 30) for n in range(6)))
        taken = [found.id for share in shares for found in share]
        assert len(taken) == len(set(taken)) == 20

    async def test_a_worker_that_was_too_slow_changes_nothing(self, store: Store) -> None:
        await hold(store, held(entry(1), "retrying"))
        (slow,) = await self.due(store, visibility=10)
        await self.later(11)
        (current,) = await self.due(store)
        async with store.begin() as tx:
            assert not await store.held.remove(tx, slow)
            assert not await store.held.change(tx, msgspec.structs.replace(slow, state="dead"))
            assert await store.held.change(tx, msgspec.structs.replace(current, state="dead"))
            assert not await store.held.change(tx, current), "a change ends the turn"

    async def test_whoever_has_the_id_of_another_event_changes_nothing(self, store: Store) -> None:
        """A server that took over gives ids again that it never saw."""
        await hold(store, held(entry(1), "retrying"))
        (mine,) = await self.due(store)
        another = msgspec.structs.replace(mine, entry=msgspec.structs.replace(mine.entry, event_id="another"))
        async with store.begin() as tx:
            assert not await store.held.remove(tx, another)
            assert not await store.held.change(tx, msgspec.structs.replace(another, state="dead"))
            assert await store.held.remove(tx, mine)

    async def test_a_claim_that_is_kept_lasts_from_then_on_and_its_turn_goes_on(
        self, store: Store, other: Store
    ) -> None:
        await hold(store, held(entry(1), "retrying"), held(entry(1, key="k2"), "retrying"))
        kept, left = await self.due(store, visibility=10)
        await self.later(9)
        await store.held.keep([kept], 10)
        await self.later(9)
        assert [found.id for found in await self.due(other)] == [left.id], "the other one comes again"
        (found,) = await store.held.find(HeldFilter(ids=[kept.id]))
        assert (found.attempts, found.turn) == (kept.attempts, kept.turn)
        async with store.begin() as tx:
            assert await store.held.remove(tx, kept)

    async def test_a_claim_that_has_passed_to_someone_else_cannot_be_kept(self, store: Store) -> None:
        await hold(store, held(entry(1), "retrying"))
        (slow,) = await self.due(store, visibility=10)
        await self.later(11)
        (current,) = await self.due(store, visibility=10)
        await store.held.keep([slow], 100)
        await store.held.keep([], 100)
        (found,) = await store.held.find(HeldFilter())
        assert found.next_at == current.next_at

    async def test_nobody_waits_to_keep_a_claim_that_its_own_run_is_about_to_end(self, store: Store) -> None:
        if store.embedded:
            pytest.skip("one transaction at a time writes to it: nobody else could claim the event meanwhile")
        await hold(store, held(entry(1), "retrying"))
        (found,) = await self.due(store)
        async with asyncio.timeout(10), store.begin() as tx:
            assert await store.held.remove(tx, found)
            await store.held.keep([found], 30)
        assert await store.held.find(HeldFilter()) == []

    async def test_a_key_goes_on_when_what_it_waited_for_is_applied(self, store: Store) -> None:
        await hold(store, held(entry(1), "retrying"))
        (due,) = await self.due(store)
        async with store.begin() as tx:
            assert await store.held.remove(tx, due)
            await store.inbox.advance(tx, CONSUMER, due.entry)
        assert await claim(store, entry(2))

    async def test_a_change_is_stored_as_given(self, store: Store) -> None:
        await hold(store, held(entry(1), "retrying"))
        (found,) = await store.held.find(HeldFilter())
        changed = msgspec.structs.replace(
            found, state="dead", attempts=9, next_at=1.5, body=b"mended", reason="r", error="e", stack="s"
        )
        async with store.begin() as tx:
            assert await store.held.change(tx, changed)
        (after,) = await store.held.find(HeldFilter())
        assert after == msgspec.structs.replace(changed, turn=after.turn, last_at=self.clock.now())

    @pytest.mark.parametrize("state", ["quarantined", "skipped"])
    async def test_a_key_waits_exactly_while_something_blocks_it(self, store: Store, state: HeldState) -> None:
        await claim(store, entry(1))
        await hold(store, held(entry(2), "retrying"))
        await change(store, "dead")
        assert (await standing(store, entry(2))).waiting == 2
        await change(store, state)
        assert (await standing(store, entry(2))).waiting is None
        await change(store, "retrying")
        assert (await standing(store, entry(2))).waiting == 2
        assert not await claim(store, entry(2, event_id="other"))
        await change(store, state)
        assert await claim(store, entry(2, event_id="other"))

    @pytest.mark.parametrize("state", ["dead", "quarantined"])
    async def test_an_event_that_loses_its_number_keeps_nobody_waiting(self, store: Store, state: HeldState) -> None:
        await claim(store, entry(1))
        await hold(store, held(entry(2), state))
        (found,) = await store.held.find(HeldFilter())
        alone = msgspec.structs.replace(found.entry, sequence=None)
        async with store.begin() as tx:
            assert await store.held.change(tx, msgspec.structs.replace(found, entry=alone, state="retrying"))
        assert [due.entry for due in await self.due(store)] == [alone]
        assert await claim(store, entry(2, event_id="other"))

    async def test_an_event_set_aside_may_wait_again_unless_its_number_is_taken(self, store: Store) -> None:
        await hold(store, held(entry(1), "gap"), held(entry(1, event_id="fork"), "quarantined"))
        (fork,) = await store.held.find(HeldFilter(state="quarantined"))
        with pytest.raises(StoreError, match="number 1"):
            async with store.begin() as tx:
                await store.held.change(tx, msgspec.structs.replace(fork, state="retrying"))

    async def test_the_next_of_a_key_is_promoted(self, store: Store) -> None:
        tried = msgspec.structs.replace(held(entry(2), "blocked"), attempts=3, next_at=self.clock.now() + 60)
        await hold(store, tried, held(entry(3), "blocked"), held(entry(2, key="k2"), "blocked"))
        async with store.begin() as tx:
            await store.inbox.advance(tx, CONSUMER, entry(1))
            assert await store.held.promote(tx, CONSUMER, entry(1))
            assert not await store.held.promote(tx, CONSUMER, entry(5))
            assert not await store.held.promote(tx, CONSUMER, entry(None))
        (due,) = await self.due(store)
        assert (due.entry.sequence, due.entry.key, due.attempts) == (2, "k", 1)

    async def test_next_due_tells_when_somebody_must_look(self, store: Store) -> None:
        assert await store.held.next_due(CONSUMER) is None
        at = self.clock.now()
        for event, next_at in (
            (held(entry(1), "retrying"), at + 30),
            (held(entry(2), "retrying"), at + 1),  # not its turn
            (held(entry(2, key="k2"), "gap"), at + 20),
            (held(entry(1, key="k3"), "dead"), at + 2),
        ):
            await hold(store, msgspec.structs.replace(event, next_at=next_at))
        assert await store.held.next_due(CONSUMER) == pytest.approx(20)
        assert await store.held.next_due("shipping") is None

    async def test_what_is_due_and_never_in_turn_is_a_stray(self, store: Store) -> None:
        await hold(store, held(entry(1), "retrying"), held(entry(2), "blocked"))
        assert await store.held.strays(CONSUMER) == []
        (first, second) = await store.held.find(HeldFilter())
        async with store.begin() as tx:
            await store.held.change(tx, msgspec.structs.replace(second, state="retrying", after=5.0))
        assert await store.held.strays(CONSUMER) == [], "it is not due yet"
        await self.later(6)
        (stray,) = await store.held.strays(CONSUMER)
        assert stray.entry.sequence == 2
        assert await store.held.strays("another") == []
        async with store.begin() as tx:
            assert await store.held.remove(tx, first)
            assert await store.inbox.advance(tx, CONSUMER, first.entry)
        assert await store.held.strays(CONSUMER) == [], "its turn has come"

    async def test_what_keeps_a_key_waiting_is_counted_anew(self, store: Store) -> None:
        await hold(store, held(entry(1), "retrying"), held(entry(2), "blocked"))
        async with store.begin() as tx:
            await store.held.recount(tx, CONSUMER, entry(1))
            known = await store.inbox.position_of(tx, CONSUMER, entry(3))
        assert isinstance(known, KeyPosition)
        assert known.waiting == 1
        for one in await store.held.find(HeldFilter()):
            async with store.begin() as tx:
                assert await store.held.remove(tx, one)
                await store.held.recount(tx, CONSUMER, one.entry)
                assert await store.inbox.advance(tx, CONSUMER, one.entry)
        async with store.begin() as tx:
            assert list(await store.inbox.claim(tx, CONSUMER, [entry(3)])) == [True]

    async def test_a_gap_is_overdue_after_its_deadline(self, store: Store) -> None:
        await hold(store, msgspec.structs.replace(held(entry(2), "gap"), next_at=self.clock.now() + 10))
        assert await store.held.overdue_gaps(CONSUMER) == []
        assert (await store.counts()).overdue == {}
        assert await store.held.next_due(CONSUMER) == pytest.approx(10)
        await self.later(10)
        (overdue,) = await store.held.overdue_gaps(CONSUMER)
        assert (await store.counts()).overdue == {(CONSUMER, TOPIC): 1}
        assert overdue.entry.sequence == 2
        assert await store.held.next_due(CONSUMER) is None, "it was alarmed, and nobody looks for it again"

    async def test_of_many_gaps_past_their_deadline_those_that_waited_longest_are_told(self, store: Store) -> None:
        at = self.clock.now()
        for number in range(4):
            gap = held(entry(2, key=f"k{number}"), "gap")
            await hold(store, msgspec.structs.replace(gap, next_at=at + 10 - number))
        await self.later(10)
        told = await store.held.overdue_gaps(CONSUMER, limit=3)
        assert [gap.entry.key for gap in told] == ["k3", "k2", "k1"]

    async def test_what_is_written_is_due_so_many_seconds_after_by_the_clock_of_the_store(self, store: Store) -> None:
        await hold(store, msgspec.structs.replace(held(entry(1), "retrying"), after=10.0, next_at=1.0))
        (found,) = await store.held.find(HeldFilter())
        began = self.clock.now()
        assert (found.first_at, found.last_at, found.next_at) == (began, began, began + 10)
        await self.later(5)
        async with store.begin() as tx:
            assert await store.held.change(tx, msgspec.structs.replace(found, after=20.0))
        (found,) = await store.held.find(HeldFilter())
        assert (found.first_at, found.last_at, found.next_at) == (began, began + 5, began + 25)

    async def test_held_events_are_found_by_what_they_are(self, store: Store) -> None:
        await hold(store, held(entry(1), "dead"), held(entry(2), "blocked"), held(entry(1, key="k2"), "dead"))
        await hold(store, held(entry(1, tenant="t2"), "dead"), held(entry(1, topic="shop.other"), "dead"))
        every = await store.held.find(HeldFilter())

        async def count(wanted: HeldFilter) -> int:
            return len(await store.held.find(wanted))

        assert [found.id for found in every] == sorted(found.id for found in every)
        assert await count(HeldFilter(state="dead")) == 4
        assert await count(HeldFilter(tenant="t2")) == 1
        assert await count(HeldFilter(topic=TOPIC, key="k", tenant="t1")) == 2
        assert await count(HeldFilter(consumer="shipping")) == 0
        assert await store.held.find(HeldFilter(ids=[every[1].id, every[3].id])) == [every[1], every[3]]
        assert await store.held.find(HeldFilter(), after=every[1].id, limit=2) == every[2:4]

    async def test_the_newest_held_event_is_known(self, store: Store) -> None:
        assert await store.held.newest() == 0
        await hold(store, held(entry(1), "retrying"), held(entry(1, key="k2"), "dead"))
        assert await store.held.newest() == max(event.id for event in await store.held.find(HeldFilter()))

    async def test_held_events_are_counted_by_state_until_they_are_given_up(self, store: Store) -> None:
        await hold(store, held(entry(1), "dead"), held(entry(2), "blocked"), held(entry(3), "blocked"))
        await hold(store, held(entry(9), "skipped"))
        assert (await store.counts()).held == {(CONSUMER, TOPIC, "dead"): 1, (CONSUMER, TOPIC, "blocked"): 2}

    async def test_frames_in_which_no_event_could_be_read_are_counted_apart(self, store: Store) -> None:
        """Junk makes up for no event that is lost, whether it is left in quarantine or given up."""
        known = msgspec.structs.replace(held(entry(4), "quarantined"), type="order.placed.v1")
        given_up = msgspec.structs.replace(held(entry(5), "skipped"), type="order.placed.v1")
        await hold(store, known, given_up)
        await hold(store, held(entry(None), "quarantined"), held(entry(None), "quarantined"))
        await hold(store, held(entry(None), "skipped"))
        counts = await store.counts()
        assert (counts.held, counts.skipped) == ({(CONSUMER, TOPIC, "quarantined"): 1}, {(CONSUMER, TOPIC): 1})
        assert counts.strange == {(CONSUMER, TOPIC): 3}

    async def due(self, store: Store, *, limit: int = 10, visibility: float = 30.0) -> Sequence[HeldEvent]:
        return await store.held.claim_due(CONSUMER, limit, visibility)


async def change(store: Store, state: HeldState) -> None:
    """Put the only held event into another state."""
    (found,) = await store.held.find(HeldFilter())
    async with store.begin() as tx:
        assert await store.held.change(tx, msgspec.structs.replace(found, state=state))
