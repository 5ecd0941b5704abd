"""One clock for many processes, which stands still until the driver moves it.

Days of a hotel pass in seconds, and nothing runs out because a machine is slow: the hand is moved only when nothing is in
flight, to the moment at which something is due. So the same guests live through the same things on any machine."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import mmap
import struct
from pathlib import Path

LOOK = 0.005
"""Real seconds between two looks at the hand, in a process that has somebody waiting for it."""

_SECONDS = struct.Struct("<d")


class SharedClock:
    """A clock whose hand is eight bytes of a file. All processes that open the file see the same time."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._hand = mmap.mmap(file.fileno(), _SECONDS.size)
        self._sleepers: list[tuple[float, int, asyncio.Future[object]]] = []
        self._count = 0
        self._watcher: asyncio.Task[None] | None = None

    @classmethod
    def made(cls, path: Path, now: float) -> SharedClock:
        """A new file, whose hand stands at `now`."""
        path.write_bytes(_SECONDS.pack(now))
        return cls(path)

    def now(self) -> float:
        return float(_SECONDS.unpack_from(self._hand)[0])

    def monotonic(self) -> float:
        return self.now()

    def move(self, to: float) -> None:
        """Set the hand; it never goes back."""
        _SECONDS.pack_into(self._hand, 0, max(to, self.now()))

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """As the port says. Real time does not pass here: who waits is woken by the event, or when the hand was moved."""
        if event.is_set():
            return True
        self._count += 1
        alarm: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now() + seconds, self._count, alarm))
        self._watch()
        ring: asyncio.Future[object] = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait([alarm, ring], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ring.cancel()
            alarm.cancel()
        return event.is_set()

    def _watch(self) -> None:
        """One task looks at the hand for all that wait in this process."""
        loop = asyncio.get_running_loop()
        if self._watcher is None or self._watcher.done() or self._watcher.get_loop() is not loop:
            self._watcher = loop.create_task(self._looking(), name="melmastoon clock")

    async def _looking(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while self._sleepers:
                now = self.now()
                while self._sleepers and self._sleepers[0][0] <= now:
                    alarm = heapq.heappop(self._sleepers)[2]
                    if not alarm.done():
                        alarm.set_result(None)
                await asyncio.sleep(LOOK)
