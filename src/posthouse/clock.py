"""Time, chance and new ids: the only source of any of them, so that tests can move the clock."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
import random
import time
from datetime import UTC, date, datetime
from typing import Protocol

import uuid_utils

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [first + second for first in _CROCKFORD for second in _CROCKFORD]
_chance = random.SystemRandom()


class Clock(Protocol):
    """Seconds since 1970 as a float, seconds that nobody can set, and a way to wait that follows the same clock."""

    def now(self) -> float:
        """The current time in seconds since 1970: for what is written down. It may be set, forwards and backwards."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment, never set: for leases, deadlines and ages inside this process."""
        ...

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait until `event` is set (True) or `seconds` have passed on this clock (False). Never clears it."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    monotonic = staticmethod(time.monotonic)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        if event.is_set():
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
        return event.is_set()


class ManualClock:
    """A clock that stands still until `advance` moves it: no test waits for real time."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._sleepers: list[tuple[float, int, asyncio.Future[object]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        if event.is_set():
            return True
        self._count += 1
        alarm: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, alarm))
        ring: asyncio.Future[object] = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait([alarm, ring], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ring.cancel()
            alarm.cancel()
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Move the clock forward and wake everyone whose time has come."""
        self.move_to(self._now + seconds)

    def move_to(self, moment: float) -> None:
        """The same, to a moment in seconds since 1970. Whoever waits for that very moment is woken, though a sum of floats may
        lie a hair behind it."""
        self._now = moment
        self.wake(self._now + 1e-6)

    def wake(self, until: float = math.inf) -> None:
        """Wake everyone who waits for a moment up to `until`, though the clock stands still."""
        while self._sleepers and self._sleepers[0][0] <= until:
            alarm = heapq.heappop(self._sleepers)[2]
            if not alarm.done():
                alarm.set_result(None)


def day_of(seconds: float) -> date:
    """The day, in UTC, of a moment in seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC).date()


def new_id() -> str:
    """A UUIDv7: unique, and sorted by the time it was made."""
    return str(uuid_utils.uuid7())


def new_ulid(now: float | None = None) -> str:
    """A ULID: 48 bits of milliseconds and 80 random bits, 26 characters that sort by time."""
    milliseconds = int((time.time() if now is None else now) * 1000)
    number = (milliseconds << 80) | _chance.getrandbits(80)
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])


def jitter(seconds: float, spread: float = 0.5) -> float:
    """`seconds`, shortened at random by up to `spread` of itself, so that many retries do not march in step."""
    return seconds * (1 - spread * random.random())


def longest_backoff(attempts: int, first: float, last: float, factor: float = 2.0) -> float:
    """The most seconds that may lie between `attempts` tries and the next: `first` after one, `factor` times as many after
    each further one, never more than `last`."""
    return min(last, first * factor ** min(attempts - 1, 100))  # bounded: no number of tries is too large for a float


def backoff_horizon(tries: int, first: float, last: float) -> float:
    """The most seconds between the first of so many tries and the last; of any number of them at once."""
    growing = min(tries, 102)
    return sum(longest_backoff(done, first, last) for done in range(1, growing)) + (
        (tries - growing) * longest_backoff(growing, first, last)
    )


def backoff(attempts: int, first: float, last: float, *, factor: float = 2.0, spread: float = 0.5) -> float:
    """Seconds to wait after `attempts` tries: the longest ones, shortened at random by up to `spread` of themselves."""
    return jitter(longest_backoff(attempts, first, last, factor), spread)


def lasting(seconds: float) -> str:
    """A length of time in words: whole days or hours where they are two or more, otherwise seconds."""
    for unit, name in ((86_400, "days"), (3_600, "hours")):
        if seconds >= 2 * unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"
