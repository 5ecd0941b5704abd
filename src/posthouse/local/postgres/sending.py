"""Sending: a hint on a channel of the server, "something was committed", for listeners that no socket reaches.

It never rides on the transaction that it tells of: NOTIFY makes all commits that carry one wait for one lock of the whole
cluster. It is sent afterwards, from another connection, at most once in a few milliseconds, and only while somebody
elsewhere listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections.abc import Awaitable, Callable

from posthouse.store import Rows

APART = 0.005
"""Seconds between two hints of one process: the first of a burst goes at once, what follows within this time is one more."""
LOOK = 2.0
"""Seconds between two looks for listeners."""

Run = Callable[..., Awaitable[Rows]]
"""Runs a statement with its parameters, in a transaction of its own."""

# Say it. Nobody waits for the disk: what a crash takes away was only a hint.
NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')"

# Whether anybody listens whom our sockets do not reach.
LISTENERS = """
SELECT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.datname = current_database()
    AND a.application_name LIKE $1 AND a.application_name NOT LIKE $2)
"""


class NotifySender:
    """`tell` after a commit: it returns at once and never fails. `listeners` is a pattern of the application names of all who
    listen, `neighbours` one of those whom the sockets reach."""

    def __init__(self, run: Run, channel: str, listeners: str, neighbours: str) -> None:
        self._run = run
        self._channel = channel
        self._listeners = listeners
        self._neighbours = neighbours
        self._unsent = False
        self._task: asyncio.Task[None] | None = None
        self._wanted = False
        self._look_at = float("-inf")

    def send(self) -> None:
        """Something was committed."""
        if not self._wanted and time.monotonic() < self._look_at:
            return  # nobody elsewhere listened a moment ago
        self._unsent = True
        if self._task is None or self._task.done():
            with contextlib.suppress(
                RuntimeError
            ):  # a thread without a loop: who listens elsewhere will look by itself
                self._task = asyncio.get_running_loop().create_task(
                    self._work(), name="posthouse tells of a commit", context=contextvars.Context()
                )  # whoever came first, it is not for him alone

    async def aclose(self) -> None:
        """Say what was not said yet, and end."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])
        if self._unsent:
            await self._say()

    async def _work(self) -> None:
        while self._unsent:
            await self._say()
            await asyncio.sleep(APART)

    async def _say(self) -> None:
        self._unsent = False
        with contextlib.suppress(Exception):  # those who wait look by themselves
            if await self._heard_elsewhere():
                await self._run(NOTIFY, self._channel)

    async def _heard_elsewhere(self) -> bool:
        now = time.monotonic()
        if now >= self._look_at:
            self._wanted = bool((await self._run(LISTENERS, self._listeners, self._neighbours)).scalar())
            self._look_at = now + LOOK
        return self._wanted
