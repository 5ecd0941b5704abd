"""A signal comes while anything runs, and belongs to none of it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

from posthouse.cli.signals import stopping
from posthouse.seam import NOTHING, Current, current, during


async def test_a_signal_in_the_middle_of_an_event_is_not_logged_as_that_events() -> None:
    seen: list[Current] = []

    class Look(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(current())

    log, look, stop = logging.getLogger("posthouse.run"), Look(), asyncio.Event()
    level = log.level
    log.addHandler(look)
    log.setLevel(logging.INFO)
    try:
        with stopping(stop, within=60):
            with during(Current(correlation="r1")):
                os.kill(os.getpid(), signal.SIGTERM)
            await stop.wait()
    finally:
        log.removeHandler(look)
        log.setLevel(level)
    assert list(map(id, seen)) == [id(NOTHING)]
