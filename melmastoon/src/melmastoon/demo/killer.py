"""The killer: ends a process every few seconds, and starts it again at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from posthouse.clock import SystemClock


class Prey(Protocol):
    """Processes by name. Both verbs may take a while, and are called in threads."""

    @property
    def names(self) -> Sequence[str]: ...

    def kill(self, name: str) -> None: ...

    def start_one(self, name: str) -> None: ...


class Killer:
    """`every` is about how many real seconds pass between two kills, 0 for none. Whoever it killed it starts again, also when it is
    told to stop in between: a process that nobody starts would be missed for ever, and in silence."""

    def __init__(self, prey: Prey, *, seed: int, every: float) -> None:
        self._prey = prey
        self._dice = random.Random(f"real {seed}")
        self._every = every
        self._one_at_a_time = asyncio.Lock()
        self._enough = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._every:
            self._task = asyncio.create_task(self._kill_now_and_then(), name="melmastoon killer")

    async def stop(self) -> None:
        """Returns when everybody is alive, as far as they are not away. Idempotent."""
        self._enough.set()
        task, self._task = self._task, None
        if task is not None:
            await task

    @asynccontextmanager
    async def away(self, name: str) -> AsyncIterator[None]:
        """One is dead inside the block; meanwhile nobody else is killed."""
        async with self._one_at_a_time:
            await asyncio.to_thread(self._prey.kill, name)
            try:
                yield
            finally:
                await asyncio.to_thread(self._prey.start_one, name)

    async def _kill_now_and_then(self) -> None:
        while not await SystemClock().wait(self._enough, self._every * self._dice.uniform(0.5, 1.5)):
            async with self.away(self._dice.choice(self._prey.names)):
                pass
