"""The pages of what runs: what they say of a real store after a real run, on SQLite and on PostgreSQL."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from posthouse.app import App
from posthouse.console.access.who import Who
from posthouse.console.asking import Ask, Refusal
from posthouse.console.dispatch import Paths
from posthouse.console.estate import Estate
from posthouse.console.pages import TABLES
from posthouse.store import StuckRow
from posthouse.watch.status import drained

ADMIN = Who(name="ada", roles=frozenset(("admin",)), payloads=True)
READER = Who(name="eve", roles=frozenset(("reader",)))
SCOPED = Who(name="kim", roles=frozenset(("operator",)), tenants=frozenset(("t1",)), payloads=True)


class Inn:
    """Two services with a store each, looked at by the console."""

    def __init__(self, module: ModuleType, apps: list[App]) -> None:
        self.module, self.apps = module, apps
        self.estate = Estate(*apps)

    async def get(self, path: str, who: Who = ADMIN, **query: str) -> Any:
        """What a page says, as a browser reads it."""
        page, named = Paths(TABLES).find(path.strip("/").split("/"))
        ask = Ask(estate=self.estate, who=who, path=named, query=query)
        data = msgspec.json.decode(msgspec.json.encode(await page(ask)))
        assert ask.problems == []
        return data

    async def start(self, *ids: str, tenant: str = "t1") -> None:
        async with self.module.inn.transaction(tenant) as tx:
            for id in ids:
                await self.module.inn.start_saga(tx, self.module.Stay(stay_id=id))

    async def say(self, *facts: object, tenant: str = "t1") -> None:
        async with self.module.till.transaction(tenant) as tx:
            for fact in facts:
                tx.publish(fact)

    async def run(self, *facts: object) -> None:
        """Run both until nothing moves, then say these facts, and until nothing moves again."""
        async with AsyncExitStack() as stack:
            for app in self.apps:
                await stack.enter_async_context(app.running())
            await drained(self.module.inn, self.module.till)
            await self.say(*facts)
            await drained(self.module.inn, self.module.till)


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def inn(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Inn]:
    spec = importlib.util.spec_from_file_location("inn", Path(__file__).parent / "inn.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    broker = f"embedded:///{tmp_path}/log.db?single_host=true"
    till = App(module.till, store=f"sqlite:///{tmp_path}/till.db", broker=broker)
    where = f"sqlite:///{tmp_path}/inn.db" if request.param == "sqlite" else request.getfixturevalue("store_url")
    here = Inn(module, [App(module.inn, store=where, broker=broker), till])
    for app in here.apps:
        await app.open()
    yield here
    for app in here.apps:
        await app.aclose()


# Consumers, processes, relays.


async def test_consumers_show_what_was_applied_what_is_held_and_who_runs_them(inn: Inn) -> None:
    await inn.start("rich", "poor")
    async with AsyncExitStack() as stack:
        for app in inn.apps:
            await stack.enter_async_context(app.running())
        await drained(inn.module.inn, inn.module.till)
        lines = {(one["consumer"], one["topic"]): one for one in (await inn.get("/consumers"))["items"]}
    charge = lines["till", "house.inn.stay"]
    assert (charge["applied"], charge["held"], charge["in_flight"], charge["service"]) == (1, {"dead": 1}, 0, "till")
    assert (charge["in_hand"], charge["lag"], charge["uncounted"]) == (0, 0.0, "")
    assert len(charge["members"]) == 1
    assert ("inn.board", "house.inn.stay") in lines, "the read model too"
    assert ("inn.stay", "house.till.intent") in lines, "the saga too"


async def test_what_waits_unsent_is_in_flight_and_nobody_is_a_member_when_nobody_runs(inn: Inn) -> None:
    await inn.start("a", "b")
    lines = {one["consumer"]: one for one in (await inn.get("/consumers"))["items"]}
    assert (lines["till"]["in_flight"], lines["till"]["members"]) == (2, [])
    assert lines["till"]["lag"] > 0


async def test_processes_show_parts_versions_and_what_nobody_runs(inn: Inn) -> None:
    stores = {one["service"]: one for one in (await inn.get("/processes"))["stores"]}
    assert stores["inn"]["workers"] == []
    assert stores["inn"]["missing"] == ["relay", "consumers", "timers"]
    assert "till" in stores["till"]["idle"]
    async with inn.apps[1].running():
        stores = {one["service"]: one for one in (await inn.get("/processes"))["stores"]}
        (worker,) = stores["till"]["workers"]
        assert (worker["state"], worker["parts"]) == ("runs", ["relay", "consumers", "timers"])
        assert (stores["till"]["missing"], stores["till"]["idle"]) == ([], [])
        assert stores["inn"]["missing"], "nobody runs the other one"
    (worker,) = (await inn.get("/processes"))["stores"][1]["workers"]
    assert worker["state"] == "stopped"


async def test_relays_show_which_process_holds_which_shard(inn: Inn) -> None:
    (free, _) = (await inn.get("/relays"))["stores"]
    assert (free["leased"], free["processes"]) == (0, [])
    assert {(shard["process"], shard["left"]) for shard in free["shards"]} == {(None, 0.0)}
    async with inn.apps[0].running():
        await inn.start("a")
        await drained(inn.module.inn)
        (held, _) = (await inn.get("/relays"))["stores"]
    assert (held["free"], held["unsent"]) == (0, 0)
    (process,) = {shard["process"] for shard in held["shards"]}
    assert held["processes"] == [process]
    assert all(isinstance(shard["epoch"], str) and shard["left"] > 0 for shard in held["shards"])


# Outbox.


async def test_the_outbox_shows_what_is_unsent_by_topic_with_its_age(inn: Inn) -> None:
    await inn.start("a", "b")
    (store, _) = (await inn.get("/outbox"))["stores"]
    topics = {one["topic"]: one for one in store["topics"]}
    assert (topics["house.inn.stay"]["unsent"], topics["house.inn.stay"]["service"]) == (2, "inn")
    assert topics["house.inn.stay"]["oldest"] > 0
    await inn.run()
    (store, _) = (await inn.get("/outbox"))["stores"]
    assert {one["unsent"] for one in store["topics"]} == {0}


async def test_refused_events_are_listed_page_by_page_with_why(inn: Inn) -> None:
    await inn.start("a", "b", "c")
    outbox = inn.apps[0].store.outbox
    shards = await outbox.lease("a relay", 10)
    poll = await outbox.poll(shards, 10)
    refused = [
        StuckRow(row=row, attempts=1, error="too large", quarantined=place == 0, after=60.0)
        for place, row in enumerate(row for row in poll.rows if row.topic == "house.inn.stay")
    ]
    assert await outbox.settle("a relay", poll, refused)
    first = await inn.get("/outbox/inn/stuck", limit="2")
    assert [(one["state"], one["key"], one["error"]) for one in first["items"]] == [
        ("quarantined", "a", "too large"),
        ("refused", "b", "too large"),
    ]
    assert (first["items"][0]["next_at"], first["items"][1]["next_at"] is None) == (None, False)
    assert all(isinstance(one["id"], str) for one in first["items"])
    rest = await inn.get("/outbox/inn/stuck", limit="2", after=first["next"])
    assert ([one["key"] for one in rest["items"]], rest["next"]) == (["c"], None)
    hidden = await inn.get("/outbox/inn/stuck", READER)
    assert {one["error"] for one in hidden["items"]} == {None}, "an error may tell of a payload"


@pytest.mark.parametrize("inn", ["sqlite"], indirect=True)
@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "many"}, {"limit": "9999"}, {"after": "here"}])
async def test_a_list_refuses_what_is_no_number_and_no_place(inn: Inn, query: dict[str, str]) -> None:
    with pytest.raises(Refusal) as refused:
        await inn.get("/outbox/inn/stuck", ADMIN, **query)
    assert refused.value.status == 400


# Schedules, projections.


async def test_schedules_show_when_they_run_next_and_that_one_is_paused(inn: Inn) -> None:
    (audit,) = (await inn.get("/schedules"))["items"]
    assert (audit["name"], audit["state"], audit["expression"], audit["next_at"]) == (
        "night_audit", "new", "0 6 * * *", None,
    )  # fmt: skip
    await inn.run()
    (audit,) = (await inn.get("/schedules"))["items"]
    assert (audit["state"], audit["tz"], audit["done_at"], audit["service"]) == ("runs", "Asia/Kabul", None, "inn")
    assert 0 < audit["due_in"] <= 86_400
    await inn.apps[0].schedules.pause("night_audit", by="ada", why="a test")
    (audit,) = (await inn.get("/schedules"))["items"]
    assert (audit["state"], audit["paused_at"] is None) == ("paused", False)


async def test_projections_show_freshness_and_generations(inn: Inn) -> None:
    await inn.start("a")
    await inn.run()
    (board,) = (await inn.get("/projections"))["items"]
    assert (board["name"], board["service"], board["state"], board["building"]) == ("board", "inn", "fresh", False)
    (live,) = board["generations"]
    assert (live["number"], live["state"], live["waiting"], live["held"]) == (1, "live", 0, 0)
    assert live["seconds"] >= 0
    await inn.apps[0].projections.rebuild("board")
    (board,) = (await inn.get("/projections"))["items"]
    assert {one["number"]: one["state"] for one in board["generations"]} == {1: "retired", 2: "live"}


@pytest.mark.parametrize("inn", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "path", ["/consumers", "/processes", "/relays", "/outbox", "/outbox/inn/stuck", "/schedules", "/projections"]
)
async def test_pages_of_all_tenants_are_refused_to_who_sees_some(inn: Inn, path: str) -> None:
    with pytest.raises(Refusal) as refused:
        await inn.get(path, SCOPED)
    assert refused.value.status == 403
