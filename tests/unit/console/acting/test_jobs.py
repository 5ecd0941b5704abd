"""Jobs: frozen, counted, paced, stopped in time, each item once; whoever runs them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from posthouse import Service
from posthouse.app import app_of
from posthouse.clock import new_id
from posthouse.console.access.who import Role, Who
from posthouse.console.acting.running import Run, Runner, item_key
from posthouse.console.asking import Ask, Refusal
from posthouse.console.pages.jobs import listed, one, says
from posthouse.console.pages.log import log
from posthouse.jobs import Lost
from posthouse.store import HeldEvent, HeldFilter
from posthouse.store.actions import Action, ActionFilter
from posthouse.store.jobs import Job
from posthouse.testing import Harness
from tests.kit.console import unguarded
from tests.kit.waiting import eventually
from tests.unit.console.acting.pressing import ADA, Console, a_shop

FAST = {"rate": 1000}


async def held_orders(harness: Harness, shop: Service, placed: Any, number: int) -> list[HeldEvent]:
    for order in range(number):
        await harness.publish(placed(order_id=f"o-{order}", total=order))
    await harness.advance(1)
    found = list(await harness.held(shop))
    assert len(found) == number
    return found


async def taken(shop: Service, holder: str = "one", lease: float = 30.0) -> Run:
    job = await app_of(shop).store.jobs.take([shop.name], holder, lease)
    assert job is not None
    return Run(shop, job, lease=lease, look=0.01)


async def the_job(shop: Service, id: str) -> Job:
    job = await app_of(shop).store.jobs.get(id)
    assert job is not None
    return job


async def acts(shop: Service, verb: str) -> list[Action]:
    return list(await app_of(shop).actions.find(ActionFilter(verb=verb), 1000))


async def until(harness: Harness, run: Run) -> None:
    """Run it while the consumer does, on the clock of the harness."""
    task = asyncio.create_task(run.whole())
    while not task.done():
        await harness.advance(0.1)
        await asyncio.sleep(0)
    await task


async def test_all_are_retried_up_to_what_was_there_at_the_press() -> None:
    shop, placed, broken = a_shop()
    async with Harness(shop) as harness:
        before = await held_orders(harness, shop, placed, 5)
        console = Console(shop)
        seen = await console.look("held.retry.all", service="shop", state="dead", **FAST)
        assert seen["sentence"] == "5 held events of shop run again, with all their attempts, one after the other."
        assert seen["bulk"]
        answer = await console.press("held.retry.all", service="shop", state="dead", **FAST)
        await harness.publish(placed(order_id="late", total=1))
        await harness.advance(1)
        broken["broken"] = False
        await until(harness, await taken(shop))
        job = await the_job(shop, answer["job"])
        assert (job.state, job.total, job.done, job.applied, job.failed, job.refused) == ("done", 5, 5, 5, 0, 0)
        [left] = await harness.held(shop)
        assert left.id not in {event.id for event in before}
        noted = await acts(shop, "held retry")
        assert {action.event_id for action in noted} == {event.entry.event_id for event in before}
        assert {action.by for action in noted} == {"ada (console)"}
        assert {action.why for action in noted} == {f"ticket 7 [job {job.id}]"}
        [whole] = await acts(shop, "job start")
        assert (whole.outcome, whole.count, whole.why) == ("done", 5, "ticket 7")


@pytest.mark.parametrize("name", ["held.retry.all", "held.skip.all", "held.quarantine.all"])
async def test_a_job_of_one_key_touches_no_other(name: str) -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        before = {event.entry.key: event for event in await held_orders(harness, shop, placed, 3)}
        console = Console(shop)
        assert (await console.look(name, service="shop", key="o-1", **FAST))["counts"] == {"held events": 1}
        answer = await console.press(name, service="shop", key="o-1", **FAST)
        await until(harness, await taken(shop))
        assert (await the_job(shop, answer["job"])).done == 1
        after = {event.entry.key: event for event in await harness.held(shop)}
        assert {key for key in before if before[key].turn != after[key].turn} == {"o-1"}


async def test_what_changed_after_the_press_is_left_out_although_it_fits_now() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        [first, second, _] = await held_orders(harness, shop, placed, 3)
        await harness.publish(placed(order_id="o-0", total=7))  # waits behind the first one
        await harness.advance(1)
        console = Console(shop)
        answer = await console.press("held.skip.all", service="shop", **FAST)
        assert (await the_job(shop, answer["job"])).total == 3
        await harness.advance(1)
        await shop.held.retry(second.id, by="bob", why="mended")  # somebody else's turn: it fails anew
        await shop.held.skip(first.id, by="bob", why="mine")  # the one behind it runs, and dies
        await harness.advance(1)
        assert [event.state for event in await harness.held(shop)] == ["skipped", "dead", "dead", "dead"]
        await until(harness, await taken(shop))
        job = await the_job(shop, answer["job"])
        assert (job.state, job.done, job.refused) == ("done", 1, 0)
        assert says(job) == "Done: 1. 2 left out: changed after the press."
        assert [event.state for event in await harness.held(shop)] == ["skipped", "dead", "skipped", "dead"]
        [whole] = await acts(shop, "job start")
        assert whole.changed["changed after the press"] == (None, 2)


async def test_a_job_stops_after_so_many_that_failed_again() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 30)
        answer = await Console(shop).press("held.retry.all", service="shop", rate=10, stop_after=2)
        await until(harness, await taken(shop))
        job = await the_job(shop, answer["job"])
        assert job.state == "stopped"
        assert 2 <= job.failed <= job.done < 30
        assert "failed again" in job.note


async def test_the_first_ones_go_ahead_and_if_one_fails_the_rest_is_not_touched() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 6)
        answer = await Console(shop).press("held.retry.all", service="shop", canary=2, **FAST)
        await until(harness, await taken(shop))
        job = await the_job(shop, answer["job"])
        assert (job.state, job.done, len(await acts(shop, "held retry"))) == ("stopped", 2, 2)


async def test_the_rest_waits_for_the_outcome_of_the_first_ones_until_somebody_says_go() -> None:
    shop, placed, broken = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 4)
        broken["broken"] = False
        console = Console(shop)
        answer = await console.press("held.retry.all", service="shop", canary=2, **FAST)
        task = asyncio.create_task((await taken(shop)).whole())  # nobody runs the consumer: no outcome
        job = await eventually(lambda: the_job(shop, answer["job"]), right=lambda job: job.done == 2)
        await console.press("job.resume", service="shop", job=job.id)
        await eventually(lambda: the_job(shop, job.id), right=lambda job: job.done == 4)
        await harness.advance(1)
        await task
        assert (await the_job(shop, job.id)).applied == 4


async def test_a_cancelled_job_does_nothing_more() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 4)
        console = Console(shop)
        answer = await console.press("held.skip.all", service="shop", rate=2)
        run = await taken(shop)
        task = asyncio.create_task(run.whole())
        await eventually(lambda: run.job.done)
        await console.press("job.cancel", service="shop", job=answer["job"])
        done = run.job.done
        await task
        job = await the_job(shop, answer["job"])
        assert (job.state, job.done) == ("cancelled", done)
        assert len(await acts(shop, "held skip")) == done < 4
        assert (await console.refusal("job.resume", service="shop", job=job.id, dry=True)).status == 409


async def test_a_paused_job_goes_on_where_it_was() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 4)
        console = Console(shop)
        answer = await console.press("held.skip.all", service="shop", **FAST)
        await console.press("job.pause", service="shop", job=answer["job"])
        assert await app_of(shop).store.jobs.take(["shop"], "one", 1.0) is None
        await console.press("job.resume", service="shop", job=answer["job"])
        await (await taken(shop)).whole()
        assert (await the_job(shop, answer["job"])).done == 4


class Died(BaseException):
    """As if the process were killed here."""


@pytest.mark.parametrize("place", range(1, 12))
@pytest.mark.parametrize("act", ["held.retry.all", "held.skip.all"])
async def test_whoever_dies_before_any_of_its_writes_leaves_nothing_out_and_does_nothing_twice(
    act: str, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dies once before its n-th write to the store, an act or a save; another goes on."""
    shop, placed, broken = a_shop()
    async with Harness(shop) as harness:
        before = await held_orders(harness, shop, placed, 5)
        broken["broken"] = False
        answer = await Console(shop).press(act, service="shop", **FAST)
        store, writes = app_of(shop).store, 0
        save, add = store.jobs.save, store.actions.add

        async def counted() -> None:
            nonlocal writes
            writes += 1
            if writes == place:
                raise Died

        async def dying_save(*given: Any, **named: Any) -> Any:
            await counted()
            return await save(*given, **named)

        async def dying_add(*given: Any) -> None:
            await counted()
            await add(*given)

        with monkeypatch.context() as patched:
            patched.setattr(store.jobs, "save", dying_save)
            patched.setattr(store.actions, "add", dying_add)
            with pytest.raises(Died):
                await (await taken(shop, lease=0.0)).whole()
        await harness.advance(1)  # what was retried is applied, and gone, before anybody counts it
        await until(harness, await taken(shop, "two"))
        job = await the_job(shop, answer["job"])
        assert (job.state, job.done, job.refused, job.position) == ("done", 5, 0, before[-1].id)
        noted = await acts(shop, act.replace(".all", "").replace(".", " "))
        assert sorted(action.event_id for action in noted) == sorted(event.entry.event_id for event in before)


async def test_two_consoles_never_do_one_item_twice_even_if_one_was_too_slow() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        [first, *_] = await held_orders(harness, shop, placed, 3)
        answer = await Console(shop).press("held.skip.all", service="shop", **FAST)
        slow = await taken(shop, "one", lease=0.0)  # its lease is over at once
        fast = await taken(shop, "two")
        await fast.whole()
        with pytest.raises(Lost):
            await slow.whole()
        assert (await the_job(shop, answer["job"])).done == 3
        assert len(await acts(shop, "held skip")) == 3
        noted = await app_of(shop).store.actions.get(first.entry.tenant, item_key(answer["job"], first.id))
        assert noted is not None


async def test_a_job_touches_and_shows_only_what_its_maker_sees() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        for tenant in ("t1", "t2"):
            await harness.publish(placed(order_id="o", total=1), tenant=tenant)
        await harness.advance(1)
        mine = msgspec.structs.replace(ADA, tenants=frozenset(("t1",)))
        console = Console(shop, who=mine)
        assert (await console.refusal("held.skip.all", service="shop", tenant="t2", dry=True)).status == 403
        answer = await console.press("held.skip.all", service="shop", **FAST)
        await (await taken(shop)).whole()
        assert {event.entry.tenant: event.state for event in await harness.held(shop)} == {
            "t1": "skipped",
            "t2": "dead",
        }

        def asking(who: Who, **path: str) -> Ask:
            return Ask(estate=console.estate, who=who, path=path, query={})

        theirs = msgspec.structs.replace(ADA, tenants=frozenset(("t2",)))
        assert [job["id"] for job in (await listed(asking(mine)))["items"]] == [answer["job"]]  # type: ignore[index]
        assert (await listed(asking(theirs))) == {"items": [], "next": None}
        with pytest.raises(Refusal):
            await one(asking(theirs, service="shop", id=answer["job"]))
        said = await one(asking(ADA, service="shop", id=answer["job"]))
        assert (said["state"], said["says"], said["done"]) == ("done", "Done: 1.", 1)  # type: ignore[index]


async def test_a_job_reads_no_payload_but_of_what_it_acts_on_and_asks_for_outcomes_once_in_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 20)
        await Console(shop).press("held.retry.all", service="shop", **FAST)
        store = app_of(shop).store
        find, held, read, asked = store.held.find, store.browsing.held, 0, 0

        async def finding(*given: Any, **named: Any) -> Any:
            nonlocal read
            found = await find(*given, **named)
            read += len(found)
            return found

        async def browsing(wanted: HeldFilter, **named: Any) -> Any:
            nonlocal asked
            asked += wanted.ids is not None and wanted.state is None and wanted.consumer is None and named["limit"] > 1
            return await held(wanted, **named)

        monkeypatch.setattr(store.held, "find", finding)
        monkeypatch.setattr(store.browsing, "held", browsing)
        run = await taken(shop)
        run = Run(shop, run.job, lease=30.0, look=60.0)
        task = asyncio.create_task(run.whole())  # nobody runs the consumer: all stay open
        await eventually(lambda: run.job.done == 20)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert read <= 20 * 2  # the act itself reads what it acts on
        assert asked <= 1


@pytest.mark.parametrize(
    ("act", "role", "other"), [("outbox.resend", "replayer", "operator"), ("held.skip.all", "operator", "replayer")]
)
async def test_whoever_may_start_a_job_decides_about_it_and_nobody_else(act: str, role: Role, other: Role) -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 2)
        body = {"service": "shop", "job": (await Console(shop).press(act, service="shop"))["job"]}
        may, may_not = (Who(name="rae", roles=frozenset[Role]((one,))) for one in (role, other))
        some = msgspec.structs.replace(may, tenants=frozenset(("t1",)))
        for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
            refusal = await Console(shop, who=may_not).refusal(f"job.{verb}", **body, dry=True)
            assert (refusal.status, f"is for the role {role}" in refusal.message) == (403, True)
            assert (await Console(shop, who=some).refusal(f"job.{verb}", **body, dry=True)).status == 404
            await Console(shop, who=may).press(f"job.{verb}", **body)
            assert (await the_job(shop, body["job"])).state == state


async def test_a_job_of_an_act_that_is_not_known_here_is_left_alone() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 1)
        job = (await Console(shop).press("held.skip.all", service="shop"))["job"]
        store = app_of(shop).store
        newer = msgspec.structs.replace(await the_job(shop, job), id=new_id(), act="held.of.tomorrow")
        async with store.begin() as tx:
            await store.jobs.add(tx, newer)
        refusal = await Console(shop).refusal("job.cancel", service="shop", job=newer.id, dry=True)
        assert (refusal.status, "held.of.tomorrow" in refusal.message) == (409, True)


async def test_a_console_leaves_alone_what_it_cannot_run_and_what_it_runs() -> None:
    shop, placed, _ = a_shop()
    elsewhere = Service("elsewhere")
    async with Harness(shop, elsewhere) as harness:
        await held_orders(harness, shop, placed, 2)
        store = app_of(shop).store
        strange = [
            Job(id=new_id(), service=service, act=act, parameters=b"{}", by="bob", why="it", rate=1.0)
            for service, act in (("elsewhere", "held.skip.all"), ("shop", "of.tomorrow"))
        ]
        async with store.begin() as tx:
            for job in strange:
                await store.jobs.add(tx, job)
        console = Console(shop)
        answer = await console.press("held.skip.all", service="shop", rate=0.2)
        runner = Runner(console.estate, lease=0.0, look=0.01)  # its lease is over at once, and nobody renews it
        runner.start()
        await eventually(lambda: the_job(shop, answer["job"]), right=lambda job: job.done == 1)
        await asyncio.sleep(0.2)  # some looks: nothing is to happen
        await runner.aclose()
        assert (await the_job(shop, answer["job"])).token == 1
        assert [(await the_job(shop, job.id)).token for job in strange] == [0, 0]


async def test_a_job_keeps_its_lease_while_an_item_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 2)
        answer = await Console(shop).press("held.skip.all", service="shop", **FAST)
        run, store = await taken(shop, lease=1.0), app_of(shop).store
        waits, go = asyncio.Event(), asyncio.Event()

        find = store.browsing.held

        async def slow_find(*given: Any, **named: Any) -> Any:
            waits.set()
            await go.wait()
            return await find(*given, **named)

        monkeypatch.setattr(store.browsing, "held", slow_find)
        task = asyncio.create_task(run.whole())
        await waits.wait()
        harness.clock.advance(0.9)
        await eventually(lambda: the_job(shop, answer["job"]), right=lambda job: job.leased > 0.5)
        go.set()
        await task
        assert (await the_job(shop, answer["job"])).done == 2


async def test_a_mounted_console_goes_on_with_a_job_as_soon_as_anybody_asks_for_anything() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 2)
        console = Console(shop)
        answer = await console.press("held.skip.all", service="shop", **FAST)  # by a console that was ended since
        mounted = httpx.ASGITransport(unguarded(console.estate))  # which is not told of its start
        async with httpx.AsyncClient(transport=mounted, base_url="http://127.0.0.1") as client:
            await client.get("/api/jobs")
        await eventually(lambda: the_job(shop, answer["job"]), right=lambda job: job.state == "done")


async def test_a_runner_takes_up_what_was_pressed_and_stops_when_it_is_closed() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 3)
        console = Console(shop)
        runner = Runner(console.estate, look=0.01)
        runner.start()
        answer = await console.press("held.skip.all", service="shop", **FAST)
        await eventually(lambda: the_job(shop, answer["job"]), right=lambda job: job.state == "done")
        slow = await console.press("held.rerun.all", service="shop", rate=0.01)
        await eventually(lambda: the_job(shop, slow["job"]), right=lambda job: job.done + job.refused)
        await runner.aclose()
        again = await app_of(shop).store.jobs.take(["shop"], "two", 1.0)
        assert again is not None
        assert again.id == slow["job"]


async def test_what_would_be_refused_item_by_item_is_refused_at_the_press_with_what_works() -> None:
    shop, placed, broken = a_shop()
    async with Harness(shop) as harness:
        for event in await held_orders(harness, shop, placed, 2):
            await shop.held.skip(event.id, by="bob", why="wrong")
        console = Console(shop)
        for name, state in (("held.retry.all", "skipped"), ("held.skip.all", "gap"), ("held.release.all", "dead")):
            refusal = await console.refusal(name, service="shop", state=state, dry=True)
            assert (refusal.status, state in refusal.message) == (409, True)
            assert refusal.hint
        broken["broken"] = False
        answer = await console.press("held.rerun.all", service="shop", **FAST)
        await until(harness, await taken(shop))
        job = await the_job(shop, answer["job"])
        assert (job.state, job.done, job.refused) == ("done", 2, 0)
        await harness.advance(1)
        assert await harness.held(shop) == []


async def test_the_log_tells_of_a_job_in_one_line_that_opens() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await held_orders(harness, shop, placed, 3)
        console = Console(shop)
        answer = await console.press("held.skip.all", service="shop", **FAST)
        await (await taken(shop)).whole()

        async def verbs(**query: str) -> list[str]:
            found = await log(Ask(console.estate, ADA, {}, query))
            return [one["verb"] for one in msgspec.json.decode(msgspec.json.encode(found))["items"]]

        assert await verbs() == ["job start"]
        assert await verbs(job=answer["job"]) == ["held skip"] * 3
        assert await verbs(job=new_id()) == []
        with pytest.raises(Refusal, match="no id of a job"):
            await verbs(job="%")
