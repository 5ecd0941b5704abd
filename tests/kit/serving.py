"""An ASGI application over real HTTP, in the process of the test."""

from __future__ import annotations

import asyncio
import contextlib
import unittest.mock
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

from tests.kit.servers.ports import free_port
from tests.kit.waiting import eventually


@contextlib.asynccontextmanager
async def serving(app: Any, port: int | None = None) -> AsyncIterator[str]:
    """Serve it while the block runs; its URL. At the end its connections are cut."""
    port = port or free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical", lifespan="off"))
    with unittest.mock.patch.object(server, "capture_signals", contextlib.nullcontext):  # the signals are pytest's
        running = asyncio.create_task(server.serve())
        await eventually(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = server.force_exit = True
            for connection in list(server.server_state.connections):
                connection.transport.abort()  # as the end of a process does
            await running
