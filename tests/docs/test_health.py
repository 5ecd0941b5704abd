"""The endpoints of the page on running, as an orchestrator asks them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import httpx
import pytest

RECIPE = Path(__file__).parents[2] / "docs" / "examples" / "recipes" / "health_app.py"


async def test_a_process_says_that_it_is_live_and_when_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("health_app", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
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
