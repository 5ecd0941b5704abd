"""An ASGI application on a real socket of the loopback, in the loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from starlette.types import ASGIApp

from posthouse.console.serving import serve


@contextlib.asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Its address, as in `127.0.0.1:8470`."""
    listener = socket.create_server(("127.0.0.1", 0))
    async with serving(app, listener) as address:
        yield address


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[str]:
    stop = asyncio.Event()
    running = asyncio.create_task(serve(app, listener, stop))
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        await running
