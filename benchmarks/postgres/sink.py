"""Where the relay's frames go when only the relay is measured: nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from posthouse.broker import ACCEPTED, Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock


class NowhereBroker(MemoryBroker):
    """Accepts everything, keeps nothing, and says when `expected` frames have come."""

    def __init__(self, expected: int) -> None:
        super().__init__(clock=SystemClock())
        self.left = expected
        self.done = asyncio.Event()

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        self.left -= len(frames)
        if self.left <= 0:
            self.done.set()
        return [ACCEPTED] * len(frames)
