"""`python -m benchmarks.load.producer PLACE`: commits what a line of stdin asks for, and answers with a line."""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

from benchmarks.load.plan import Schedule
from benchmarks.load.shop import KEYS, NOTE, TENANT, Place, orders_at
from benchmarks.shop import placed
from posthouse import Service
from posthouse.app import app_of
from posthouse.errors import PosthouseError

AT_ONCE = 16


class Ask(msgspec.Struct, frozen=True):
    """Either a schedule to keep, or as much as can be committed in `seconds`, from event `first` on."""

    schedule: Schedule | None = None
    first: int = 0
    seconds: float = 0.0


class Sent(msgspec.Struct, frozen=True):
    """How many were committed; `failed` says why others were not."""

    events: int
    failed: list[str]


class Producer:
    def __init__(self, orders: Service) -> None:
        self._orders = orders
        self._free = asyncio.Semaphore(AT_ONCE)
        self.events = 0
        self.failed: list[str] = []

    async def commit(self, number: int) -> None:
        """The row and the event in one transaction."""
        try:
            async with self._free, self._orders.transaction(TENANT) as tx:
                await tx.execute(NOTE, (number,))
                tx.publish(placed(number, KEYS))
        except PosthouseError as error:
            self.failed.append(str(error))
        else:
            self.events += 1

    async def keep(self, schedule: Schedule) -> None:
        """Each event at its time: one that is late makes no other late."""
        async with asyncio.TaskGroup() as group:
            for number in range(schedule.first, schedule.first + schedule.events):
                if (early := schedule.due(number) - time.time()) > 0:
                    await asyncio.sleep(early)
                group.create_task(self.commit(number))

    async def push(self, first: int, seconds: float) -> None:
        """One after the other on every connection, for so long."""
        numbers = iter(range(first, sys.maxsize))
        until = time.monotonic() + seconds

        async def one() -> None:
            while time.monotonic() < until:
                await self.commit(next(numbers))

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(one())


async def main(place: Place) -> None:
    """Until stdin ends."""
    orders = orders_at(place)
    await app_of(orders).opened.prepare()
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        ask, producer = msgspec.json.decode(line, type=Ask), Producer(orders)
        if ask.schedule is None:
            await producer.push(ask.first, ask.seconds)
        else:
            await producer.keep(ask.schedule)
        print(msgspec.json.encode(Sent(producer.events, producer.failed)).decode(), flush=True)
    await orders.aclose()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Place)))
