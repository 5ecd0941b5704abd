"""Serving: the console by itself, on a socket, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

GRACE = 3
"""Seconds for questions that are being answered when it is to end."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are not its own: who starts it says when it ends."""
        yield


async def serve(app: ASGIApp, listener: socket.socket, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    config = uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who asks is not for a header to say
        lifespan="on",
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        server.should_exit = True
        await serving
