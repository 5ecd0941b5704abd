"""One id in all that follows from a request: its answer, its event, the log lines of both, the calls that they make."""

from __future__ import annotations

import io
import json
import logging
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from flask import Flask

from posthouse import App, Event, Payload, Service
from posthouse.edges.correlation import AsgiCorrelation, WsgiCorrelation, carry
from posthouse.watch.logs import JsonLines
from tests.kit.servers.ports import free_port
from tests.kit.waiting import eventually

HEADER = "X-Correlation-ID"
log = logging.getLogger("shop.story")


class Placed(Payload):
    order: str


class Story:
    """A shop that logs and calls a vendor in the request and in the handler, and what was seen of both."""

    def __init__(self, folder: Path) -> None:
        self.shop = Service("shop")
        self.shop.event("order.placed.v1", key="order")(Placed)
        self.file = folder / "shop.db"
        self.app = App(self.shop, store=f"sqlite:///{self.file}", broker="memory://")
        self.called: list[str] = []
        self.events: list[str | None] = []
        self.lines = io.StringIO()
        self.hooks: dict[str, list[Any]] = {"request": [carry]}
        self.shop.on(Placed)(self.pack)

    def vendor(self, request: httpx.Request) -> httpx.Response:
        self.called.append(request.headers[HEADER])
        return httpx.Response(204)

    async def pack(self, event: Event[Placed]) -> None:
        log.info("packed")
        async with httpx.AsyncClient(transport=httpx.MockTransport(self.vendor), event_hooks=self.hooks) as client:
            await client.post("http://vendor/parcels")
        self.events.append(event.correlation)

    def call_vendor(self) -> None:
        with httpx.Client(transport=httpx.MockTransport(self.vendor), event_hooks=self.hooks) as client:
            client.post("http://vendor/stock")

    def is_one(self, id: str) -> bool:
        """Whether everything that was seen has this id, and there was all of it."""
        lines = [json.loads(line) for line in self.lines.getvalue().splitlines()]
        said = [(line["event"], line["correlation"]) for line in lines]
        return (said, self.called, self.events) == ([("placed", id), ("packed", id)], [id, id], [id])


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    story = Story(tmp_path)
    handler = logging.StreamHandler(story.lines)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield story
    log.removeHandler(handler)


async def test_with_fastapi(story: Story) -> None:
    api = FastAPI()
    api.add_middleware(AsgiCorrelation)

    @api.post("/orders/{order}")
    async def place(order: str) -> None:
        log.info("placed")
        async with story.shop.transaction("t1") as tx:
            tx.publish(Placed(order=order))
        story.call_vendor()

    async with story.app.running():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as client:
            answer = await client.post("/orders/o1")
        await eventually(lambda: story.events)
    assert story.is_one(answer.headers[HEADER])


async def test_with_flask(story: Story) -> None:
    app = Flask("shop")
    app.wsgi_app = WsgiCorrelation(app.wsgi_app)  # type: ignore[method-assign]

    @app.post("/orders/<order>")
    def place(order: str) -> str:
        log.info("placed")
        connection = sqlite3.connect(story.file)
        connection.execute("BEGIN IMMEDIATE")
        story.shop.outbox.add_now(connection, Placed(order=order), tenant="t1")
        connection.commit()
        connection.close()
        story.call_vendor()
        return "ok"

    async with story.app.running():
        answer = app.test_client().post("/orders/o1")
        await eventually(lambda: story.events)
    assert story.is_one(answer.headers[HEADER])


LOG_CONFIG = Path(__file__).parents[3] / "docs" / "examples" / "logging.json"


def test_under_uvicorn_its_own_lines_have_it_too(tmp_path: Path) -> None:
    (tmp_path / "shop_site.py").write_text(
        """
from fastapi import FastAPI
from posthouse.edges.correlation import AsgiCorrelation

app = FastAPI()
app.add_middleware(AsgiCorrelation)

@app.get("/fails")
async def fails() -> None:
    raise ValueError("no")

served = AsgiCorrelation(app)
"""
    )
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "shop_site:served",
        "--port",
        str(port),
        "--log-config",
        str(LOG_CONFIG),
    ]
    with (tmp_path / "stderr").open("w") as stderr, subprocess.Popen(command, cwd=tmp_path, stderr=stderr) as server:
        try:
            ids = {_asked(server, port, "/none"): 404, _asked(server, port, "/fails"): 500}
            with httpx.Client() as client:
                for _ in range(70):
                    client.get(f"http://127.0.0.1:{port}/again")
        finally:
            server.terminate()
    lines = [json.loads(line) for line in (tmp_path / "stderr").read_text().splitlines()]
    access = {line["correlation"]: line["event"] for line in lines if line["logger"] == "uvicorn.access"}
    assert len(access) == 72  # only lines of Posthouse's own are counted in place of being written
    for id, status in ids.items():
        assert access[id].endswith(str(status))
    (error,) = [line for line in lines if "exception" in line]
    assert f"correlation {next(id for id, status in ids.items() if status == 500)}" in error["exception"]


def _asked(server: subprocess.Popen[bytes], port: int, path: str) -> str:
    deadline = time.monotonic() + 30
    while True:
        assert server.poll() is None
        try:
            return httpx.get(f"http://127.0.0.1:{port}{path}").headers[HEADER]
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
