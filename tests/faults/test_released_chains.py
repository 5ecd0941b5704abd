"""A chain of held events of one key, once its first is released, runs at the rate of a list."""

from __future__ import annotations

import time
from pathlib import Path

from posthouse import Event, Policy, Tx
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.store import HeldFilter
from tests.kit.waiting import eventually

from .scene import crafted
from .test_skewed_clocks import Made, OpenStore, at_work, opened, plant

__all__ = ["opened"]

CHAIN = 200


async def test_a_released_chain_runs_at_the_rate_of_a_list(opened: OpenStore, tmp_path: Path) -> None:
    service, ran, broken = plant(), list[int](), [True]

    @service.on(Made, policy=Policy(max_attempts=1))
    async def make(event: Event[Made], tx: Tx) -> None:
        if event.data.number == 1 and broken[0]:
            raise ValueError("not yet")
        ran.append(event.data.number)

    store, broker = opened(), MemoryBroker(clock=SystemClock())
    async with at_work(service, store, 0.0, broker):
        frames = [crafted(Made(key="k", number=n), sequence=n, at=time.time()) for n in range(1, CHAIN + 1)]
        await broker.publish(frames)

        async def all_held() -> bool:
            return sum((await store.counts()).held.values()) == CHAIN

        await eventually(all_held, "the chain to be held", within=60.0, pause=0.05)
        broken[0] = False
        (first,) = await store.held.find(HeldFilter(state="dead"))
        began = time.monotonic()
        await service.held.retry(first.id)

        async def done() -> bool:
            return len(ran) == CHAIN

        await eventually(done, "the chain to run", within=60.0, pause=0.02)
        seconds = time.monotonic() - began
    assert ran == list(range(1, CHAIN + 1))
    assert seconds < CHAIN / 15, f"{CHAIN / seconds:.0f} per second"
