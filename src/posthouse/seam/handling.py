"""Handling: a call of a handler, timed, with a deadline that is kept whatever the handler does about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from posthouse.seam.deadline import in_thread, on_loop
from posthouse.seam.seam import Seam
from posthouse.store import Submit


async def call_async(seam: Seam, work: Awaitable[object], seconds: float, name: str) -> object:
    """A call of the handler `name`: as `on_loop`."""
    with seam.call(name):
        return await on_loop(work, seconds, name)


async def call_plain(
    seam: Seam, work: Callable[[], object], seconds: float, name: str, submit: Submit | None = None
) -> object:
    """A call of the handler `name`, a plain function: as `in_thread`."""
    with seam.call(name):
        return await in_thread(work, seconds, name, submit)
