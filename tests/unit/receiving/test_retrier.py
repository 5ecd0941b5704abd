"""The second way into the handlers: what counts as an attempt, and when it looks."""

from __future__ import annotations

import asyncio

from posthouse import Event, Payload, Service, Tx
from posthouse.testing import Harness

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


async def test_a_stop_counts_no_attempt_for_events_that_did_not_run() -> None:
    runs.clear()
    async with Harness(shop) as harness:
        for number in range(20):
            await harness.publish(ThingMade(number=number))
        await harness.settled()
        assert len(runs) == 20
        stop = asyncio.Event()
        harness._stop.set()
        await asyncio.gather(*harness._tasks)
        harness.clock.advance(11)
        [retrier] = harness._runtimes[0].retriers
        stepping = asyncio.create_task(retrier.step(stop))
        async with asyncio.timeout(5):
            while len(runs) < 25:
                await asyncio.sleep(0)
        stop.set()
        await stepping
        ran = len(runs) - 20
        assert 5 <= ran < 20
        attempts = sorted(held.attempts for held in await harness.held(shop))
        assert attempts == [1] * (20 - ran) + [2] * ran


async def test_a_gap_that_was_alarmed_is_looked_at_once_a_second_and_no_oftener() -> None:
    async with Harness(shop) as harness:
        for _ in range(2):
            await harness.publish(StepTaken(walk="w"))
        await harness.settled()
        async with shop.store.begin() as tx:  # the consumer has never seen number 1 and 2 waits for it
            await tx.execute("UPDATE posthouse_head SET sequence = 0")
        frames = [stored.frame for stored in harness.broker.log.topics["shop.step"]]
        await harness.broker.publish(frames[1:])
        async with asyncio.timeout(5):
            while not await harness.held(shop):
                await asyncio.sleep(0)
        harness.clock.advance(61)
        [retrier] = harness._runtimes[0].retriers
        assert await retrier.step() == 0
        assert await retrier._until_next() == 1.0
