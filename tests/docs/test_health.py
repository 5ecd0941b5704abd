"""The endpoints of the page on running, as an orchestrator asks them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from posthouse import app_of
from posthouse.stores.postgres import PostgresStore
from posthouse.watch.asgi import pages
from tests.kit.servers.postgres import PostgresServer
from tests.kit.waiting import eventually

FASTAPI = Path(__file__).parents[2] / "docs" / "examples" / "recipes" / "fastapi" / "app.py"
RECIPE = Path(__file__).parents[2] / "docs" / "examples" / "recipes" / "health_app.py"


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"loaded_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_process_says_that_it_is_live_and_when_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = loaded(RECIPE)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(recipe.web), base_url="http://shop")
    async with client:
        before = await client.get("/ready")
        assert (before.status_code, before.json()["parts"][0]) == (
            503,
            {"name": "store", "state": "starting", "since": None, "reason": ""},
        )
        async with recipe.web.router.lifespan_context(recipe.web):
            answer = await client.get("/ready")
            assert answer.status_code == 200
            assert {part["state"] for part in answer.json()["parts"]} == {"ready"}
            assert (await client.get("/live")).json() is True
            scraped = await client.get("/posthouse/metrics")
            assert (scraped.status_code, scraped.headers["content-type"][:25]) == (200, "text/plain; version=0.0.4")
            assert 'posthouse_store_up{service="shop"} 1.0\n' in scraped.text
            assert "posthouse_build_info" in scraped.text
            assert (await client.get("/posthouse/readyz")).text.startswith("ready\nshop, store: ready\n")
            assert (await client.get("/posthouse/healthz")).text == "live\n"
            assert (await client.get("/posthouse/scale", params={"relay": "shop"})).json()["backlog"] == 0
            assert (await client.head("/posthouse/metrics")).content == b""
            assert (await client.post("/posthouse/metrics")).headers["allow"] == "GET, HEAD"
            assert "Did you mean '/metrics'?" in (await client.get("/posthouse/metric")).text


async def test_an_application_that_only_publishes_is_ready_while_its_store_answers(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    recipe = loaded(FASTAPI)
    recipe.app.mount("/posthouse", pages(app_of(recipe.shop)))
    database = urlsplit(postgres_url).path.strip("/")
    client = httpx.AsyncClient(transport=httpx.ASGITransport(recipe.app), base_url="http://shop")
    async with client, await psycopg.AsyncConnection.connect(postgres_server.url, autocommit=True) as server:

        async def answers(status: int, words: str) -> bool:
            answer = await client.get("/posthouse/readyz")
            assert "broker: nobody here uses it" in answer.text
            return answer.status_code == status and words in answer.text

        assert await answers(503, "posthouse db upgrade")
        store = PostgresStore(postgres_url)
        await store.upgrade()
        await store.aclose()
        await eventually(lambda: answers(200, "shop, store: ready"), "the tables are there")
        await server.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false'.encode())
        await server.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (database,)
        )
        await eventually(lambda: answers(503, "not currently accepting connections"), "the server is away")
        await server.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS true'.encode())
        await eventually(lambda: answers(200, "shop, store: ready"), "it is back")
    await app_of(recipe.shop).aclose()
    await recipe.engine.dispose()
