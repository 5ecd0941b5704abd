"""Worker: one thread that lives as long as its connection, for libraries whose connections wait or belong to a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs what it is given, one after the other. It is a daemon: one that hangs keeps no process from ending."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def here(self) -> bool:
        """Whether the caller is in this thread."""
        return threading.current_thread() is self._thread

    def submit(self, job: Callable[[], object]) -> None:
        """Run it after what was submitted before. It must not raise."""
        self._jobs.put(job)

    async def do(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises. A caller that is cancelled no longer waits; the work goes on."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                tell = partial(_settle, told.set_result, work())
            except BaseException as error:
                tell = partial(_settle, told.set_exception, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell)

        def _settle(say: Callable[[Any], None], what: object) -> None:
            if not told.done():
                say(what)

        self.submit(job)
        return await told

    def end(self) -> None:
        """Leave when everything submitted is done."""
        self._jobs.put(None)

    def join(self, seconds: float) -> None:
        """Wait until it has left."""
        self._thread.join(seconds)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
