"""`python -m benchmarks.load.worker PART PLACE`: the relay, or consumers, until stdin ends. A line of stdin is a pace in events per
second, or `null` for as fast as it can; a line of stdout, ten times a second, is how many events are in hand."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from benchmarks.load.shop import Pace, Place, billing_at, orders_at
from posthouse.app import app_of

EVERY = 0.1


async def main(part: str, place: Place) -> None:
    """One part of one service."""
    pace = Pace()
    service = orders_at(place) if part == "relay" else billing_at(place, pace)
    runtime = await app_of(service).opened.prepare()
    stop = asyncio.Event()
    running = asyncio.create_task(runtime.run(stop, ["relay" if part == "relay" else "consumers"]))
    listening = asyncio.create_task(_listen(pace, stop))
    print("ready", flush=True)
    while not stop.is_set() and not running.done():
        print(sum(consumer.in_hand for consumer in runtime.consumers), flush=True)
        await asyncio.wait([running, listening], timeout=EVERY, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await running
    await service.aclose()


async def _listen(pace: Pace, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        pace.rate = msgspec.json.decode(line, type=float | None)
    stop.set()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Place)))
