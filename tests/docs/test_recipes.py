"""The recipes, on a real PostgreSQL, as their users run them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import psycopg
import pytest

RECIPES = Path(__file__).parents[2] / "docs" / "examples" / "recipes"
PATIENCE = 30.0


@pytest.fixture
def shop(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of a recipe; the log of events is a file in the working directory."""
    monkeypatch.setenv("SHOP_DATABASE", postgres_url)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(RECIPES), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.chdir(tmp_path)
    return postgres_url


def first_parcels(url: str, table: str) -> list[tuple[Any, ...]]:
    """What a handler has written, as soon as it has."""
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as connection:
        while not (found := connection.execute(f"SELECT order_id FROM {table}").fetchall()):
            assert time.monotonic() < deadline, "no handler wrote anything"
            time.sleep(0.02)
    return found


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_request_of_fastapi_reaches_a_handler_with_a_session(shop: str) -> None:
    recipe = loaded("fastapi_app")
    await recipe.shop.host.store.upgrade()
    async with recipe.engine.begin() as connection:
        await connection.run_sync(recipe.Base.metadata.create_all)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(recipe.app), base_url="http://shop")
    async with client, recipe.app.router.lifespan_context(recipe.app), asyncio.timeout(PATIENCE):
        assert (await client.post("/orders/o1")).json() == {"placed": "o1"}
        assert await asyncio.to_thread(first_parcels, shop, "parcels") == [("o1",)]
        with pytest.raises(Exception, match="orders_pkey"):
            await client.post("/orders/o1")
        assert (await recipe.shop.host.store.counts()).committed["shop.order"] == 1


@pytest.mark.parametrize(
    ("recipe", "table", "says"),
    [("django_app", "shop_parcel", "{'placed': 'o1'}\n"), ("psycopg_app", "parcels", "placed o1\n")],
)
def test_a_script_without_an_event_loop_reaches_a_plain_handler(shop: str, recipe: str, table: str, says: str) -> None:
    call([sys.executable, "-m", "posthouse", "db", "upgrade", recipe])
    assert call([sys.executable, "-W", "error", str(RECIPES / f"{recipe}.py")]) == says
    with running([sys.executable, "-m", "posthouse", "run", recipe]) as process:
        assert first_parcels(shop, table) == [("o1",)]
    assert process.returncode == 0


def call(command: list[str]) -> str:
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE)
