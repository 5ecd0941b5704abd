"""Listening: one connection of its own that hears the hints of other machines, for as long as it lasts."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from posthouse.clock import backoff

CONNECTING = 10.0
FIRST_AGAIN, LAST_AGAIN = 0.5, 30.0
"""Seconds after which a listener that lost its connection tries again."""
PROOF = 2.0
"""Seconds in which a hint must come through, or nobody can rely on them here."""
HEARTBEAT = 20.0
"""Seconds between two signs of life, so that a connection whose other end is gone is noticed."""


class Listener:
    """Calls `on_hint` for each hint, and `on_turn` when it begins or ceases to listen, and after a first try in vain. It
    counts as listening once it has heard a hint that `prove` sent through another connection: a pooler may take a LISTEN
    and never deliver anything."""

    def __init__(
        self,
        url: str,
        channel: str,
        name: str,
        *,
        on_hint: Callable[[], None],
        on_turn: Callable[[], None],
        prove: Callable[[], Awaitable[object]],
    ) -> None:
        self.listening = False
        self.trouble = "not tried yet"
        self._url = url
        self._channel = channel
        self._name = name
        self._on_hint = on_hint
        self._on_turn = on_turn
        self._prove = prove
        self._tried = asyncio.Event()
        self._heard = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen from now on. Idempotent."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._keep(), name="posthouse listens for hints", context=contextvars.Context()
            )  # whoever came first, it is not for him alone

    async def tried(self) -> None:
        """Wait for the end of the first try."""
        await self._tried.wait()

    async def aclose(self) -> None:
        """Stop. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _keep(self) -> None:
        failures = 0
        while True:
            try:
                await self._listen()
            except Exception as error:  # whatever it was, polling goes on
                self.trouble = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            failures = 1 if self.listening else failures + 1
            self._turn(False)
            await asyncio.sleep(backoff(failures, FIRST_AGAIN, LAST_AGAIN))

    async def _listen(self) -> None:
        """Until the connection is lost."""
        lost = asyncio.Event()
        connection = await self._connect()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(self._channel, self._hint)
            await self._be_sure()
            self._turn(True)
            while not lost.is_set():
                await self._live(connection, lost)
            self.trouble = "the connection was lost"
        finally:
            connection.terminate()

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        given = "target_session_attrs" in urlsplit(self._url).query
        return await asyncpg.connect(
            self._url,
            timeout=CONNECTING,
            statement_cache_size=0,
            target_session_attrs=None if given else SessionAttribute.read_write,
            server_settings={"application_name": self._name},
        )

    async def _be_sure(self) -> None:
        self._heard.clear()
        await self._prove()
        try:
            async with asyncio.timeout(PROOF):
                await self._heard.wait()
        except TimeoutError:
            raise ConnectionError(f"LISTEN was taken, but no hint came through in {PROOF:g} s: a pooler?") from None

    async def _live(self, connection: asyncpg.Connection[asyncpg.Record], lost: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT):
                await lost.wait()
        except TimeoutError:
            await connection.execute("SELECT 1", timeout=CONNECTING)

    def _turn(self, listening: bool) -> None:
        news = listening != self.listening or not self._tried.is_set()
        self.listening = listening
        self._tried.set()
        if news:
            self._on_turn()

    def _hint(self, *_: object) -> None:
        self._heard.set()
        self._on_hint()
