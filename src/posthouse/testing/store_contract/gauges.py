"""How a store stands: ages by its own clock, and counts that are those of `counts`."""

from __future__ import annotations

from msgspec.structs import replace

from posthouse.store import Store, Timer
from posthouse.store.projections import Generation
from posthouse.store.schedules import ScheduleRow
from posthouse.testing.store_contract.fixtures import StoreFixtures
from posthouse.testing.store_contract.sagas import added, ended, saga
from posthouse.testing.store_contract.samples import CONSUMER, TOPIC, entry, held, row, stuck
from posthouse.testing.store_contract.steps import add, claim, hold

NEAR = 5.0
"""Seconds that a test may take of its own."""


class GaugeContract(StoreFixtures):
    """What `gauges` promises of the core."""

    async def test_a_store_in_which_nothing_happened_stands_at_nothing(self, store: Store) -> None:
        gauges = await store.gauges()
        assert abs(gauges.at - self.clock.now()) < NEAR
        assert gauges.counts == await store.counts()
        assert (gauges.oldest_unsent, gauges.oldest_stuck, gauges.timers_overdue) == (0.0, 0.0, 0.0)
        assert (gauges.held_oldest, gauges.held_runnable) == ({}, {})
        assert gauges.shards_leased == gauges.leases == 0
        assert gauges.shards_free > 0

    async def test_it_counts_what_the_counts_say(self, store: Store) -> None:
        await add(store, row("a"), row("b"), row(None, topic="shop.others"))
        await claim(store, entry(1))
        await hold(store, held(entry(5), "gap"), held(entry(None), "quarantined"), held(entry(1, key="other"), "dead"))
        gauges = await store.gauges()
        assert gauges.counts == await store.counts()
        assert gauges.counts.unsent == {TOPIC: 2, "shop.others": 1}
        assert sum(gauges.counts.held.values()) + sum(gauges.counts.strange.values()) == 3
        assert not gauges.counts.estimated

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

    async def test_what_was_given_up_has_no_age(self, store: Store) -> None:
        await hold(store, held(entry(None), "skipped"))
        assert (await store.gauges()).held_oldest == {}

    async def test_a_row_that_the_broker_refused_is_as_old_as_the_refusal(self, store: Store) -> None:
        await add(store, row("a"))
        shards = await store.outbox.lease("r", 3600)
        poll = await store.outbox.poll(shards, 10)
        assert await store.outbox.settle("r", poll, [stuck(poll.rows[0])])
        await self.later(70)
        gauges = await store.gauges()
        assert 70 <= gauges.oldest_stuck < 70 + NEAR
        assert gauges.counts.stuck == 1

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
