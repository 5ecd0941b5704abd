"""Collisions: a transaction that another one was in the way of is run again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from posthouse.clock import backoff
from posthouse.errors import StoreCollision, VersionConflict
from posthouse.pulse import alive

log = logging.getLogger("posthouse.consumer")

TRIES = 5
FIRST_PAUSE, LAST_PAUSE = 0.01, 0.5
"""Seconds between two of them; random, so that the two transactions do not meet again."""

T = TypeVar("T")


async def despite_collisions(run: Callable[[], Awaitable[T]], who: str) -> T:
    """What `run`, a whole transaction, returns: called again, a few times, when it collided with another one. That is no
    fault of an event, so no attempt is counted."""
    tries = 0
    while True:
        tries += 1
        alive()
        try:
            return await run()
        except (StoreCollision, VersionConflict) as error:
            if tries == TRIES:
                raise
            log.info("%s: %s", who, error)
        await asyncio.sleep(backoff(tries, FIRST_PAUSE, LAST_PAUSE, factor=4.0))
