"""Waiting for what comes by itself, always with a deadline."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")
PATIENCE = 30.0
"""Seconds; a busy machine needs some of them."""


@overload
async def eventually(
    look: Callable[[], Awaitable[T | None]],
    what: str = "",
    *,
    right: Callable[[T], object] = ...,
    within: float = ...,
    pause: float = ...,
) -> T: ...
@overload
async def eventually(
    look: Callable[[], T | None],
    what: str = "",
    *,
    right: Callable[[T], object] = ...,
    within: float = ...,
    pause: float = ...,
) -> T: ...
async def eventually(
    look: Callable[[], Any],
    what: str = "",
    *,
    right: Callable[[Any], object] = bool,
    within: float = PATIENCE,
    pause: float = 0.005,
) -> Any:
    """What `look` finds, at once or when it is awaited, as soon as that is `right`; fails after `within` seconds."""
    found = None
    try:
        async with asyncio.timeout(within) as patience:
            while True:
                found = look()
                if inspect.isawaitable(found):
                    found = await found
                if right(found):
                    return found
                await asyncio.sleep(pause)
    except TimeoutError:
        if not patience.expired():
            raise
        raise AssertionError(
            f"{what or getattr(look, '__qualname__', look)} did not happen within {within:g} s: {found!r}"
        ) from None


def until(condition: Callable[[], object], what: str, *, within: float = 3 * PATIENCE, pause: float = 0.005) -> float:
    """The same where nothing else runs meanwhile; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within, f"{what} did not happen within {within:g} s"
        time.sleep(pause)
    return time.monotonic() - began
