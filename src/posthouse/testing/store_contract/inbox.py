"""Each event is claimed once: by its number in a key, or by its id."""

from __future__ import annotations

import msgspec
import pytest

from posthouse.store import HeldFilter, KeyPosition, Seen, Store
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, drawn, entry, held
from posthouse.testing.store_contract.steps import claim, failing, hold, standing

either = pytest.mark.parametrize("lazily", [False, True], ids=["begun", "lazily"])
"""A claim may be the first that a lazy transaction says."""


class InboxContract(StoreFixtures):
    """What `InboxTable` promises."""

    # Ordered

    @either
    async def test_a_key_is_claimed_number_by_number(self, store: Store, lazily: bool) -> None:
        assert [await claim(store, entry(n), lazily=lazily) for n in (1, 2, 3)] == [True, True, True]
        assert (await standing(store, entry(3))).sequence == 3
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 3}

    @either
    async def test_duplicates_gaps_and_forks_are_not_claimed_and_the_head_tells_why(
        self, store: Store, lazily: bool
    ) -> None:
        await claim(store, entry(1))
        await claim(store, entry(2))
        for refused in (entry(1), entry(2), entry(2, event_id="fork"), entry(4)):
            assert not await claim(store, refused, lazily=lazily)
        head = await standing(store, entry(2, event_id="fork"))
        expected = entry(2)
        assert head == KeyPosition(sequence=2, lineage=1, event_id=expected.event_id, digest=expected.digest)
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 2}

    @either
    async def test_a_key_begins_at_one(self, store: Store, lazily: bool) -> None:
        assert not await claim(store, entry(2), lazily=lazily)
        async with store.begin() as tx:
            assert await store.inbox.position_of(tx, CONSUMER, entry(2)) is None
        assert await claim(store, entry(1), lazily=lazily)

    @either
    async def test_a_consumer_that_adopts_begins_anywhere_and_goes_on_from_there(
        self, store: Store, lazily: bool
    ) -> None:
        assert await store.inbox.register(CONSUMER, TOPIC, True)
        assert [await claim(store, entry(n), lazily=lazily) for n in (7, 9, 8, 6)] == [True, False, True, False]
        assert (await standing(store, entry(8))).event_id == entry(8).event_id
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 2}

    async def test_of_many_events_those_of_an_adopted_topic_begin_anywhere_and_the_others_at_one(
        self, store: Store
    ) -> None:
        await store.inbox.register(CONSUMER, TOPIC, True)
        await store.inbox.register(CONSUMER, "shop.other", False)
        late, other = entry(7), entry(7, topic="shop.other")
        many = [late, entry(8), entry(3, key="k2"), entry(1, key="k3"), other, entry(1, topic="shop.third")]
        async with store.begin() as tx:
            assert await store.inbox.claim(tx, CONSUMER, many) == [True, True, True, True, False, True]
        async with store.begin() as tx:
            assert await store.inbox.position_of(tx, CONSUMER, other) is None
            following = [entry(9), entry(4, key="k2"), entry(3, key="k3")]
            assert await store.inbox.claim(tx, CONSUMER, following) == [True, True, False]
        assert (await standing(store, late)).sequence == 9
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 6, (CONSUMER, "shop.third"): 1}

    @either
    async def test_behind_a_held_event_nothing_is_claimed(self, store: Store, lazily: bool) -> None:
        await claim(store, entry(1))
        await hold(store, held(entry(2), "retrying"), held(entry(1, key="k2"), "retrying"))
        for refused in (entry(2), entry(3), entry(1, key="k2"), entry(2, key="k2")):
            assert not await claim(store, refused, lazily=lazily)
        async with store.begin() as tx:
            assert not any(await store.inbox.claim(tx, CONSUMER, [entry(2), entry(1, key="k2")]))
        heads = await standing(store, entry(2)), await standing(store, entry(1, key="k2"))
        assert [(head.sequence, head.waiting) for head in heads] == [(1, 2), (0, 1)]

    async def test_the_first_answer_to_adopting_stays(self, store: Store, other: Store) -> None:
        assert not await store.inbox.register(CONSUMER, TOPIC, False)
        assert not await other.inbox.register(CONSUMER, TOPIC, True)
        assert await store.inbox.register(CONSUMER, "shop.other", True)
        assert not await claim(store, entry(7))

    async def test_a_claim_commits_with_the_handlers_writes_or_not_at_all(self, store: Store) -> None:
        async with failing(store) as tx:
            assert await store.inbox.claim(tx, CONSUMER, [entry(1)]) == [True]
        assert (await store.counts()).applied == {}
        assert await claim(store, entry(1))

    async def test_many_events_are_claimed_at_once_each_with_its_own_answer(self, store: Store) -> None:
        await claim(store, entry(1))
        await hold(store, held(entry(1, key="k2"), "retrying"))
        many = [entry(2, key="k3"), entry(2), entry(1, key="k2"), entry(3), entry(1, key="k4"), entry(5)]
        async with store.begin() as tx:
            answers = await store.inbox.claim(tx, CONSUMER, many)
        assert answers == [False, True, False, True, True, False]
        assert (await standing(store, entry(4))).sequence == 3
        assert (await standing(store, entry(1, key="k4"))).sequence == 1
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 4}

    async def test_a_run_of_a_key_ends_with_its_last_event_and_newer_lineages_go_on(self, store: Store) -> None:
        run = [entry(1), entry(2), entry(3, lineage=2), entry(4, lineage=2)]
        async with store.begin() as tx:
            assert await store.inbox.claim(tx, CONSUMER, run) == [True] * 4
        last = run[-1]
        head = KeyPosition(sequence=4, lineage=2, event_id=last.event_id, digest=last.digest, lineages=((1, 2),))
        assert await standing(store, entry(4)) == head
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 4}

    @either
    async def test_a_head_keeps_the_newest_draw_of_all_that_its_key_has_passed(
        self, store: Store, lazily: bool
    ) -> None:
        """Ids are drawn when facts are said, numbers when they commit: a later number may have the older id."""
        second = entry(2, event_id=drawn(5))
        for one, newest in ((entry(1, event_id=drawn(9)), 9), (second, 9), (entry(3, event_id=drawn(12)), 12)):
            assert await claim(store, one, lazily=lazily)
            assert (await standing(store, one)).newest == newest
        assert not await claim(store, entry(3, event_id=drawn(99)), lazily=lazily)
        async with store.begin() as tx:
            await store.inbox.advance(tx, CONSUMER, entry(4, event_id="tells nothing"))
            await store.inbox.advance(tx, CONSUMER, entry(5, event_id=drawn(7)))
        assert (await standing(store, second)).newest == 12
        async with store.begin() as tx:
            await store.inbox.advance(tx, CONSUMER, entry(6, event_id=drawn(13)))
        assert (await standing(store, second)).newest == 13

    async def test_a_head_keeps_the_newest_draw_of_runs_wherever_it_is_in_them(self, store: Store) -> None:
        await store.inbox.register(CONSUMER, TOPIC, True)
        for numbers in ((1, 2, 3), (4, 5, 6)):  # runs that begin a key, and runs that go on
            runs = [
                entry(n, key=key, event_id=drawn(100 * n if n % 3 == 2 else n)) for key in ("k", "l") for n in numbers
            ]
            async with store.begin() as tx:
                assert await store.inbox.claim(tx, CONSUMER, runs) == [True] * 6
            for key in ("k", "l"):
                assert (await standing(store, entry(1, key=key))).newest == 100 * numbers[1]
        late = entry(8, key="late", event_id=drawn(8))
        assert await claim(store, late)
        assert (await standing(store, late)).newest == 8

    async def test_the_repeat_of_a_run_is_not_claimed_and_what_follows_it_is_known_as_next(self, store: Store) -> None:
        async with store.begin() as tx:
            await store.inbox.claim(tx, CONSUMER, [entry(1), entry(2)])
        async with store.begin() as tx:
            first, second, third = await store.inbox.claim(tx, CONSUMER, [entry(1), entry(2), entry(3)])
            assert (first, second) == (False, False)
            head = await store.inbox.position_of(tx, CONSUMER, entry(3))
            assert isinstance(head, KeyPosition)
            assert head.sequence == (3 if third else 2)

    @pytest.mark.parametrize(
        "name", ["o'brien", "back\\slash\\'", "né \U0001f600", "$1 {schema} %s", "E'", "line\nbreak", ""]
    )
    async def test_a_first_statement_of_a_lazy_transaction_takes_any_text(self, store: Store, name: str) -> None:
        one = entry(1, key=name, event_id=f"e{name}")
        for expected in (True, False):
            async with store.begin(lazily=True) as tx:
                assert await store.inbox.claim(tx, CONSUMER, [one]) == [expected]
                assert (await tx.execute("SELECT 1")) == [(1,)]
        head = KeyPosition(sequence=1, lineage=1, event_id=one.event_id, digest=one.digest)
        assert await standing(store, one) == head
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 1}

    async def test_a_claim_that_begins_a_transaction_goes_with_it(self, store: Store) -> None:
        async with failing(store, lazily=True) as tx:
            assert await store.inbox.claim(tx, CONSUMER, [entry(1)]) == [True]
        assert (await store.counts()).applied == {}
        assert await claim(store, entry(1))

    async def test_heads_belong_to_consumer_topic_tenant_and_key(self, store: Store) -> None:
        others = (entry(1), entry(1, topic="shop.other"), entry(1, tenant="t2"), entry(1, key="k2"))
        assert all([await claim(store, one) for one in others])
        assert await claim(store, entry(1), consumer="shipping")

    @either
    async def test_a_newer_lineage_goes_on_and_an_older_one_does_not(self, store: Store, lazily: bool) -> None:
        assert await claim(store, entry(1), lazily=lazily)
        assert await claim(store, entry(2, lineage=2), lazily=lazily)
        assert not await claim(store, entry(3, lineage=1), lazily=lazily)
        assert (await standing(store, entry(3))).lineage == 2

    @either
    async def test_a_head_keeps_where_each_lineage_ended(self, store: Store, lazily: bool) -> None:
        for one in (entry(1), entry(2), entry(3, lineage=2), entry(4, lineage=2), entry(5, lineage=4)):
            assert await claim(store, one, lazily=lazily)
        assert (await standing(store, entry(5))).lineages == ((1, 2), (2, 4))
        async with store.begin() as tx:
            await store.inbox.advance(tx, CONSUMER, entry(9, lineage=5))
        assert (await standing(store, entry(5))).lineages == ((1, 2), (2, 4), (4, 5))

    async def test_heads_that_are_claimed_together_keep_where_each_lineage_ended(self, store: Store) -> None:
        await hold(store, first := held(entry(1, key="k3"), "retrying"))
        async with store.begin() as tx:
            (found,) = await store.held.find(HeldFilter(key="k3"))
            assert await store.held.remove(tx, found), first
            began = [entry(1), entry(1, key="k2"), entry(2, key="k2")]
            assert await store.inbox.claim(tx, CONSUMER, began) == [True] * 3
        runs = [entry(2, lineage=2), entry(3, lineage=2), entry(3, key="k2", lineage=3), entry(1, key="k3", lineage=2)]
        async with store.begin() as tx:
            assert await store.inbox.claim(tx, CONSUMER, runs) == [True] * 4
        heads = [await standing(store, entry(1, key=key)) for key in ("k", "k2", "k3")]
        assert [(head.sequence, head.lineages) for head in heads] == [(3, ((1, 1),)), (3, ((1, 2),)), (1, ())]

    async def test_a_head_does_not_grow_without_end_with_the_lineages_that_it_has_seen(self, store: Store) -> None:
        many = [entry(n, lineage=n) for n in range(1, 201)]
        async with store.begin() as tx:
            for one in many:
                await store.inbox.advance(tx, CONSUMER, one)
        kept = (await standing(store, entry(1))).lineages
        assert 10 < len(kept) < 100
        assert kept[-1] == (199, 199)

    async def test_advance_passes_what_is_held_and_never_goes_back(self, store: Store) -> None:
        await hold(store, held(entry(2), "gap"))
        async with store.begin() as tx:
            await store.inbox.advance(tx, CONSUMER, entry(1))
            await store.inbox.advance(tx, CONSUMER, entry(2), skipped=True)
            await store.inbox.advance(tx, CONSUMER, entry(1, event_id="old"))
        assert (await standing(store, entry(1))).sequence == 2
        assert (await store.counts()).skipped == {(CONSUMER, TOPIC): 1}

    # Unordered

    async def test_an_event_without_a_number_is_claimed_once(self, store: Store) -> None:
        one = entry(None)
        assert [await claim(store, one), await claim(store, one)] == [True, False]
        async with store.begin() as tx:
            assert await store.inbox.position_of(tx, CONSUMER, one) == Seen(digest=one.digest)
            assert await store.inbox.position_of(tx, CONSUMER, entry(None)) is None
        assert await claim(store, one, consumer="shipping")
        assert await claim(store, msgspec.structs.replace(one, tenant="t2"))

    async def test_advance_tells_whether_an_event_without_a_number_was_known(self, store: Store) -> None:
        one, counted = entry(None), {(CONSUMER, TOPIC): 1}
        for fresh in (True, False):
            async with store.begin() as tx:
                assert await store.inbox.advance(tx, CONSUMER, one) is fresh
        assert (await store.counts()).applied == counted
        async with store.begin() as tx:
            assert await store.inbox.advance(tx, CONSUMER, entry(None), counted=False)
        assert (await store.counts()).applied == counted

    async def test_many_events_without_numbers_are_claimed_at_once_and_a_copy_among_them_once(
        self, store: Store
    ) -> None:
        known, one, two = entry(None), entry(None), entry(None)
        await claim(store, known)
        async with store.begin() as tx:
            answers = await store.inbox.claim(tx, CONSUMER, [one, known, two, one])
        assert answers == [True, False, True, False]
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 3}

    async def test_unordered_events_are_forgotten_by_age_and_it_is_noted_up_to_when(self, store: Store) -> None:
        old = [entry(None, time=time) for time in (500.0, 900.0, 700.0)]
        for one in old:
            await claim(store, one)
        await self.later(100)
        await claim(store, young := entry(None, time=950.0))
        assert await store.inbox.purged_until(CONSUMER) is None
        assert [await store.inbox.purge(50, 2), await store.inbox.purge(50, 2)] == [2, 1]
        assert await store.inbox.purged_until(CONSUMER) == self.clock.now() - 50
        assert await store.inbox.purged_until("shipping") is None
        assert not await claim(store, young)
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 4}

    async def test_what_may_have_been_forgotten_is_not_claimed_again(self, store: Store) -> None:
        now = self.clock.now()
        old, ahead = entry(None, time=now), msgspec.structs.replace(entry(None, time=now), said=now + 3600)
        for one in (old, ahead):
            assert await claim(store, one)
        await self.later(1000)
        assert await store.inbox.purge(100, 10) == 1, "what was dated ahead is remembered for so much longer"
        assert not await claim(store, old)
        assert not await claim(store, ahead)
        assert await claim(store, entry(None, time=self.clock.now()))
        await self.later(3600)
        assert await store.inbox.purge(100, 10) == 2
        assert not await claim(store, msgspec.structs.replace(ahead, time=now + 3600)), (
            "stored anew, as late as it was dated"
        )

    async def test_what_is_held_after_all_does_not_count_as_applied(self, store: Store) -> None:
        async with store.begin() as tx:
            assert await store.inbox.claim(tx, CONSUMER, [entry(1), entry(2)]) == [True, True]
            await store.inbox.recall(tx, CONSUMER, TOPIC)
        assert (await store.counts()).applied == {(CONSUMER, TOPIC): 1}

    async def test_what_never_came_is_counted_as_lost_until_it_comes_after_all(
        self, store: Store, other: Store
    ) -> None:
        for seen, lost in ((0, 2), (2, 5), (5, 4)):
            async with store.begin() as tx:
                assert await store.inbox.accept_loss(tx, CONSUMER, TOPIC, seen=seen, lost=lost)
        async with failing(store) as tx:
            assert await store.inbox.accept_loss(tx, CONSUMER, TOPIC, seen=4, lost=13)
        assert (await other.counts()).lost == {(CONSUMER, TOPIC): 4}
        async with store.begin() as tx:
            assert await store.inbox.accept_loss(tx, CONSUMER, TOPIC, seen=4, lost=0)
        assert (await store.counts()).lost == {}

    async def test_a_loss_is_accepted_by_who_has_seen_what_was_accepted_before(
        self, store: Store, other: Store
    ) -> None:
        for who, answer in ((store, True), (other, False)):
            async with who.begin() as tx:
                assert await who.inbox.accept_loss(tx, CONSUMER, TOPIC, seen=0, lost=2) is answer
        async with store.begin() as tx:
            assert not await store.inbox.accept_loss(tx, CONSUMER, "another", seen=2, lost=3)
        assert (await store.counts()).lost == {(CONSUMER, TOPIC): 2}
