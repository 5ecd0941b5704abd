"""The second way into the handlers: what counts as an attempt, and when it looks."""

from __future__ import annotations

import asyncio

from posthouse import Event, Payload, Service, Tx
from posthouse.app import app_of
from posthouse.testing import Harness
from tests.kit.waiting import eventually

shop = Service("shop")


@shop.event("thing.made.v1")
class ThingMade(Payload):
    number: int


@shop.event("step.taken.v1", key="walk")
class StepTaken(Payload):
    walk: str


failing = True
runs: list[int] = []


@shop.on(ThingMade)
async def make(event: Event[ThingMade], tx: Tx) -> None:
    runs.append(event.data.number)
    if failing:
        raise RuntimeError("no")


@shop.on(StepTaken)
async def walk(event: Event[StepTaken], tx: Tx) -> None:
    pass


async def test_an_event_that_did_not_run_has_no_attempt_counted() -> None:
    runs.clear()
    async with Harness(shop) as harness:
        for number in range(20):
            await harness.publish(ThingMade(number=number))
        await harness.settled()
        harness._stop.set()
        await asyncio.gather(*harness._tasks)
        harness.clock.advance(11)
        [retrier] = harness._runtimes[0].retriers
        for _ in range(5):
            assert await retrier.step()
        assert len(runs) == 25
        assert sorted(held.attempts for held in await harness.held(shop)) == [1] * 15 + [2] * 5


async def test_an_event_that_may_have_run_before_is_run_without_waiting_for_the_next_look() -> None:
    async with Harness(shop) as harness:
        await harness.publish(StepTaken(walk="w"))
        await harness.settled()
        async with app_of(shop).store.begin() as tx:
            await tx.execute("DELETE FROM posthouse_head")
            await tx.execute("DELETE FROM posthouse_applied")
        await harness.broker.seek("shop", "shop.step", position=0)
        await harness.settled()  # the clock stands still
        assert await harness.held(shop) == []


async def test_a_gap_that_was_alarmed_is_looked_at_once_a_second_and_no_oftener() -> None:
    async with Harness(shop) as harness:
        for _ in range(2):
            await harness.publish(StepTaken(walk="w"))
        await harness.settled()
        async with app_of(shop).store.begin() as tx:  # as if number 1 had never come
            await tx.execute("UPDATE posthouse_head SET sequence = 0")
        await harness.broker.publish([harness.broker.log.topics["shop.step"][1].frame])

        async def waits() -> bool:
            return [held.state for held in await harness.held(shop)] == ["gap"]

        await eventually(waits, "the gap")
        harness.clock.advance(61)
        [retrier] = harness._runtimes[0].retriers
        assert not await retrier.step()
        assert await retrier._until_next() == 1.0


async def test_what_became_due_since_the_last_look_does_not_wait_for_the_next() -> None:
    async with Harness(shop) as harness:
        await harness.publish(ThingMade(number=1))
        await harness.settled()
        harness._stop.set()
        await asyncio.gather(*harness._tasks)
        [retrier] = harness._runtimes[0].retriers
        assert 0.0 < await retrier._until_next() <= 1.0
        harness.clock.advance(11)
        assert await retrier._until_next() == 0.0
        assert await retrier._until_next() == 1.0, "nor is it looked for all the time while somebody else has it"
