"""A loopback TCP proxy that a test can cut, stall, slow down and heal: a `Link` for any server."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Literal

CHUNK = 64 * 1024
Way = Literal["asked", "answered"]


class Proxy:
    """Passes bytes to a server. It listens on the same port all its life, so that clients find it again. With `tls` clients
    have to speak that to it; the server hears plain text."""

    def __init__(self, host: str, port: int, *, listen: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._listen = listen
        self._tls = tls
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._ways: dict[Way, asyncio.Event] = {"asked": asyncio.Event(), "answered": asyncio.Event()}
        for way in self._ways.values():
            way.set()
        self._refusing = False
        self._delay = 0.0
        self.port = 0
        self.said = 0
        """How often a client said something."""
        self._last: tuple[int, Literal["cut", "stall"]] | None = None

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._listen, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cut(self) -> None:
        """Reset every connection, and every new one."""
        self._refusing = True
        self._flowing.set()
        for writer in tuple(self._open):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def stall(self) -> None:
        """Let no byte pass and close nothing; new connections are taken and get no answer."""
        self._flowing.clear()

    @property
    def refuses(self) -> bool:
        """Whether it was cut, and nobody gets through."""
        return self._refusing

    @property
    def stalled(self) -> bool:
        return not self._flowing.is_set()

    async def stall_one_way(self, way: Way) -> None:
        """Let nothing pass of what the clients ask, or of what the server answers; the other way all is well."""
        self._ways[way].clear()

    async def slow(self, seconds: float) -> None:
        """Let everything pass, so much later, each way."""
        self._delay = seconds

    async def cut_when_silent(self, seconds: float) -> None:
        """Cut as soon as the clients have said something, and then nothing for so long."""
        before = -1
        while not self.said or before != self.said:
            before = self.said
            await asyncio.sleep(seconds)
        await self.cut()

    def after(self, said: int, fault: Literal["cut", "stall"]) -> None:
        """Let the clients say so many things more, as they come in from a socket; then cut or stall."""
        self._last = (self.said + said, fault)

    async def heal(self) -> None:
        """Everything passes again."""
        self._last = None
        self._refusing = False
        self._delay = 0.0
        self._flowing.set()
        for way in self._ways.values():
            way.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            await self._flowing.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._open.add(far_writer)
            try:
                await asyncio.gather(self._pass(reader, far_writer, said=True), self._pass(far_reader, writer))
            finally:
                self._open.discard(far_writer)
                far_writer.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # an end went away, or the test is over
        finally:
            self._open.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, said: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._flowing.wait()
                await self._ways["asked" if said else "answered"].wait()
                if self._delay:
                    await asyncio.sleep(self._delay)
                self.said += said
                writer.write(data)
                await writer.drain()
                if self._last is not None and self.said >= self._last[0]:
                    await (self.cut() if self._last[1] == "cut" else self.stall())
        writer.transport.abort()
