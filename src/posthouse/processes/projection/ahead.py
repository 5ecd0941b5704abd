"""Ahead: the next thing is made while the last one is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def ahead(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """What a source gives, each thing made while the one before is used."""
    async with aclosing(source):
        coming = asyncio.create_task(_next(source))
        try:
            while found := await coming:
                coming = asyncio.create_task(_next(source))
                yield found[0]
        finally:
            coming.cancel()
            await asyncio.wait([coming])
            if not coming.cancelled():
                coming.exception()  # nobody wants it any more, so it may fail in silence


async def _next(source: AsyncGenerator[T, None]) -> list[T]:
    """Empty at the end."""
    async for found in source:
        return [found]
    return []
