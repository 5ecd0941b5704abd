"""Connections: whoever takes nothing of an answer does not keep its place."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import uvicorn
from starlette.types import Receive, Scope, Send

from posthouse.local.connections import Patience, patient_protocol
from tests.kit.waiting import eventually


async def test_whoever_takes_nothing_of_an_answer_is_cut_off() -> None:
    ended = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with contextlib.suppress(OSError):
            while (await is_there(receive)) and not ended.is_set():
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        ended.set()

    async def is_there(receive: Receive) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                return bool((await receive())["type"] != "http.disconnect")
        return True

    config = uvicorn.Config(
        endless, http=patient_protocol(Patience(taking=0.3)), log_config=None, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server._serve(sockets=[listener]))
        _reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1_024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(ended.is_set, "the answer that nobody takes is given up")
        await eventually(lambda: not server.server_state.connections)
        writer.close()
        server.should_exit = True
        await serving
