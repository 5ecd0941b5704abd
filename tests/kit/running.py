"""Relays, runtimes and services at work for the length of a block."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine


@contextlib.asynccontextmanager
async def at_work(*runs: Callable[[asyncio.Event], Coroutine[object, object, object]]) -> AsyncIterator[None]:
    """Each runs until its event is set, at the end of the block: `at_work(runtime.run)`. What one raised is raised then."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(run(stop)) for run in runs]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)
