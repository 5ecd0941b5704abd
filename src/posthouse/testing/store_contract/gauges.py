"""How a store stands: ages by its own clock, and counts that are those of `counts`."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

import pytest
from msgspec.structs import replace

from posthouse.store import BLOCKING, HeldFilter, HeldState, Store, Sums, Timer, Transaction
from posthouse.store.projections import Generation
from posthouse.store.sagas import SagaStatus
from posthouse.store.schedules import ScheduleRow
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.sagas import added, ended, saga, saved, turn
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, entry, held, row, stuck
from posthouse.testing.store_contract.steps import add, claim, drain, failing, hold

STATES: tuple[HeldState, ...] = get_args(HeldState)

NEAR = 5.0
"""Seconds that a test may take of its own."""


class GaugeContract(StoreFixtures):
    """What `gauges` promises of the core."""

    async def test_a_store_in_which_nothing_happened_stands_at_nothing(self, store: Store) -> None:
        gauges = await store.gauges()
        assert abs(gauges.at - self.clock.now()) < NEAR
        assert gauges.counts == await store.counts()
        assert (gauges.oldest_unsent, gauges.unsent_oldest, gauges.timers_overdue) == (0.0, {}, 0.0)
        assert (gauges.held_oldest, gauges.held_runnable, gauges.held_due) == ({}, {}, {})
        assert gauges.shards_leased == gauges.leases == 0
        assert gauges.shards_free > 0

    async def test_it_counts_what_the_counts_say(self, store: Store) -> None:
        await add(store, row("a"), row("b"), row(None, topic="shop.others"))
        await claim(store, entry(1))
        await hold(store, held(entry(5), "gap"), held(entry(None), "quarantined"), held(entry(1, key="other"), "dead"))
        gauges = await store.gauges()
        assert gauges.counts == await store.counts()
        assert gauges.counts.unsent == {TOPIC: 2, "shop.others": 1}
        assert gauges.counts.sums == await store.sums()
        assert sum(gauges.counts.held.values()) + sum(gauges.counts.strange.values()) == 3
        assert not gauges.counts.estimated

    async def test_the_sums_are_what_was_sent_and_what_consumers_have_accounted_for(self, store: Store) -> None:
        assert await store.sums() == Sums(sent={}, accounted={}, strange={})
        await add(store, row("a"), row("b"), row(None, topic="shop.others"))
        await drain(store)
        await add(store, row("c"))
        await claim(store, entry(1))
        await hold(store, held(entry(5), "gap"), held(entry(1, key="other"), "dead"))
        await hold(store, replace(held(entry(None), "skipped"), type="shop.paid.v1"))
        await hold(store, replace(held(entry(None), "quarantined"), type=""))
        async with store.begin() as tx:
            assert await store.inbox.accept_loss(tx, CONSUMER, TOPIC, seen=0, lost=7)
        sums = await store.sums()
        assert sums.sent == {TOPIC: 2, "shop.others": 1}
        assert (sum(sums.accounted.values()), sum(sums.strange.values())) == (1 + 3 + 7, 1)
        assert sums == (await store.counts()).sums == (await store.gauges()).counts.sums

    async def test_the_oldest_of_each_state_is_as_old_as_it_has_been_held(self, store: Store) -> None:
        await hold(store, held(entry(2), "gap"))
        await self.later(100)
        await hold(store, held(entry(3), "blocked"), held(entry(2, key="other"), "gap"))
        await self.later(10)
        oldest = (await store.gauges()).held_oldest
        assert set(oldest) == {(CONSUMER, "gap"), (CONSUMER, "blocked")}
        assert 110 <= oldest[CONSUMER, "gap"] < 110 + NEAR
        assert 10 <= oldest[CONSUMER, "blocked"] < 10 + NEAR

    async def test_a_retry_that_is_due_and_a_gap_past_its_deadline_wait_to_be_taken_up(self, store: Store) -> None:
        await hold(store, replace(held(entry(None), "retrying"), after=30.0))
        await hold(store, replace(held(entry(2), "gap"), consumer="other", after=20.0))
        assert (await store.gauges()).held_runnable == {}
        await self.later(50)
        waits = (await store.gauges()).held_runnable
        assert set(waits) == {CONSUMER, "other"}
        assert 20 <= waits[CONSUMER] < 20 + NEAR
        assert 30 <= waits["other"] < 30 + NEAR
        assert await store.held.claim_due(CONSUMER, 10, 60.0)
        assert set((await store.gauges()).held_runnable) == {"other"}, "what somebody has in hand does not wait"

    async def test_retries_whose_time_and_turn_have_come_are_counted_as_due(self, store: Store) -> None:
        for number in range(3):
            await hold(store, replace(held(entry(None), "retrying"), after=10.0 * number))
        await hold(store, replace(held(entry(7), "retrying"), after=0.0))  # its turn is not yet
        await hold(store, replace(held(entry(2), "gap"), consumer="other", after=0.0))  # nobody can run it
        await self.later(15)
        assert (await store.gauges()).held_due == {CONSUMER: 2}
        await self.later(10)
        assert (await store.gauges()).held_due == {CONSUMER: 3}
        assert len(await store.held.claim_due(CONSUMER, 2, 60.0)) == 2
        assert (await store.gauges()).held_due == {CONSUMER: 1}, "what somebody has in hand is not due"

    async def test_what_was_given_up_has_no_age(self, store: Store) -> None:
        await hold(store, held(entry(None), "skipped"))
        assert (await store.gauges()).held_oldest == {}

    async def test_a_row_that_the_broker_refused_is_as_old_as_the_refusal(self, store: Store) -> None:
        await add(store, row("a"), row("b", topic="shop.others"))
        shards = await store.outbox.lease("r", 3600)
        poll = await store.outbox.poll(shards, 10)
        refused = [stuck(one, quarantined=one.topic == "shop.others") for one in poll.rows]
        assert await store.outbox.settle("r", poll, refused)
        await self.later(70)
        gauges = await store.gauges()
        assert (gauges.counts.stuck, gauges.counts.refused) == (2, {"shop.others": 1})
        assert set(gauges.unsent_oldest) == {TOPIC}, "what is refused for good goes nowhere by itself"
        assert 70 <= gauges.unsent_oldest[TOPIC] == gauges.oldest_unsent < 70 + NEAR

    async def test_a_timer_that_nobody_fires_is_overdue(self, store: Store) -> None:
        async with store.begin() as tx:
            await store.timers.set(tx, Timer(name="n", due_at=0.0, after=10.0, row=row("k")))
        assert (await store.gauges()).timers_overdue == 0.0
        await self.later(40)
        gauges = await store.gauges()
        assert gauges.counts.timers == 1
        assert 30 <= gauges.timers_overdue < 30 + NEAR
        await store.timers.fire(10)
        gauges = await store.gauges()
        assert (gauges.counts.timers, gauges.timers_overdue) == (0, 0.0)

    async def test_shards_are_leased_or_free_and_each_lease_counts(self, store: Store) -> None:
        shards = await store.outbox.lease("a", 30)
        gauges = await store.gauges()
        assert (gauges.shards_leased, gauges.shards_free) == (len(shards), 0)
        assert gauges.leases >= len(shards)
        await self.later(31)
        assert (await store.gauges()).shards_leased == 0
        await store.outbox.lease("b", 30)
        assert (await store.gauges()).leases == gauges.leases + len(shards)

    async def test_the_oldest_row_that_is_not_sent_has_an_age_until_it_is_sent(self, store: Store) -> None:
        assert (await store.gauges()).oldest_unsent == 0.0
        await add(store, row("a"))
        assert set((await store.gauges()).unsent_oldest) == {TOPIC}
        await drain(store)
        assert (await store.gauges()).oldest_unsent == 0.0

    @pytest.mark.parametrize("seed", [1, 2, 3])
    async def test_whatever_happens_the_tally_is_what_is_there(self, store: Store, other: Store, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            await step(chance, chance.choice((store, other)))
        for each in (store, other):
            assert await tallied(each) == await there(each)


async def step(chance: random.Random, store: Store) -> None:
    """Something that happens to held events and timers: in a transaction that may fail, or by housekeeping."""
    if chance.random() < 0.2:
        await store.inbox.purge(3600.0, chance.randrange(1, 20))
        return
    with contextlib.suppress(ZeroDivisionError):
        async with store.begin() as tx:
            for _ in range(chance.randrange(1, 4)):
                await change(chance, store, tx)
            if chance.random() < 0.3:
                raise ZeroDivisionError


async def change(chance: random.Random, store: Store, tx: Transaction) -> None:
    """Hold one, or change, remove or promote one of those that are there; set or cancel a timer."""
    kind = chance.choice(("hold", "hold", "change", "change", "remove", "promote", "timer", "cancel"))
    state = chance.choice(STATES)
    ordered = entry(chance.randrange(1, 9), key=chance.choice("kl"), topic=chance.choice((TOPIC, "shop.others")))
    if kind == "hold":
        one = chance.choice((ordered, entry(None)))
        consumer, named = chance.choice((CONSUMER, "other")), chance.choice(("", "shop.paid.v1"))
        await store.held.hold(tx, replace(held(one, state), consumer=consumer, type=named))
    elif kind == "timer":
        await store.timers.set(tx, Timer(name=chance.choice("abc"), due_at=0.0, after=60.0, row=row("k")))
    elif kind == "cancel":
        await store.timers.cancel(tx, "t1", chance.choice("abc"))
    elif kind == "promote":
        await store.held.promote(tx, CONSUMER, ordered)
    elif found := await store.held.find(HeldFilter()):
        one_held = chance.choice(found)
        if kind == "remove":
            await store.held.remove(tx, one_held)
        elif one_held.state not in BLOCKING:
            await store.held.change(tx, replace(one_held, state=chance.choice(("quarantined", "skipped"))))
        else:
            await store.held.change(tx, replace(one_held, state=state))


async def tallied(store: Store) -> Mapping[object, int]:
    """What `counts` says of held events and timers."""
    counts = (await store.gauges()).counts
    assert counts == await store.counts()
    assert counts.sums == await store.sums()
    found: Counter[object] = Counter({"timers": counts.timers})
    found.update(counts.held)
    found.update({(*place, "strange"): number for place, number in counts.strange.items()})
    found.update({(*place, "strange skipped"): number for place, number in counts.strange_skipped.items()})
    found.update({(*place, "skipped"): number for place, number in counts.skipped.items()})
    return +found


async def there(store: Store) -> Mapping[object, int]:
    """The same, counted one by one."""
    found: Counter[object] = Counter()
    after = 0
    while page := await store.held.find(HeldFilter(), after=after, limit=50):
        after = page[-1].id
        for one in page:
            strange = one.type == "" and one.state in ("quarantined", "skipped")
            found[one.consumer, one.entry.topic, "strange" if strange else one.state] += 1
            found[one.consumer, one.entry.topic, "strange skipped"] += strange and one.state == "skipped"
    found["timers"] = len(await store.timers.pending(limit=1000))
    return +found


class ProcessGaugeContract(StoreFixtures):
    """What `gauges` promises of processes."""

    async def test_sagas_are_counted_by_status_and_the_oldest_of_those_that_are_not_over_has_an_age(
        self, store: Store
    ) -> None:
        await added(store, saga("b1"))
        await self.later(60)
        await added(store, saga("b2"))
        await ended(store, "b2", status="completed")
        gauges = await store.gauges()
        assert gauges.sagas == {("booking", "running"): 1, ("booking", "completed"): 1}
        assert gauges.sagas == await store.sagas.counts()
        assert gauges.sagas_ended == {("booking", "completed"): 1}
        assert set(gauges.sagas_oldest) == {("booking", "running")}
        assert 60 <= gauges.sagas_oldest["booking", "running"] < 60 + NEAR

    async def test_a_saga_that_ended_counts_as_ended_when_nothing_is_left_of_it(self, store: Store) -> None:
        for id in ("b1", "b2", "b3"):
            await added(store, saga(id))
        await ended(store, "b1", status="completed")
        await ended(store, "b2", status="cancelled")
        async with failing(store) as tx:
            await store.sagas.save(tx, replace(saga("b3"), status="completed", turn=1), turn(1))
        await self.later(100)
        assert await store.sagas.purge(50, 10) == 2
        gauges = await store.gauges()
        assert gauges.sagas == await store.sagas.counts() == {("booking", "running"): 1}
        await self.later(100)
        assert await store.sagas.forget(50, 10) == 2
        await store.inbox.purge(3600.0, 100)
        gauges = await store.gauges()
        assert gauges.sagas == await store.sagas.counts() == {("booking", "running"): 1}
        assert gauges.sagas_ended == {("booking", "completed"): 1, ("booking", "cancelled"): 1}

    async def test_a_saga_counts_each_time_it_comes_to_rest_with_a_part_undone_and_once_more_when_it_ends(
        self, store: Store
    ) -> None:
        await added(store, saga("b1"))
        row = saga("b1")
        turns: Sequence[SagaStatus] = ("partial", "partial", "running", "partial", "completed")
        for number, status in enumerate(turns, 1):
            row = replace(row, status=status, turn=number)
            assert await saved(store, row)
        gauges = await store.gauges()
        assert gauges.sagas_ended == {("booking", "partial"): 2, ("booking", "completed"): 1}
        assert gauges.sagas == {("booking", "completed"): 1}

    async def test_a_schedule_whose_moment_has_passed_is_overdue_unless_it_is_paused(self, store: Store) -> None:
        now = self.clock.now()
        runs = ScheduleRow(service="shop", name="runs", expression="* * * * *", tz="UTC", next_at=now + 10)
        async with store.begin() as tx:
            await store.schedules.add(tx, runs)
            await store.schedules.add(tx, replace(runs, name="paused", paused_at=now))
        assert (await store.gauges()).schedules_overdue == {}
        await self.later(15)
        overdue = (await store.gauges()).schedules_overdue
        assert set(overdue) == {("shop", "runs")}
        assert 5 <= overdue["shop", "runs"] < 5 + NEAR

    async def test_generations_that_are_in_use_are_told_as_they_are(self, store: Store) -> None:
        async with store.begin() as tx:
            await store.projections.begin(
                tx, Generation(projection="p", number=1, version=1, state="live", tables=("t",))
            )
            await store.projections.begin(tx, Generation(projection="p", number=2, version=1, state="retired"))
        await store.projections.note("p", 1, 12.5, 13.25)
        live, _ = await store.projections.generations()
        assert list((await store.gauges()).generations) == [live]
