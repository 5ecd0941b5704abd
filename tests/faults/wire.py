"""A wire between a client and PostgreSQL that can be cut at a commit, before the server hears it or after it obeyed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

COMMIT = b"COMMIT\x00"


class Wire:
    """Passes bytes on, until it is armed: then the next COMMIT is the last thing that its connection sees. `before`: the
    server never hears it. `after`: the server has answered, and the client never hears that."""

    def __init__(self) -> None:
        self.armed: Literal["", "before", "after"] = ""
        self.cuts = 0

    async def serve(self, host: str, port: int, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        reader, server = await asyncio.open_connection(host, port)
        deaf = asyncio.Event()
        answers = asyncio.create_task(self._answers(reader, back, deaf))
        try:
            while chunk := await client.read(65536):
                if self.armed and COMMIT in chunk:
                    how, self.armed = self.armed, ""
                    self.cuts += 1
                    if how == "after":
                        deaf.set()
                        server.write(chunk)
                        await answers
                    break
                server.write(chunk)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            answers.cancel()
            for end in (server, back):
                end.transport.abort()

    async def _answers(self, server: asyncio.StreamReader, back: asyncio.StreamWriter, deaf: asyncio.Event) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await server.read(65536):
                if deaf.is_set():
                    return
                back.write(chunk)
            back.close()  # the server has hung up


@asynccontextmanager
async def wired(url: str) -> AsyncIterator[tuple[Wire, str]]:
    """A wire to the server of `url`, and the URL of its other end."""
    parts, wire = urlsplit(url), Wire()
    listener = await asyncio.start_server(
        lambda reader, writer: wire.serve(str(parts.hostname), int(parts.port or 5432), reader, writer), "127.0.0.1", 0
    )
    port = listener.sockets[0].getsockname()[1]
    try:
        yield wire, parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()
    finally:
        listener.close()
        await listener.wait_closed()
