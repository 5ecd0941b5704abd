"""A hint between processes: "look at the log". It may be lost, so nobody relies on it.

It never rides on the publishing transaction, where it would make every commit of the server wait for one lock: it is
sent afterwards, at most one at a time and not more often than every few milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

import asyncpg

import posthouse.brokers.postgres.schema as sql
from posthouse.brokers.postgres.database import CONNECTING, Database
from posthouse.local.doorbell import Doorbell

APART = 0.01
"""Seconds between two hints of one process."""
AGAIN = 5.0
"""Seconds after which a listener that lost its connection tries again."""
POLL = 0.2
"""Seconds between looks at the log that nothing called for, at most, as long as no hint was heard …"""
RARE_POLL = 1.0
"""… and when they are known to come through."""


class Hint:
    """`changed` after something was stored or a group changed, `listen` once somebody waits.

    Behind a pooler nobody listens, and wherever listening fails the looks just stay frequent.
    """

    def __init__(self, database: Database) -> None:
        self.bell = Doorbell(None)
        self.poll = POLL
        self._database = database
        self._channel = f"posthouse {database.schema}"[:63]
        self._unsent = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def changed(self) -> None:
        self.bell.ring()
        self._unsent.set()
        self._keep("telling", self._tell)

    def listen(self) -> None:
        self._keep("listening", self._listen)

    async def aclose(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._unsent.is_set() and not self._database.pooled:
            await self._notify()

    def _keep(self, what: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        if what not in self._tasks and not self._database.pooled:
            self._tasks[what] = asyncio.create_task(work(), name=f"posthouse postgres {what}")

    async def _tell(self) -> None:
        while await self._unsent.wait():
            self._unsent.clear()
            await self._notify()
            await asyncio.sleep(APART)

    async def _notify(self) -> None:
        with contextlib.suppress(Exception):  # those who wait will look by themselves
            await self._database.fetch("telling others", sql.NOTIFY, self._channel)

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # whatever it was, polling goes on
                await self._hear()
            self.poll = POLL
            await asyncio.sleep(AGAIN)

    async def _hear(self) -> None:
        """Listen until the connection ends. Our own first hint proves that they come through."""
        lost = asyncio.Event()
        connection = await asyncpg.connect(self._database.url, timeout=CONNECTING)
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(self._channel, self._heard)
            await self._notify()
            await lost.wait()
        finally:
            connection.terminate()

    def _heard(self, *_: object) -> None:
        self.poll = RARE_POLL
        self.bell.ring()
