"""A client of server-sent events as browsers are: it keeps the last id, and comes back with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import httpx
import msgspec

from tests.kit.waiting import eventually


class Heard(NamedTuple):
    event: str
    id: str
    data: dict[str, Any]


class Listener:
    """What one client has heard, over all its connections."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url = url
        self.headers = dict(headers)
        self.heard: list[Heard] = []
        self.comments = 0
        self.connections = 0
        self.last_id = ""
        self.retry = 0
        self.answered: httpx.Headers | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [one.data for one in self.heard if one.event == "message"]

    async def listen(self) -> None:
        """One connection, to its end."""
        resume = {"Last-Event-ID": self.last_id} if self.last_id else {}
        async with (
            httpx.AsyncClient(timeout=httpx.Timeout(30, read=None), trust_env=False) as client,
            client.stream("GET", self.url, headers={**self.headers, **resume}) as answer,
        ):
            assert answer.status_code == 200, answer.status_code
            self.answered = answer.headers
            self.connections += 1
            event, data = "message", ""
            async for line in answer.aiter_lines():
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if not line:
                    if data:
                        self.heard.append(Heard(event, self.last_id, msgspec.json.decode(data)))
                    event, data = "message", ""
                elif not name:
                    self.comments += 1
                elif name == "id":
                    self.last_id = value
                elif name == "event":
                    event = value
                elif name == "data":
                    data += value
                elif name == "retry":
                    self.retry = int(value)

    async def follow(self) -> None:
        """Come back whenever the connection ends."""
        while True:
            with contextlib.suppress(httpx.HTTPError, AssertionError):
                await self.listen()
            await asyncio.sleep(0.05)

    async def hears(self, *events: str) -> None:
        """Until it was told these, among others."""
        await eventually(
            lambda: {one.event for one in self.heard} >= set(events), f"{events}, heard {len(self.heard)} so far"
        )


@contextlib.asynccontextmanager
async def listening(url: str, headers: Mapping[str, str], last_id: str = "") -> AsyncIterator[Listener]:
    """A listener that comes back again and again while the block runs."""
    listener = Listener(url, headers)
    listener.last_id = last_id
    task = asyncio.create_task(listener.follow())
    try:
        yield listener
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
