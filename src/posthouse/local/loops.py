"""Loops: what is closed when its event loop ends and nobody closed it before, as at the end of a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Protocol
from weakref import WeakSet


class Closable(Protocol):
    """Whoever has connections on a loop."""

    async def at_loop_end(self) -> None:
        """Close them. No asynchronous generator may be begun any more."""
        ...


_ends: dict[asyncio.AbstractEventLoop, tuple[AsyncGenerator[None, None], WeakSet[Closable]]] = {}


def close_with_loop(one: Closable) -> None:
    """Close it when the running loop ends. `asyncio.run` cancels all tasks and then closes the asynchronous generators of the
    loop: one that waits for that comes after everything that might still use a connection, also to say a last word."""
    loop = asyncio.get_running_loop()
    if loop not in _ends:
        for other in [other for other in _ends if other.is_closed()]:  # by hand, without all that
            del _ends[other]
        open_: WeakSet[Closable] = WeakSet()
        waiting = _closing(loop, open_)
        try:
            waiting.__anext__().send(None)  # it waits for nothing before its yield
        except StopIteration:
            _ends[loop] = waiting, open_
    _ends[loop][1].add(one)


async def _closing(loop: asyncio.AbstractEventLoop, open_: WeakSet[Closable]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _ends.pop(loop, None)
        for one in list(open_):
            await one.at_loop_end()
