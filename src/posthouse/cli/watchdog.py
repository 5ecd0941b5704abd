"""Watchdog: a process whose event loop is blocked serves nobody, so it ends, and its supervisor starts another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator

log = logging.getLogger("posthouse.watchdog")

STALLED = 70
"""The exit code: an internal failure, in the words of sysexits.h."""

LONGEST_LOOK = 1.0


class Watchdog:
    """A thread that asks the loop for a sign of life. `stalled` is called, in that thread, with the stack of the loop's
    thread once the loop has been silent for `limit` seconds.

    Silence is counted in the watchdog's own looks, not by the clock: a machine that slept is not a stall.
    """

    def __init__(self, limit: float, stalled: Callable[[str], None]) -> None:
        self._limit = limit
        self._stalled = stalled
        self._look = min(LONGEST_LOOK, limit / 5)
        self._done = threading.Event()
        self._answered = True

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the running loop while the block lasts."""
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        watcher = threading.Thread(target=self._watch, args=(loop, thread), daemon=True, name="posthouse-watchdog")
        watcher.start()
        try:
            yield
        finally:
            self._done.set()
            watcher.join()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        silent = 0.0
        while not self._done.wait(self._look):
            if self._answered:
                silent = 0.0
                self._answered = False
                loop.call_soon_threadsafe(self._answer)
                continue
            silent += self._look
            if silent >= self._limit:
                self._stalled("".join(traceback.format_stack(sys._current_frames()[thread])))
                return

    def _answer(self) -> None:
        self._answered = True


def end_process(stack: str) -> None:
    """Say where the loop is stuck and leave at once: nothing in this process can be trusted to finish."""
    log.critical("the event loop is blocked, this process ends with code %d. It is stuck here:\n%s", STALLED, stack)
    logging.shutdown()
    os._exit(STALLED)
