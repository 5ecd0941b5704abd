"""Home, map, health, tenants and catalogue on PostgreSQL: what they say of an application in trouble, and while its server is away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from posthouse import App, Service
from posthouse.clock import SystemClock
from posthouse.console.estate import Estate
from posthouse.stores import open_store
from tests.kit.console import Asking, troubled_estate
from tests.kit.console_pages import CHECKS
from tests.kit.servers.ports import free_port
from tests.kit.troubled import bring_into_trouble


def test_an_application_in_trouble_is_told_of(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTHOUSE_STORE", postgres_url)
    monkeypatch.setenv("POSTHOUSE_BROKER", postgres_url)
    asyncio.run(_upgraded(postgres_url))
    bring_into_trouble(tmp_path)
    asyncio.run(_checked())


async def _upgraded(url: str) -> None:
    store = open_store(url, clock=SystemClock())
    await store.upgrade()
    await store.aclose()


async def _checked() -> None:
    async with troubled_estate() as asking:
        for check in CHECKS:
            await check(asking)
            assert asking.problems == []


async def test_a_server_that_is_away_or_has_no_tables_hides_nobody_else(postgres_url: str, tmp_path: Path) -> None:
    away = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    apps = [
        App(Service("away"), store=away, broker=away),
        App(Service("bare"), store=postgres_url, broker=postgres_url),
        App(
            Service("well"),
            store=f"sqlite:///{tmp_path}/well.db",
            broker=f"embedded:///{tmp_path}/log.db?single_host=true",
        ),
    ]
    await apps[-1].open()
    await apps[-1].aclose()
    asking = Asking(Estate(*apps))
    try:
        home = await asking.get("/home")
        assert set(asking.problems) == {"away", "bare"}
        assert {one["service"] for one in home["troubles"] if one["kind"] == "store away"} == {"away", "bare"}
        health = await asking.get("/health")
        judged = {(one["service"], one["part"]): one["judgement"] for one in health["examined"]}
        assert judged["away", "store"] == judged["bare", "store"] == "fail"
        assert judged["well", "store"] != "fail"
        assert (await asking.get("/tenants"))["items"] == []
        assert set(asking.problems) == {"away", "bare"}
        assert {node["name"] for node in (await asking.get("/map"))["nodes"]} == {"away", "bare", "well"}
    finally:
        await asking.estate.aclose()
