"""A clock that hurries, so that leases and retries of seconds pass in milliseconds."""

from __future__ import annotations

import asyncio
import time

from posthouse.clock import SystemClock


class HurriedClock:
    """Runs `speed` times as fast as the machine's since `base`, and `shift` seconds ahead of that. Processes that are
    alive together share all three; one that starts later may be shifted, as if it had been started so much later."""

    def __init__(self, base: float, speed: float, shift: float) -> None:
        self._base = base
        self._speed = speed
        self._shift = shift
        self._system = SystemClock()

    def now(self) -> float:
        return self._base + (time.time() - self._base) * self._speed + self._shift

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        return await self._system.wait(event, seconds / self._speed)
