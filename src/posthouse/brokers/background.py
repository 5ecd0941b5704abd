"""Background: the tasks that a stream lives by. One that ends by itself is heard of where the stream is used."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from posthouse.errors import BrokerUnavailable


class Background:
    """Loops that run until they are closed: without them leases end, and nobody follows a move of the group."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *loops: Coroutine[Any, Any, None]) -> None:
        self._tasks += [
            asyncio.create_task(loop, name=getattr(loop, "__qualname__", "a background task")) for loop in loops
        ]

    def check(self) -> None:
        """Raises BrokerUnavailable when one has ended, with its reason: subscribe again."""
        for task in self._tasks:
            if task.done():
                error = None if task.cancelled() else task.exception()
                reason = "it was cancelled" if error is None else f"{type(error).__name__}: {error}"
                raise BrokerUnavailable(f"{task.get_name()} ended, and this stream with it: {reason}") from error

    async def aclose(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
