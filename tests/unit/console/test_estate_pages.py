"""Home, map, health, tenants and catalogue, on SQLite: what they say of an application in trouble, and of what cannot be asked."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from posthouse import App, Event, Payload, Service
from posthouse.console.access.who import Who
from posthouse.console.asking import Refusal
from posthouse.console.estate import Estate
from posthouse.errors import ConfigurationError
from posthouse.governance.bundle import FOLDER, Bundle
from posthouse.governance.folder import write_folder
from posthouse.governance.freezing import freeze
from posthouse.governance.listing import catalogue_of
from tests.kit.console import ADMIN, Asking, troubled_estate
from tests.kit.console_pages import CHECKS
from tests.kit.troubled import bring_into_trouble


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("troubled")
    before = Path.cwd()
    os.chdir(folder)
    try:
        bring_into_trouble(folder)
        yield folder
    finally:
        os.chdir(before)


@pytest.mark.parametrize("check", CHECKS)
async def test_an_application_in_trouble_is_told_of(troubled: Path, check: Callable[[Asking], Awaitable[None]]) -> None:
    async with troubled_estate() as asking:
        await check(asking)
        assert asking.problems == []


PATHS = ("/home", "/map", "/health", "/tenants", "/catalogue", "/catalogue/changes")


@pytest.mark.parametrize("path", PATHS)
async def test_whoever_may_see_some_tenants_only_is_refused_what_shows_all(path: str, tmp_path: Path) -> None:
    asking = Asking(Estate(Service("orders")), Who(name="eve", roles=ADMIN.roles, tenants=frozenset({"t1"})))
    with pytest.raises(Refusal) as refused:
        await asking.get(path)
    assert refused.value.status == 403
    assert "Held" in refused.value.hint


def three(folder: Path) -> Estate:
    """One that is well, one without a file, one with older tables, one that cannot be imported."""

    def broken() -> list[Service]:
        raise ConfigurationError("shop.broken cannot be imported: no")

    apps = [
        App(
            Service(name), store=f"sqlite:///{folder}/{name}.db", broker=f"embedded:///{folder}/log.db?single_host=true"
        )
        for name in ("well", "gone", "older")
    ]
    return Estate(*apps, loading={"shop.broken:app": broken})


@pytest.mark.parametrize("path", PATHS)
async def test_what_cannot_be_asked_is_told_of_and_the_rest_is_shown(path: str, tmp_path: Path) -> None:
    estate = three(tmp_path)
    for name in ("well", "older"):
        app = estate.app(name)
        await app.open()
        await app.aclose()
    with contextlib.closing(sqlite3.connect(tmp_path / "older.db")) as database, database:
        database.execute("DELETE FROM posthouse_migration WHERE name = (SELECT max(name) FROM posthouse_migration)")
    asking = Asking(estate)
    try:
        data = await asking.get(path)
        problems = {*asking.problems, *(one.service for one in estate.problems)}
    finally:
        await estate.aclose()
    assert "shop.broken:app" in problems
    if path == "/home":
        away = [one for one in data["troubles"] if one["kind"] == "store away"]
        assert {one["service"] for one in away} == {"gone", "older"}
        assert {one["gravity"] for one in away} == {"soon"}  # at the first look; one that lasts needs a person
        assert data["verdict"] == "cannot tell"
        assert "not every store" in data["sentence"]
        assert problems == {"gone", "older", "shop.broken:app"}
    if path == "/map":
        assert {node["name"]: node["gravity"] for node in data["nodes"]} == {
            "well": None,
            "gone": "soon",
            "older": "soon",
        }
    if path == "/health":
        judged = {one["service"]: one["judgement"] for one in data["examined"] if one["part"] == "store"}
        assert "fail" not in judged.values(), "their next start makes and mends them"
        (older,) = [one for one in data["examined"] if (one["service"], one["part"]) == ("older", "store")]
        assert any("will be applied at the next start" in check["found"] for check in older["checks"]), older
        assert set(judged) == {"well", "gone", "older"}
    if path == "/tenants":
        assert problems == {"gone", "older", "shop.broken:app"}
        assert data["items"] == []


async def test_a_change_of_the_code_is_compared_with_what_was_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old, new = Service("orders"), Service("orders")

    @old.event("order.placed.v1", key="order_id")
    class Placed(Payload):
        order_id: str
        total_cents: int

    @new.event("order.placed.v1", key="order_id")
    class Changed(Payload):
        order_id: str
        total_cents: str

    write_folder(tmp_path / FOLDER, freeze(catalogue_of([old]), Bundle()).files)
    same = await Asking(Estate(old)).get("/catalogue/changes")
    assert (same["changed"], same["found"]) == (0, [])
    found = await Asking(Estate(new)).get("/catalogue/changes")
    assert found["changed"] == 1
    breaking = [one for one in found["found"] if one["subject"] == "orders.order.placed.v1"]
    assert len(breaking) >= 2
    assert all(one["way_out"] for one in breaking)


async def test_the_way_from_one_version_to_the_next_says_whom_it_would_have_broken() -> None:
    orders = Service("orders")

    @orders.event("order.placed.v1", key="order_id")
    class One(Payload):
        order_id: str

    @orders.event("order.placed.v2", key="order_id")
    class Two(Payload):
        order_id: str
        total_cents: int

    event = await Asking(Estate(orders)).get("/catalogue/events/{subject}", subject="orders.order.placed.v2")
    assert event["versions"] == ["orders.order.placed.v1", "orders.order.placed.v2"]
    (step,) = event["steps"]
    assert step["outcome"] == "incompatible"
    assert step["findings"]
    with pytest.raises(Refusal, match=r"orders\.order\.placed\.v2") as unknown:
        await Asking(Estate(orders)).get("/catalogue/events/{subject}", subject="orders.order.placed.v3")
    assert unknown.value.status == 404


async def test_tenants_are_sorted_by_what_there_is_only() -> None:
    with pytest.raises(Refusal, match="held"):
        await Asking(Estate()).get("/tenants", {"by": "helt"})


async def test_another_schema_is_compared_with_the_one_that_is_declared_and_says_whom_it_breaks() -> None:
    orders, billing = Service("orders"), Service("billing")

    @orders.event("order.placed.v1", key="order_id")
    class Placed(Payload):
        order_id: str
        total_cents: int

    @billing.on(Placed)
    async def invoice(event: Event[Placed]) -> None: ...

    asking, subject = Asking(Estate(orders, billing)), "orders.order.placed.v1"
    path = "/catalogue/events/{subject}/comparison"
    declared = (await asking.get("/catalogue/events/{subject}", subject=subject))["schema"]
    same = await asking.get(path, {"schema": declared}, subject=subject)
    assert (same["findings"], "Nobody is broken" in same["sentence"]) == ([], True)
    schema = msgspec.json.decode(declared)
    schema["properties"]["total_cents"] = {"type": "string"}
    other = await asking.get(path, {"schema": msgspec.json.encode(schema).decode()}, subject=subject)
    assert {one["path"] for one in other["findings"]} == {"/total_cents"}
    assert all("billing" in one["readers"] + one["perhaps"] and one["way_out"] for one in other["findings"])
    assert "billing" in other["sentence"]
    for wrong in ("", "{", "x" * 30_000):
        with pytest.raises(Refusal):
            await asking.get(path, {"schema": wrong}, subject=subject)
