"""Broadcast: one reader of a feed, and any number of clients that hear it as server-sent events, each within a bound of memory."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from posthouse.errors import PosthouseError
from posthouse.redaction import words_of

log = logging.getLogger("posthouse.sse")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Still = Callable[[], Awaitable[bool]]
"""Whether somebody may go on listening."""

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)
BEAT = b": \n\n"

LOOK = 0.5
"""Seconds between two reads where nothing was heard of a change, and at the most until a stop of the server is noticed."""
PAUSE = 0.05
"""Seconds between two reads however much changes: what came meanwhile is read together."""


class Item(msgspec.Struct, frozen=True):
    """One thing to tell, the position behind it, and to whom."""

    position: str
    data: bytes
    audience: str = ""


class Page(msgspec.Struct, frozen=True):
    """What lies behind a position. `gone`: nobody can say what, and `position` is the end."""

    position: str
    items: Sequence[Item] = ()
    more: bool = False
    gone: bool = False


class Feed(Protocol):
    """Something to follow. Positions are text without line ends; one that was given later lies behind one given before."""

    async def read(self, after: str, audiences: Collection[str], *, upto: str = "") -> Page:
        """What lies behind a position for some audiences, up to another one; behind an empty one nothing: the end."""
        ...

    async def wait(self, seconds: float) -> None:
        """Return once something may have changed, at the latest after so many seconds."""
        ...


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`clients`: so many at a time, and `each` of them of one person. `recheck`: seconds after which it is asked again whether one may
    still hear. `heartbeat`: seconds of silence after which a comment is sent. `patience`: seconds that a client
    may take nothing, and `backlog`: bytes that may wait for it; beyond either it is ended, and resumes. `lifetime`: seconds after which a connection
    is ended, so that whoever comes back is asked again who he is. `retry`: seconds that a browser waits before it does. `beat`: what
    a heartbeat is."""

    clients: int = 1000
    each: int | None = None
    recheck: float = 5.0
    heartbeat: float = 15.0
    patience: float = 20.0
    backlog: int = 262_144
    lifetime: float = 900.0
    retry: float = 2.0
    beat: bytes = BEAT


def frame(data: bytes, *, id: str = "", event: str = "") -> bytes:
    """An event as it stands on the wire; `data` has no line ends."""
    lines = [b"event: " + event.encode()] if event else []
    lines += [b"id: " + id.encode()] if id else []
    return b"\n".join([*lines, b"data: " + data, b"", b""])


class SlowClient(Exception):
    """It takes nothing any more."""


class Client:
    """Who listens, and what waits for it."""

    def __init__(self, audience: str, backlog: int) -> None:
        self.audience = audience
        self.start = ""
        """Where the feed stood when it joined: what is behind that is put here."""
        self.over = ""
        """Why it is to be ended."""
        self._backlog = backlog
        self._waiting: list[bytes] = []
        self._size = 0
        self._news = asyncio.Event()

    def put(self, frames: Sequence[bytes]) -> None:
        """Let it have these, unless too much waits already."""
        self._size += sum(map(len, frames))
        if self._size > self._backlog:
            self._waiting.clear()
            self.end("it reads too slowly")
        else:
            self._waiting += frames
            self._news.set()

    def end(self, why: str) -> None:
        """Let it go, and come again."""
        self.over = self.over or why
        self._news.set()

    async def take(self, seconds: float) -> bytes:
        """What waits; nothing after so many seconds, or at its end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()
        taken, self._waiting, self._size = b"".join(self._waiting), [], 0
        return b"" if self.over else taken


class Broadcast:
    """Reads a feed while somebody listens, once for all, and tells each what is for it."""

    def __init__(self, feed: Feed, limits: Limits) -> None:
        self.feed = feed
        self.limits = limits
        self._clients: set[Client] = set()
        self._arriving: list[tuple[Client, asyncio.Future[None]]] = []
        self._position = ""
        self._reader: asyncio.Task[None] | None = None
        self._inside = 0
        self._of: Counter[str] = Counter()

    @property
    def listeners(self) -> int:
        """How many connections there are."""
        return self._inside

    async def aclose(self) -> None:
        """End every connection; they may come again."""
        self._end()
        if self._reader is not None:
            self._reader.cancel()

    def _end(self) -> None:
        for client in [*self._clients, *(client for client, _ in self._arriving)]:
            client.end("the server stops")
        for _, arrived in self._arriving:
            if not arrived.done():
                arrived.set_result(None)
        self._arriving.clear()

    async def serve(
        self, audience: str, after: str, receive: Receive, send: Send, *, person: str = "", still: Still | None = None
    ) -> None:
        """Tell one client, from a position on, until it goes, is too slow, or the process stops. Without a position it is told
        `ready`, behind which nothing is missed; `must-refetch` where nobody can say what it missed. Where there is no room, or
        the feed cannot be read, it is told `busy` and comes again: a browser gives up for good after any other answer. `person` is who
        it is, where one must not take all places; `still` says whether they may go on listening."""
        await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
        each = self.limits.each
        if self._inside >= self.limits.clients or (each is not None and self._of[person] >= each):
            await self._busy(send)
            return
        self._inside += 1
        self._of[person] += 1
        client = Client(audience, self.limits.backlog)
        watcher = asyncio.create_task(_gone(receive, client))
        try:
            await self._tell(client, after, send, still)
        except SlowClient:
            log.info("a client of server-sent events took nothing for %g s, and is ended", self.limits.patience)
        except (PosthouseError, TimeoutError) as error:
            log.warning("a client of server-sent events is to come later: %s", words_of(error) or "nothing can be read")
            with suppress(TimeoutError):
                async with asyncio.timeout(self.limits.patience):
                    await self._busy(send)
        finally:
            self._inside -= 1
            self._of[person] -= 1
            self._of += Counter()  # forget who has none
            self._clients.discard(client)
            watcher.cancel()

    async def _busy(self, send: Send) -> None:
        wait = int(1000 * random.uniform(5, 15))
        await send({"type": "http.response.body", "body": b"retry: %d\n" % wait + frame(b"{}", event="busy")})

    async def _tell(self, client: Client, after: str, send: Send, still: Still | None) -> None:
        limits = self.limits
        loop = asyncio.get_running_loop()
        asked = loop.time()

        async def may_hear() -> bool:
            nonlocal asked
            if still is None or loop.time() < asked + limits.recheck:
                return True
            asked = loop.time()
            return await still()

        async def write(data: bytes, *, more: bool = True) -> None:
            try:
                async with asyncio.timeout(limits.patience):
                    await send({"type": "http.response.body", "body": data, "more_body": more})
            except TimeoutError:
                raise SlowClient from None

        await write(b"retry: %d\n\n" % int(limits.retry * 1000))
        await self._join(client)
        if not after and client.start:
            await write(frame(b"{}", id=client.start, event="ready"))
        position = after
        while after and position != client.start and not client.over:
            page = await self.feed.read(position, [client.audience], upto=client.start)
            if page.gone:
                await write(frame(b"{}", id=client.start, event="must-refetch"))
                break
            if page.items:
                await write(b"".join(_frames(page.items)))
            position = page.position
            if not page.more:
                break
        lifetime = limits.lifetime * random.uniform(0.9, 1.0)  # from here on, so that each connection comes further
        ender = asyncio.get_running_loop().call_later(lifetime, client.end, "it is to say again who it is")
        try:
            while not client.over:
                taken = await client.take(limits.heartbeat)
                if not await may_hear():
                    client.end("it may hear no more")
                    break
                if taken or not client.over:
                    await write(taken or limits.beat)
        finally:
            ender.cancel()
        log.debug("a client of server-sent events is ended: %s", client.over)
        await write(b"", more=False)

    async def _join(self, client: Client) -> None:
        """Take it in at a place of the feed that was read after it came: what it has seen before lies in front of that."""
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arriving.append((client, arrived))
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        async with asyncio.timeout(self.limits.patience):
            await arrived

    async def _read(self) -> None:
        """While somebody listens."""
        wait, told = LOOK, ""
        self._position = ""
        while self._arriving or self._clients:
            if _server_stops():
                self._end()
                return
            arriving, self._arriving = self._arriving, []
            try:
                page = await self.feed.read(self._position, {client.audience for client in self._clients})
                wait, told = LOOK, ""
            except Exception as error:
                self._arriving = [*arriving, *self._arriving]
                if told != (told := words_of(error)):
                    log.warning("server-sent events wait, what they tell cannot be read: %s", told)
                wait = min(wait * 2, 2.0)
                await asyncio.sleep(wait)
                self._arriving = [(one, future) for one, future in self._arriving if not future.done()]
                continue
            self._spread(page)
            if page.more:
                self._arriving = [*arriving, *self._arriving]
                continue
            for client, arrived in arriving:
                if not arrived.done():
                    client.start = page.position
                    self._clients.add(client)
                    arrived.set_result(None)
            await asyncio.sleep(PAUSE)
            if not self._arriving:
                await self.feed.wait(LOOK)

    def _spread(self, page: Page) -> None:
        """Each client gets what is for it, in the same bytes for all."""
        self._position = page.position
        if page.gone:
            for client in self._clients:
                client.put([frame(b"{}", id=page.position, event="must-refetch")])
        if not page.items:
            return
        frames = _frames(page.items)
        for client in self._clients:
            mine = [told for told, item in zip(frames, page.items, strict=True) if item.audience == client.audience]
            if mine:
                client.put(mine)


def _frames(items: Sequence[Item]) -> list[bytes]:
    return [frame(item.data, id=item.position) for item in items]


async def _gone(receive: Receive, client: Client) -> None:
    """Notice that a client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
    client.end("it has left")


def _server_stops() -> bool:
    """Whether uvicorn is about to stop: it waits for every answer to end, and tells nobody. Its signal handler is a method of the
    server that knows."""
    handler = signal.getsignal(signal.SIGTERM)
    return bool(getattr(getattr(handler, "__self__", None), "should_exit", False))
