"""Signals: the first one asks for a graceful end, the second one ends the process at once."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from types import FrameType

log = logging.getLogger("posthouse.run")

AT_ONCE = 130
BLOCKED = 70

ASKING = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping(stop: asyncio.Event, *, within: float) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop` while the block lasts; call it in the main thread. A block that lasts longer than so many
    seconds after that is ended with the process: its event loop is blocked."""
    loop = asyncio.get_running_loop()
    ours = contextvars.copy_context()  # not that of the event which a signal interrupts
    asked = False

    def begin(number: int) -> None:
        log.info("%s: finishing what is in flight; once more ends it at once", signal.Signals(number).name)
        stop.set()

    def ask(number: int, _: FrameType | None) -> None:
        nonlocal asked
        if not asked:
            asked = True
            loop.call_soon_threadsafe(begin, number, context=ours)

    before = {number: signal.signal(number, ask) for number in ASKING}
    try:
        with _ending_at_the_second(within):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _ending_at_the_second(within: float) -> Iterator[None]:
    """Count signals in a thread. The main thread may be blocked, and the kernel may hand the second signal to another
    thread, in which case Python would run its handler only after the block."""
    ears, mouth = socket.socketpair()
    mouth.setblocking(False)
    before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(target=_listen, args=(ears, within), daemon=True, name="posthouse-signals")
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        mouth.close()
        listener.join()
        ears.close()


def _listen(ears: socket.socket, within: float) -> None:
    heard, deadline = 0, float("inf")
    try:
        while numbers := ears.recv(16):
            heard += sum(number in ASKING for number in numbers)
            if heard > 1:
                os._exit(AT_ONCE)
            if heard:
                deadline = min(deadline, time.monotonic() + within)
                ears.settimeout(max(0.001, deadline - time.monotonic()))
    except TimeoutError:
        log.critical("not at an end %.0f s after the signal, and the event loop does not answer", within)
        logging.shutdown()
        os._exit(BLOCKED)
