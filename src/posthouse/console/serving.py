"""Serving: the console by itself, on a socket, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from posthouse.local.connections import patient_protocol

GRACE = 3
"""Seconds for questions that are being answered when it is to end."""


MOST_CONNECTIONS = 500
"""More at a time are told to come back later."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ending: Callable[[], Awaitable[None]] | None) -> None:
        super().__init__(config)
        self._ending = ending

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are not its own: who starts it says when it ends."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """What is told for long ends first: it would be waited for, and then cut off."""
        if self._ending is not None:
            await self._ending()
        await super().shutdown(sockets=sockets)


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    ending: Callable[[], Awaitable[None]] | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until `stop` is set; then `ending` ends answers that would last."""
    config = uvicorn.Config(
        app,
        http=patient_protocol(),
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who asks is not for a header to say
        lifespan="on",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
    )
    config.load()
    config.ssl = tls
    server = _Server(config, ending)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        server.should_exit = True
        await serving
