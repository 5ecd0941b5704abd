"""Background work of a member: nobody waits for it, so its end must be told to whoever comes next."""

from __future__ import annotations

import asyncio

from posthouse.errors import BrokerError


def raise_if_ended(task: asyncio.Task[None] | None) -> None:
    """Call it in `receive` and `ack`. Whoever hears of it closes the stream and subscribes again."""
    if task is not None and task.done() and not task.cancelled():
        cause = task.exception()
        raise BrokerError(f"{task.get_name()} ended by itself ({cause!r}): subscribe again") from cause
