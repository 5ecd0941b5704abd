"""What ordered redelivery is worth: the way in, while one batch in ten is handed back and comes again.

Ours: what was handed back comes again before anything newer, as adapters bring it. The other: it comes ten batches later, as it
would without them; then the inbox holds what overtook it, and lets it go when the gap is closed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.reading import Reading, Scale, compare
from benchmarks.shop import Done, billing_in, copied, discard, filled_log
from posthouse.broker import Delivery, Start, Stream
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.clock import SystemClock

EVERY = 10
KEYS = 50
"""So few that what is handed back is overtaken by some of its key."""


async def redelivery(folder: Path, scale: Scale) -> list[Reading]:
    """Ordered, one transaction for each event."""
    count = scale.count(1_000)
    log = await filled_log(folder, count, keys=KEYS)

    async def consumed(place: Path, *, ordered: bool) -> float:
        broker = UneasyBroker(copied(log, place), clock=SystemClock())
        broker.ordered = ordered
        done = Done(count)
        billing = billing_in(place, "single", done, broker=broker)
        began = time.perf_counter()
        async with billing.running():  # also what looks after held events
            await done.stop.wait()
            took = time.perf_counter() - began
        await billing.aclose()
        discard(place)
        return took

    async def ours(number: int) -> float:
        return await consumed(folder / f"ordered-{number}", ordered=True)

    async def without(number: int) -> float:
        return await consumed(folder / f"unordered-{number}", ordered=False)

    return [await compare("redelivery", ours, without, rounds=scale.turns(5), count=count)]


class UneasyBroker(EmbeddedBroker):
    ordered = True

    async def subscribe(  # type: ignore[override]  # another stream around the broker's
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> Stream:
        return UneasyStream(await super().subscribe(group, topics, start=start, window=window), self.ordered)


class UneasyStream:
    """Every tenth batch is handed back as if a handler's database had failed."""

    def __init__(self, stream: Stream, ordered: bool) -> None:
        self._stream = stream
        self._ordered = ordered
        self._batches = 0
        self._later: deque[tuple[int, Sequence[Delivery]]] = deque()

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._later and self._later[0][0] <= self._batches:
            return self._later.popleft()[1]
        batch = await self._stream.receive(min(limit, 20), 0.0 if self._later else wait)
        self._batches += 1
        if batch and self._batches % EVERY == 0:
            if self._ordered:
                await self._stream.nack(batch)
            else:
                self._later.append((self._batches + EVERY, batch))
            batch = await self._stream.receive(min(limit, 20), 0.0 if self._later else wait)
        # No handler saw them: what comes again as a repeat would have cost one of its attempts, in either case.
        batch = [msgspec.structs.replace(delivery, redelivered=False) for delivery in batch]
        return batch or (self._later.popleft()[1] if self._later else batch)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self._stream.ack(deliveries)

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        await self._stream.nack(deliveries)

    async def aclose(self) -> None:
        await self._stream.aclose()
