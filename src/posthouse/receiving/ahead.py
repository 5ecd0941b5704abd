"""Ahead: the costly part of proving frames, in threads, while the loop goes on. They come out in the order in which they went in."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from posthouse.broker import Delivery
from posthouse.seam.inward import BegunFrame

FEW = 8
"""So many frames are proved on the loop: a thread would take longer to hear of them."""
PART = 100
"""So many go to a thread at once: as many as a handler takes together."""
TURN = 0.005
"""Seconds for which frames are looked at before others have their turn."""
MOST = 4
"""Threads, at most: no consumer is so fast that more of them had something to do."""

Begin = Callable[[Delivery], BegunFrame]
Part = Sequence[tuple[Delivery, BegunFrame]]
Take = Callable[[Part], None]


class Ahead:
    """The threads of one consumer, made when there is something for them to do."""

    def __init__(self) -> None:
        self._cores = min(
            MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
        self._threads: ThreadPoolExecutor | None = None

    def pays(self, received: Sequence[Delivery]) -> bool:
        """Whether there are enough of them, and a core for somebody else than the loop."""
        return self._cores > 1 and len(received) > FEW

    async def take_in(self, received: Sequence[Delivery], begin: Begin, take: Take) -> None:
        """Read all, have them verified, and take them in, each in its turn. Others have theirs between two parts."""
        loop, waiting = asyncio.get_running_loop(), deque[tuple[Part, asyncio.Future[None]]]()
        for first in range(0, len(received), PART):
            began, part = loop.time(), list[tuple[Delivery, BegunFrame]]()
            for delivery in received[first : first + PART]:
                part.append((delivery, begin(delivery)))
                if loop.time() - began >= TURN:
                    await asyncio.sleep(0)
                    began = loop.time()
            if not waiting and not any(begun.is_claim for _, begun in part):
                take(part)
                await asyncio.sleep(0)
                continue
            self._threads = self._threads or ThreadPoolExecutor(self._cores, "posthouse-verify")
            waiting.append((part, loop.run_in_executor(self._threads, _verify, part)))
            if len(waiting) > self._cores:
                await _taken(*waiting.popleft(), take)
        while waiting:
            await _taken(*waiting.popleft(), take)

    def close(self) -> None:
        """What is under way is finished by nobody who waits for it."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


async def _taken(part: Part, verified: asyncio.Future[None], take: Take) -> None:
    await verified
    take(part)


def _verify(part: Part) -> None:
    for _, begun in part:
        begun.verify()
