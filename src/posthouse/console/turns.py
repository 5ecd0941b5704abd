"""Turns: what costs much is done for a few at a time, and no person has all the places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from posthouse.console.asking import Refusal

PATIENCE = 5.0
"""Seconds that a question waits for its turn."""


class Turns:
    """So many at a time for each person, and so many in all; `what` they are, in words."""

    def __init__(self, *, each: int, of_all: int, what: str) -> None:
        self._each, self._what = each, what
        self._all = asyncio.Semaphore(of_all)
        self._mine: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, person: str) -> AsyncIterator[None]:
        """A turn of this person; Refusal 429 where none is free in time."""
        mine = self._mine.get(person)
        if mine is None:
            mine = self._mine[person] = asyncio.Semaphore(self._each)
        whose = "of yours"
        try:
            async with asyncio.timeout(PATIENCE):
                await mine.acquire()
                whose = "of all who look"
                try:
                    await self._all.acquire()
                except BaseException:
                    mine.release()
                    raise
        except TimeoutError:
            raise Refusal(
                429, f"Too many {self._what} {whose} are being read.", "Wait until they are there, then ask again."
            ) from None
        try:
            yield
        finally:
            self._all.release()
            mine.release()
