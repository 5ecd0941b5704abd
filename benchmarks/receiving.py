"""The way in: from the log through the inbox to one business row for each event, once only."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from benchmarks import byhand
from benchmarks.reading import Reading, Scale, compare, timed
from benchmarks.shop import Done, billing_in, copied, discard, filled_log
from posthouse.app import app_of


async def consume(folder: Path, scale: Scale) -> list[Reading]:
    """Ordered, one transaction for each event."""
    return [await _consume("consume", "single", folder, scale, count=1_000, rounds=9, goal=0.6)]


async def consume_unordered(folder: Path, scale: Scale) -> list[Reading]:
    """Unordered, one transaction and one inbox row for each event."""
    return [await _consume("consume-unordered", "unordered", folder, scale, count=1_000, rounds=9, goal=0.6)]


async def consume_grouped(folder: Path, scale: Scale) -> list[Reading]:
    """Ordered, up to a hundred events of different keys in one transaction."""
    return [await _consume("consume-grouped", "grouped", folder, scale, count=10_000, rounds=7, goal=None)]


async def consume_list(folder: Path, scale: Scale) -> list[Reading]:
    """Ordered, a handler that takes up to a hundred events and writes them at once."""
    return [await _consume("consume-list", "list", folder, scale, count=10_000, rounds=7, goal=None)]


async def _consume(
    measure: str, kind: str, folder: Path, scale: Scale, *, count: int, rounds: int, goal: float | None
) -> Reading:
    count = scale.count(count)
    log = await filled_log(folder, count)

    async def ours(number: int) -> float:
        place = folder / f"ours-{number}"
        copied(log, place)
        done = Done(count)
        billing = billing_in(place, kind, done)
        [consumer] = (await app_of(billing).opened.prepare()).consumers
        began = time.perf_counter()
        await consumer.run(done.stop)
        took = time.perf_counter() - began
        await billing.aclose()
        discard(place)
        return took

    async def theirs(number: int) -> float:
        place = folder / f"limit-{number}"
        frames = byhand.opened(copied(log, place), "NORMAL")
        store = await byhand.made_store(place / "billing.db")
        took = timed(partial(byhand.consume, store, frames, byhand.APPLIERS[kind]))
        store.close()
        frames.close()
        discard(place)
        return took

    return await compare(measure, ours, theirs, rounds=scale.turns(rounds), count=count, goal=goal)
