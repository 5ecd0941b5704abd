"""The job: events of about 1 KiB on a thousand keys, added with a business row each, then all of them worked off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

CONNECTIONS = 8
KEYS = 1000
PARCEL = "Two hundred words or so that a real event would carry in its fields. " * 13
CREATE = "CREATE TABLE placed (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id text, total bigint)"
BUSINESS = "INSERT INTO placed (order_id, total) VALUES ($1, $2)"
PATIENCE = 120.0

C = TypeVar("C")


def key(number: int) -> str:
    """One of a thousand in turn."""
    return f"o{number % KEYS}"


def payload(number: int) -> dict[str, str | int]:
    """What an event says."""
    return {"order_id": key(number), "total_cents": number, "note": PARCEL}


async def shared(connections: Sequence[C], count: int, once: Callable[[C, int], Awaitable[None]]) -> float:
    """The seconds for `count` calls, shared by the connections."""

    async def share(connection: C, first: int) -> None:
        for number in range(first, count, len(connections)):
            await once(connection, number)

    began = time.perf_counter()
    await asyncio.gather(*(share(connection, first) for first, connection in enumerate(connections)))
    return time.perf_counter() - began


def in_threads(count: int, once: Callable[[int], object]) -> float:
    """The seconds for `count` calls by as many threads as there are connections."""
    began = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(once, range(count)))
    return time.perf_counter() - began


class Countdown:
    """Sets `done` at the last of `count` calls; `took` is the time until then."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.done = asyncio.Event()
        self._began = time.perf_counter()
        self.took = 0.0

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.took = time.perf_counter() - self._began
            self.done.set()
