"""Signals: the first one asks for a graceful end, the second one ends the process at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from types import FrameType

log = logging.getLogger("posthouse.run")

AT_ONCE = 130


@contextlib.contextmanager
def stopping(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop` while the block lasts.

    Plain signal handlers and not the loop's own: the second signal must end a process whose loop is blocked.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def begin(number: int) -> None:
        log.info("%s: finishing what is in flight; once more ends it at once", signal.Signals(number).name)
        stop.set()

    def receive(number: int, _: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(AT_ONCE)
        asked = True
        loop.call_soon_threadsafe(begin, number)

    before = {number: signal.signal(number, receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
