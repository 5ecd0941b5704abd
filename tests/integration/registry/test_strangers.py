"""A registry among strangers: half-sent requests, web pages, schemas that take long or go deep."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode
from posthouse.governance.registry.app import registry_app
from posthouse.governance.registry.comparing import Known
from posthouse.governance.registry.ledgers import open_ledger
from posthouse.governance.registry.workers import WorkerJudge
from posthouse.local.connections import Patience, patient_protocol
from tests.integration.registry.client import ORDER, Client, schema_body, served
from tests.integration.registry.process import registry_process, workers_of

HALF = b"POST /subjects/a/versions HTTP/1.1\r\nHost: localhost\r\nContent-Le"
CROWD = 505
LONG = 12
"""Versions to compare with that take longer than a registry is given to end."""
JSON = "application/vnd.schemaregistry.v1+json"


def union(longer: int, count: int = 200) -> str:
    """Branches that all overlap. Two hundred are seconds of work; of many more it is seen at once that they are too many."""
    branches = [
        {"properties": {f"k{n}": {"minimum": n}, "c": {"maxLength": n + longer}}, "required": [f"k{n}"]}
        for n in range(count)
    ]
    return json.dumps({"oneOf": branches})


@pytest.mark.parametrize("start", [HALF, b""], ids=["half", "nothing"])
def test_a_crowd_that_never_finishes_its_requests_keeps_nobody_out(tmp_path: Path, start: bytes) -> None:
    with registry_process(f"sqlite:///{tmp_path / 'registry.db'}") as url, contextlib.ExitStack() as crowd:
        place = urlsplit(url)
        for _ in range(CROWD):
            connection = crowd.enter_context(socket.create_connection((str(place.hostname), int(place.port or 0))))
            with contextlib.suppress(OSError):
                connection.sendall(start)
        for number in range(5):
            answer = httpx.post(f"{url}/subjects/s{number}/versions", json=schema_body(ORDER), timeout=10)
            assert answer.status_code == 200, answer.text
        assert len(httpx.get(f"{url}/subjects", timeout=10).json()) == 5


@pytest.mark.parametrize("start", [b"", HALF, b"GET /subjects HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF])
async def test_a_request_that_is_not_finished_is_cut_off(start: bytes) -> None:
    app = registry_app(open_ledger("sqlite://"))
    server = uvicorn.Server(uvicorn.Config(app, http=patient_protocol(Patience(headers=0.3)), log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(start)
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionResetError):
                while await reader.read(1_000):
                    pass
        writer.close()
        server.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def on_loopback(base_url: str = "http://127.0.0.1:8081") -> AsyncIterator[httpx.AsyncClient]:
    ledger = open_ledger("sqlite://")
    await ledger.open()
    try:
        app = registry_app(ledger, opened=True, loopback=True)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=base_url) as http:
            yield http
    finally:
        await ledger.aclose()


BODY = json.dumps(schema_body(ORDER))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({}, 415),
        ({"content-type": JSON, "origin": "https://evil.example"}, 403),
        ({"content-type": JSON, "origin": "null"}, 403),
        ({"content-type": JSON, "origin": "http://[::1"}, 403),
        ({"content-type": JSON, "sec-fetch-site": "cross-site"}, 403),
        ({"content-type": JSON, "host": "evil.example"}, 421),
        ({"content-type": JSON, "host": "evil.example:8081", "origin": "http://evil.example:8081"}, 421),
        ({"content-type": JSON, "host": "127.0.0.1.evil.example"}, 421),
    ],
)
async def test_a_web_page_cannot_write_to_a_registry_on_the_loopback(headers: dict[str, str], status: int) -> None:
    async with on_loopback() as http:
        answer = await http.post("/subjects/a/versions", content=BODY, headers=headers)
        assert answer.status_code == status, answer.text
        assert answer.json()["error_code"] == status
        assert (await http.get("/subjects")).json() == []


async def test_a_page_under_a_name_that_leads_here_cannot_read_either() -> None:
    async with on_loopback("http://rebound.example:8081") as http:
        assert (await http.get("/subjects")).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8081", "127.0.0.1:8081", "[::1]:8081", "127.9.9.9", "localhost"])
async def test_this_machine_may_ask_by_any_of_its_names(host: str) -> None:
    async with on_loopback() as http:
        for kind in (JSON, "application/json", "application/vnd.schemaregistry+json; charset=utf-8"):
            headers = {"content-type": kind, "host": host, "origin": f"http://{host}"}
            answer = await http.post("/subjects/a/versions", content=BODY, headers=headers)
            assert answer.json() == {"id": 1}


def test_a_registry_as_a_process_refuses_a_foreign_name(tmp_path: Path) -> None:
    with registry_process(f"sqlite:///{tmp_path / 'registry.db'}") as url:
        assert httpx.get(f"{url}/subjects", headers={"host": "evil.example"}).status_code == 421
        assert httpx.get(f"{url}/subjects").status_code == 200


def nested(levels: int, kind: str) -> str:
    """Levels of levels, as text: too deep for a library to write."""
    before, inner, after = {
        "JSON": ('{"items":', "{}", "}"),
        "AVRO": ('{"type":"array","items":', '"int"', "}"),
        "PROTOBUF": ("message A { ", "", " }"),
    }[kind]
    head = 'syntax = "proto3"; ' if kind == "PROTOBUF" else ""
    return head + before * levels + inner + after * levels


@pytest.mark.parametrize("kind", ["JSON", "AVRO", "PROTOBUF"])
@pytest.mark.parametrize("levels", [300, 900, 5_000])
async def test_a_schema_that_goes_too_deep_is_refused_in_words(kind: str, levels: int) -> None:
    async with served("sqlite://", most_bytes=1_000_000) as client:
        for path in ("/subjects/a/versions", "/subjects/a", "/compatibility/subjects/a/versions/latest"):
            answer = await client.ask("POST", path, schema_body(nested(levels, kind), kind))
            assert answer.status_code in (404, 422), answer.text
        assert await client.get("/subjects") == []


async def test_a_long_comparison_keeps_no_other_subject_from_being_written(store_url: str) -> None:
    judge = WorkerJudge()
    try:
        async with served(store_url, judge=judge) as client:
            assert (await register(client, "slow", union(1, 100))).status_code == 200
            slow = asyncio.create_task(register(client, "slow", union(2, 100)))
            written = 0
            while not slow.done():
                assert await client.register(f"other{written}", ORDER) > 0
                written += 1
            assert (await slow).status_code == 409
            assert written >= 10
    finally:
        await judge.aclose()


async def register(client: Client, subject: str, schema: str) -> httpx.Response:
    return await client.ask("POST", f"/subjects/{subject}/versions", schema_body(schema, "JSON"))


async def test_a_version_that_came_meanwhile_is_compared_with_too(registry: Client) -> None:
    """Two that do not fit each other, both judged against the same past: one of them stays out."""
    await registry.ask("PUT", "/config", {"compatibility": "FULL_TRANSITIVE"})
    texts = [json.dumps({"type": "object", "properties": {"a": {"type": kind}}}) for kind in ("string", "integer")]
    answers = await asyncio.gather(*(register(registry, "a", text) for text in texts))
    assert sorted(answer.status_code for answer in answers) == [200, 409]


async def test_what_takes_too_long_is_ended_and_is_not_compatible() -> None:
    judge = WorkerJudge(patience=0.5)
    try:
        *past, other = (Known("it", "JSON", union(longer).encode()) for longer in range(50))
        began = time.monotonic()
        (said,) = await judge.complaints(past, other, Mode.FULL_TRANSITIVE)
        assert "longer than 0.5 s" in said
        assert time.monotonic() - began < 10
        with contextlib.suppress(SchemaError):  # a process may need longer than that to start
            assert (await judge.read("JSON", '{"type": "string"}', ())).text
    finally:
        await judge.aclose()


async def test_schemas_are_read_and_compared_in_a_process_as_in_a_thread() -> None:
    judge = WorkerJudge()
    try:
        first = await judge.read("AVRO", '"string"', ())
        with pytest.raises(SchemaError):
            await judge.read("AVRO", "nonsense", ())
        second = await judge.read("AVRO", '"int"', ())
        known = [Known(reading.text, "AVRO", reading.compiled) for reading in (first, second)]
        assert await judge.complaints(known[:1], known[0], Mode.FULL) == []
        assert len(await judge.complaints(known[:1], known[1], Mode.BACKWARD)) == 1
    finally:
        await judge.aclose()


def test_a_registry_that_compares_obeys_when_it_is_told_to_end(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'registry.db'}"
    answers: list[httpx.Response] = []

    with registry_process(store) as url:

        def put(path: str, body: dict[str, object]) -> None:
            assert httpx.put(f"{url}{path}", json=body, timeout=30).status_code == 200

        def ask(longer: int) -> httpx.Response:
            body = schema_body(union(longer), "JSON")
            return httpx.post(f"{url}/subjects/a/versions", json=body, timeout=60)

        def ask_for_long() -> None:
            with contextlib.suppress(httpx.HTTPError):
                answers.append(ask(0))

        put("/config", {"compatibility": "NONE"})
        for longer in range(1, LONG):
            assert ask(longer).status_code == 200
        put("/config", {"compatibility": "FULL_TRANSITIVE"})
        (worker,) = workers_of(store)
        idle = worker.worked
        asking = threading.Thread(target=ask_for_long)
        asking.start()
        deadline = time.monotonic() + 30
        while worker.worked < idle + 0.5:
            assert time.monotonic() < deadline
            assert asking.is_alive()
            time.sleep(0.02)
    assert not worker.alive  # ended in the midst of it
    asking.join(timeout=30)
    assert not asking.is_alive()
    assert [answer.status_code for answer in answers] == [503]  # and whoever waited was told so
