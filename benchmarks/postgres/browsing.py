"""What the indexes that only lists for people read cost those who write: ours with them, the limit without."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from benchmarks.postgres.consuming import CONNECTIONS
from benchmarks.postgres.server import BenchServer, run
from benchmarks.reading import Reading, Scale, compare
from posthouse.clock import SystemClock
from posthouse.store import HeldEvent
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import entry, held

BROWSED = ("held_event_id", "held_key", "held_correlation", "held_failure", "held_of_tenant")
"""No worker reads any of these."""
FAILURES = 11


async def browsing(server: BenchServer, scale: Scale) -> list[Reading]:
    """Hold and settle, a hundred in a transaction and one by one."""
    many, few = scale.count(5_000), scale.count(1_500)
    without = "; ".join(f"DROP INDEX posthouse.{name}" for name in BROWSED)
    async with server.prepared() as original, server.prepared() as bare:
        await run(bare, without)

        async def kept(url: str, count: int, at_once: int) -> float:
            await run(url, "VACUUM posthouse.held")  # nothing is left of a round but what it made of the indexes
            return await held_and_settled(url, count, at_once)

        rounds = scale.turns(5)
        return [
            await compare(
                "hold and settle, 100 a transaction",
                lambda _: kept(original, many, 100),
                lambda _: kept(bare, many, 100),
                rounds=rounds,
                count=many,
                goal=0.5,
            ),
            await compare(
                "hold and settle, one a transaction",
                lambda _: kept(original, few, 1),
                lambda _: kept(bare, few, 1),
                rounds=rounds,
                count=few,
                goal=0.7,
            ),
        ]


async def held_and_settled(url: str, count: int, at_once: int) -> float:
    """The seconds that so many take: held as a handler that fails has them held, and removed as one that has run does."""
    store = PostgresStore(url, clock=SystemClock(), writers=CONNECTIONS)
    events = [_failed(number) for number in range(count)]
    left = iter([events[first : first + at_once] for first in range(0, count, at_once)])

    async def work() -> None:
        for events in left:
            await _held_and_settled(store, events)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    took = time.perf_counter() - began
    await store.aclose()
    return took


async def _held_and_settled(store: PostgresStore, events: Sequence[HeldEvent]) -> None:
    async with store.begin() as tx:
        for event in events:
            await store.held.hold(tx, event)
    claimed = await store.held.claim_due(events[0].consumer, len(events), 60.0)
    async with store.begin() as tx:
        for event in claimed:
            await store.held.remove(tx, event)


def _failed(number: int) -> HeldEvent:
    """One that stands alone, and is due."""
    made = held(entry(1, key=f"k{number}", tenant=f"t{number % 97}"), "retrying")
    of = msgspec.structs.replace(made.entry, event_id=f"e{number}", sequence=None)
    fingerprint = f"Error{number % FAILURES} in shop/orders.py:charge"
    return msgspec.structs.replace(
        made, entry=of, next_at=0.0, fingerprint=fingerprint, correlation=f"story-{number // 5}"
    )
