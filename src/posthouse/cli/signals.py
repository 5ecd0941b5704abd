"""Signals: the first one asks for a graceful end, the second one ends the process at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType

log = logging.getLogger("posthouse.run")

AT_ONCE = 130

ASKING = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop` while the block lasts; call it in the main thread."""
    loop = asyncio.get_running_loop()
    asked = False

    def begin(number: int) -> None:
        log.info("%s: finishing what is in flight; once more ends it at once", signal.Signals(number).name)
        stop.set()

    def ask(number: int, _: FrameType | None) -> None:
        nonlocal asked
        if not asked:
            asked = True
            loop.call_soon_threadsafe(begin, number)

    before = {number: signal.signal(number, ask) for number in ASKING}
    try:
        with _ending_at_the_second():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _ending_at_the_second() -> Iterator[None]:
    """Count signals in a thread. The main thread may be blocked, and the kernel may hand the second signal to another
    thread, in which case Python would run its handler only after the block."""
    ears, mouth = socket.socketpair()
    mouth.setblocking(False)
    before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(target=_listen, args=(ears,), daemon=True, name="posthouse-signals")
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        mouth.close()
        listener.join()
        ears.close()


def _listen(ears: socket.socket) -> None:
    heard = 0
    while numbers := ears.recv(16):
        heard += sum(number in ASKING for number in numbers)
        if heard > 1:
            os._exit(AT_ONCE)
