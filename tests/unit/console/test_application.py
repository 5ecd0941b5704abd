"""The application: paths, answers, refusals, failures, and where it is mounted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp

from posthouse import Service
from posthouse.console import interface
from posthouse.console.application import application
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.console.dispatch import gathered
from posthouse.console.estate import Estate
from posthouse.errors import ConfigurationError
from tests.kit.console import unguarded


def asking(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8470")


def pages(**table: Page) -> Mapping[str, Page]:
    return {f"/{name}": page for name, page in table.items()}


async def echo(ask: Ask) -> object:
    return {"path": dict(ask.path), "query": dict(ask.query)}


def broken() -> Sequence[Service]:
    raise ConfigurationError("it cannot be imported")


async def test_an_answer_has_data_problems_and_a_time() -> None:
    estate = Estate(Service("orders"), loading={"billing": broken})

    async with asking(unguarded(estate, pages(echo=echo))) as client:
        answer = await client.get("/api/echo?state=dead")

    body = answer.json()
    assert answer.status_code == 200
    assert body["data"] == {"path": {}, "query": {"state": "dead"}}
    (problem,) = body["problems"]
    assert (problem["service"], problem["what"]) == ("billing", "it cannot be imported")
    assert "mend it" in problem["do"]
    assert body["at"].endswith("Z")
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("key", ["plain", "a/b", "100%", "ä ö", "?x=1", "a%2Fb", "..", "<script>"])
@pytest.mark.parametrize("root", ["", "/deep/console", "/mit ä"])
async def test_a_part_of_a_path_may_hold_anything(key: str, root: str) -> None:
    app = unguarded(Estate(Service("orders")), {"/key/{service}/{key}": echo})
    outer = FastAPI()
    outer.mount(root, app)
    url = httpx.URL("http://127.0.0.1").copy_with(
        raw_path=f"{quoted(root)}/api/key/orders/{quoted(key, slash=True)}".encode()
    )

    async with asking(outer if root else app) as client:
        answer = await client.get(url)

    assert answer.json()["data"]["path"] == {"service": "orders", "key": key}


@pytest.mark.parametrize("path", ["/api/key/a%00b", "/api/key/a?tenant=a%00b"])
async def test_a_nul_which_no_store_keeps_is_refused(path: str) -> None:
    async with asking(unguarded(Estate(Service("orders")), {"/key/{key}": echo})) as client:
        answer = await client.get(path)

    assert (answer.status_code, "has a NUL" in answer.json()["error"]["message"]) == (400, True)


def quoted(text: str, slash: bool = False) -> str:
    return quote(text, safe="" if slash else "/").replace(".", "%2E" if slash else ".")


async def test_what_is_written_out_goes_before_what_is_in_braces() -> None:
    async def groups(ask: Ask) -> object:
        return "groups"

    app = unguarded(Estate(Service("orders")), {"/held/{service}": echo, "/held/groups": groups})

    async with asking(app) as client:
        assert (await client.get("/api/held/groups")).json()["data"] == "groups"
        assert (await client.get("/api/held/orders")).json()["data"]["path"] == {"service": "orders"}


async def test_an_unknown_path_is_told_with_a_hint() -> None:
    async with asking(unguarded(Estate(Service("orders")), pages(held=echo))) as client:
        answer = await client.get("/api/hold")

    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "There is nothing at /api/hold."
    assert "held" in answer.json()["error"]["hint"]


async def test_a_refusal_has_its_status_message_and_hint() -> None:
    async def no(ask: Ask) -> object:
        raise Refusal(403, "These are events of another tenant.", "Ask an administrator.")

    async with asking(unguarded(Estate(Service("orders")), pages(no=no))) as client:
        answer = await client.get("/api/no")

    assert answer.status_code == 403
    assert answer.json() == {
        "error": {"message": "These are events of another tenant.", "hint": "Ask an administrator."}
    }


async def test_an_unexpected_failure_is_logged_and_says_nothing_of_its_inside(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(ask: Ask) -> object:
        raise RuntimeError("password=hunter2")

    with caplog.at_level(logging.ERROR, "posthouse.console"):
        async with asking(unguarded(Estate(Service("orders")), pages(fails=fails))) as client:
            answer = await client.get("/api/fails")

    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text
    assert "log" in answer.json()["error"]["hint"]
    assert [record.getMessage() for record in caplog.records] == ["GET /api/fails failed"]
    assert caplog.records[0].exc_info is not None


async def test_what_cannot_be_written_as_json_is_a_failure_too(caplog: pytest.LogCaptureFixture) -> None:
    async def odd(ask: Ask) -> object:
        return object()

    async with asking(unguarded(Estate(Service("orders")), pages(odd=odd))) as client:
        assert (await client.get("/api/odd")).status_code == 500


async def test_another_method_is_refused_in_the_same_form() -> None:
    async with asking(unguarded(Estate(Service("orders")), pages(echo=echo))) as client:
        answer = await client.delete("/api/echo")

    assert answer.status_code == 405
    assert answer.json()["error"]["message"] == "DELETE is not for /api/echo."


def test_two_pages_for_one_path_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two pages answer /held"):
        gathered({"/held": echo}, {"/held": echo})


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.html").write_text('<html data-base="@BASE@"><script src="@BASE@/static/main-ABC.js"></script>')
    (tmp_path / "main-ABC.js").write_text("export const one = 1;\n" * 200)
    monkeypatch.setattr(interface, "BUILT", tmp_path)


@pytest.mark.usefixtures("built")
async def test_the_page_knows_where_it_is_mounted() -> None:
    outer = FastAPI()
    outer.mount("/ops/posthouse", unguarded(Estate(Service("orders"))))

    async with asking(outer) as client:
        page = await client.get("/ops/posthouse/held/orders")
        script = await client.get("/ops/posthouse/static/main-ABC.js")
        services = await client.get("/ops/posthouse/api/services")

    assert page.text == ('<html data-base="/ops/posthouse"><script src="/ops/posthouse/static/main-ABC.js"></script>')
    assert page.headers["cache-control"] == "no-cache"
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.headers["content-encoding"] == "gzip"
    assert script.headers["content-type"].startswith("text/javascript")
    assert services.json()["data"]["items"] == [{"name": "orders", "owner": ""}]


@pytest.mark.usefixtures("built")
async def test_a_path_that_was_made_up_writes_no_markup_into_the_page() -> None:
    outer = FastAPI()
    outer.mount('/"><script>alert(1)</script>', unguarded(Estate(Service("orders"))))

    async with asking(outer) as client:
        page = await client.get('/"><script>alert(1)</script>/')

    assert "<script>alert" not in page.text


@pytest.mark.usefixtures("built")
async def test_a_static_file_that_is_not_there_is_not_found_and_nothing_outside_is_served() -> None:
    async with asking(unguarded(Estate(Service("orders")))) as client:
        for path in ("main-OLD.js", "../interface.py", "%2e%2e/interface.py", "..%2finterface.py", ""):
            answer = await client.get(f"/static/{path}")
            assert "def " not in answer.text
            assert answer.status_code == 404 or answer.text.startswith("<html"), path


async def test_an_interface_that_is_not_built_says_how_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "BUILT", tmp_path / "nothing")

    async with asking(unguarded(Estate(Service("orders")))) as client:
        page = await client.get("/")
        script = await client.get("/static/main.js")

    assert page.status_code == 503
    assert "npm run build" in page.text
    assert script.status_code == 404


async def test_without_a_guard_nobody_is_answered() -> None:
    async with asking(application(Estate(Service("orders")))) as client:
        assert [(await client.get(path)).status_code for path in ("/api/services", "/api/live")] == [401, 401]
        assert (await client.post("/api/acts/held.retry", json={})).status_code == 401
