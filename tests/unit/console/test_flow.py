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
from posthouse.store.actions import Action, ActionFilter
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
    "path",
    ["/consumers", "/processes", "/relays", "/outbox", "/outbox/inn/stuck", "/schedules", "/projections", "/log"],
)
async def test_pages_of_all_tenants_are_refused_to_who_sees_some(inn: Inn, path: str) -> None:
    with pytest.raises(Refusal) as refused:
        await inn.get(path, SCOPED)
    assert refused.value.status == 403


# Sagas.


async def stays(inn: Inn) -> None:
    """One of each: paid, failed, under review, stubborn, held; and one of another tenant."""
    await inn.start("paid", "failed", "reviewed", "stubborn", "held")
    await inn.start("theirs", tenant="t2")
    module = inn.module
    await inn.run(
        module.Captured(stay_id="paid"),
        module.Failed(stay_id="failed"),
        module.Reviewed(stay_id="reviewed"),
        module.Failed(stay_id="stubborn"),
    )


async def test_sagas_are_counted_by_state_and_those_that_wait_for_an_operator_come_first(inn: Inn) -> None:
    await stays(inn)
    found = await inn.get("/sagas")
    (stay,) = found["sagas"]
    assert (stay["service"], stay["saga"], stay["states"]) == (
        "inn", "stay", {"completed": 1, "compensated": 1, "partial": 1, "compensation_failed": 1, "running": 2},
    )  # fmt: skip
    assert stay["oldest"]["running"] > 0
    assert [(one["id"], one["status"]) for one in found["waiting"]] == [
        ("stubborn", "compensation_failed"),
        ("reviewed", "partial"),
    ]


async def test_sagas_are_listed_newest_first_page_by_page_and_by_state(inn: Inn) -> None:
    await stays(inn)
    seen, after = [], ""
    while True:
        page = await inn.get("/sagas/inn", limit="2", after=after)
        seen += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == ["theirs", "held", "stubborn", "reviewed", "failed", "paid"]
    only = await inn.get("/sagas/inn", status="running", tenant="t2")
    assert [one["id"] for one in only["items"]] == ["theirs"]
    for query, status in (({"status": "runing"}, 400), ({"saga": "stai"}, 404)):
        with pytest.raises(Refusal) as refused:
            await inn.get("/sagas/inn", ADMIN, **query)
        assert refused.value.status == status
        assert "Did you mean" in refused.value.message


async def test_one_saga_shows_its_timeline_what_is_to_come_and_what_to_press(inn: Inn) -> None:
    await stays(inn)
    held = await inn.get("/sagas/inn/stay/held")
    assert [(turn["kind"], turn["method"]) for turn in held["turns"]] == [("start", "hold")]
    (said,) = held["turns"][0]["published"]
    assert said["type"] == "house.inn.stay.held.v1"
    ((name, left),) = [(one["name"], one["due_in"]) for one in held["deadlines"]]
    assert (name, 0 < left <= 3600) == ("hold_expired", True)
    assert [one["act"] for one in held["advice"]] == [None, "saga.cancel"]
    assert held["advice"][0]["words"] == "It waits for house.till.intent.captured.v1."

    stubborn = await inn.get("/sagas/inn/stay/stubborn")
    assert [one["act"] for one in stubborn["advice"]] == [None, "saga.retry", "saga.resume"]
    assert stubborn["undoing"]["error"] == "drop_hold: RuntimeError: the key of Zahra would not turn"
    assert "would not turn" in stubborn["turns"][-1]["undo_failed"]
    assert stubborn["tasks"][0]["step"] is None


async def test_a_saga_is_found_by_its_attempt_and_one_that_never_was_is_not(inn: Inn) -> None:
    await inn.start("a")
    assert (await inn.get("/sagas/inn/stay/a", attempt="1"))["attempt"] == 1
    for query, status in (({"attempt": "2"}, 404), ({"attempt": "first"}, 400), ({"tenant": "t9"}, 404)):
        with pytest.raises(Refusal) as refused:
            await inn.get("/sagas/inn/stay/a", ADMIN, **query)
        assert refused.value.status == status


async def test_what_may_tell_of_a_payload_is_not_said_to_who_may_see_none(inn: Inn) -> None:
    await stays(inn)
    for path in ("/sagas/inn/stay/stubborn", "/sagas/inn", "/sagas"):
        assert "Zahra" in str(await inn.get(path))
        assert "Zahra" not in str(await inn.get(path, READER))


async def test_the_state_of_a_saga_is_masked_until_it_is_asked_for_and_that_is_noted(inn: Inn) -> None:
    await stays(inn)
    masked = (await inn.get("/sagas/inn/stay/held"))["state"]
    assert (masked["text"], masked["unmaskable"]) == (None, True)
    assert await inn.apps[0].actions.find(ActionFilter(verb="console")) == []
    with pytest.raises(Refusal, match="Say why"):
        await inn.get("/sagas/inn/stay/held", unmask="1")
    shown = (await inn.get("/sagas/inn/stay/held", unmask="1", why="ticket 7"))["state"]
    assert '"stay_id":"held"' in shown["text"]
    (noted,) = await inn.apps[0].actions.find(ActionFilter(verb="console"))
    assert (noted.verb, noted.target, noted.by) == ("console unmask", "saga stay held", "ada (console)")
    assert noted.why == "ticket 7"
    with pytest.raises(Refusal) as refused:
        await inn.get("/sagas/inn/stay/held", READER, unmask="1")
    assert refused.value.status == 403


async def test_who_sees_one_tenant_finds_no_saga_of_another(inn: Inn) -> None:
    await stays(inn)
    listed = await inn.get("/sagas/inn", SCOPED)
    assert "theirs" not in [one["id"] for one in listed["items"]]
    assert len(listed["items"]) == 5
    (stay,) = (await inn.get("/sagas", SCOPED))["sagas"]
    assert stay["states"] is None, "the numbers are of all tenants"
    for path, query in (("/sagas/inn/stay/theirs", {}), ("/sagas/inn", {"tenant": "t2"})):
        with pytest.raises(Refusal) as refused:
            await inn.get(path, SCOPED, **query)
        assert refused.value.status in (403, 404)


async def test_the_diagram_marks_the_place_where_a_saga_stands(inn: Inn) -> None:
    await stays(inn)

    async def marks(id: str) -> dict[str, str]:
        drawn = (await inn.get(f"/sagas/inn/stay/{id}"))["diagram"]
        return {node["id"]: node["mark"] for node in drawn["nodes"] if node["mark"]}

    assert await marks("held") == {
        "start": "done", "step:hold": "here", "step:paid": "next", "deadline:hold_expired": "armed",
    }  # fmt: skip
    assert await marks("paid") == {"start": "done", "step:hold": "done", "step:paid": "done", "completed": "here"}
    assert await marks("failed") == {
        "start": "done", "step:hold": "undone", "on:not_paid": "done", "undo:hold": "done", "compensated": "here",
    }  # fmt: skip
    assert (await marks("stubborn"))["undo:hold"] == "failed"
    assert (await marks("reviewed"))["partial"] == "failed"


# Timers, the operators' log.


async def test_timers_are_listed_soonest_first_page_by_page(inn: Inn) -> None:
    await inn.start("a", "b", "c")
    await inn.start("theirs", tenant="t2")
    (here, _) = (await inn.get("/timers"))["stores"]
    assert (here["service"], here["timers"], here["overdue"]) == ("inn", 4, 0.0)
    first = await inn.get("/timers/inn", limit="3")
    rest = await inn.get("/timers/inn", limit="3", after=first["next"])
    every = [*first["items"], *rest["items"]]
    assert (len(every), rest["next"]) == (4, None)
    assert [one["due_at"] for one in every] == sorted(one["due_at"] for one in every)
    assert {one["overdue"] for one in every} == {0.0}
    assert {one["tenant"] for one in (await inn.get("/timers/inn", SCOPED))["items"]} == {"t1"}
    assert "timers" not in (await inn.get("/timers", SCOPED))["stores"][0]


async def test_the_log_of_all_stores_is_one_newest_first(inn: Inn) -> None:
    inn_log, till_log = (app.actions for app in inn.apps)
    for number, (app, log) in enumerate([(0, inn_log), (1, till_log), (0, inn_log)]):
        async with inn.apps[app].store.begin() as tx:
            action = Action(verb="held skip", by=f"o{number}", why="old", changed={"n": (2**60, None)}, event_id="e")
            await log.note(tx, action)
    first = await inn.get("/log", limit="2")
    rest = await inn.get("/log", limit="2", after=first["next"])
    assert [one["by"] for one in (*first["items"], *rest["items"])] == ["o2", "o1", "o0"]
    assert rest["next"] is None
    assert first["items"][0]["changed"] == [{"name": "n", "before": str(2**60), "after": "null"}]
    assert [one["by"] for one in (await inn.get("/log", by="o1", verb="held"))["items"]] == ["o1"]
    assert [one["by"] for one in (await inn.get("/log", service="till"))["items"]] == ["o1"]
    assert (await inn.get("/log", until="2001-01-01T00:00:00Z"))["items"] == []
    with pytest.raises(Refusal) as refused:
        await inn.get("/log", since="yesterday")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/sagas/inn", {"limit": "9" * 5_000}),
        ("/sagas/inn", {"limit": "٣"}),
        ("/sagas/inn", {"after": str(2**63)}),
        ("/sagas/inn", {"after": "9" * 30}),
        ("/timers/inn", {"after": f"[1.5,{2**63}]"}),
        ("/outbox/inn/stuck", {"after": f'"{2**63}"'}),
        ("/held", {"after": f'{{"inn":{2**63}}}'}),
        ("/jobs", {"limit": "100" + "0" * 5_000}),
    ],
)
async def test_numbers_out_of_range_are_the_askers_mistake(inn: Inn, path: str, query: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        await inn.get(path, **query)
    assert refused.value.status == 400
    assert len(refused.value.message) < 200
