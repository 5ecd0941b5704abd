"""Acts on the outbox, sagas, timers, schedules, consumers and read models: seen, done once, in the log."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest

from posthouse import App, Service
from posthouse.app import app_of
from posthouse.console.access.who import INCLUDES, Role, Who
from posthouse.console.acting import pressing
from posthouse.console.acting.act import Look
from posthouse.console.acting.running import Runner
from posthouse.console.acting.table import ACTS
from posthouse.console.asking import Refusal
from posthouse.errors import ConfigurationError
from posthouse.store import Action
from posthouse.store.actions import ActionFilter
from posthouse.store.schedules import ScheduleRow
from posthouse.testing import Harness
from posthouse.testing.store_contract.samples import row, stuck
from posthouse.testing.store_contract.steps import add
from tests.kit.waiting import eventually
from tests.unit.console.acting.pressing import ADA, Console, a_shop, keys
from tests.unit.processes.projection.listings import Hotel
from tests.unit.processes.saga.hotel import IntentCaptured, Weather, reservation, start, status
from tests.unit.processes.schedule.test_schedules import Scene


async def noted(service: Service, verb: str) -> list[Action]:
    return [action for action in await app_of(service).actions.find(ActionFilter(verb=verb)) if action.verb == verb]


async def test_a_saga_is_compensated_once_from_the_turn_that_was_seen() -> None:
    Weather.drop_hold_fails = 0
    async with Harness(reservation) as h:
        await start()
        await h.settled()
        console, body = (
            Console(reservation),
            {"service": reservation.name, "saga": "booking", "id": "b1", "tenant": "t1"},
        )
        seen = await console.look("saga.cancel", **body, reason="the guest asked")
        assert "which is running, undoes" in seen["sentence"]
        refusal = await console.refusal("saga.retry", **body, dry=True, saga_="x")
        assert refusal.status == 400
        answer = await console.send("saga.cancel", **body, reason="the guest asked", why="ticket 7", **keys(seen))
        assert answer["sentence"].startswith("booking b1 was running and is ")
        again = await console.send("saga.cancel", **body, reason="the guest asked", why="ticket 7", **keys(seen))
        assert again["again"]
        [action] = await noted(reservation, "saga cancel")
        assert (action.by, action.why, action.tenant) == ("ada (console)", "ticket 7", "t1")
        stranger = msgspec.structs.replace(ADA, tenants=frozenset(("t2",)))
        assert (await Console(reservation, who=stranger).refusal("saga.retry", **body, dry=True)).status == 404
        assert (
            "Did you mean 'booking'?"
            in (await console.refusal("saga.retry", **{**body, "saga": "bocking", "dry": True})).message
        )


async def test_a_saga_that_went_on_since_it_was_seen_is_left_alone() -> None:
    Weather.drop_hold_fails = 0
    async with Harness(reservation) as h:
        await start()
        await h.settled()
        console, body = (
            Console(reservation),
            {"service": reservation.name, "saga": "booking", "id": "b1", "tenant": "t1"},
        )
        seen = await console.look("saga.cancel", **body, reason="the guest asked")
        await h.publish(IntentCaptured(booking_id="b1"))
        await h.settled()
        before = await status()
        refusal = await console.refusal("saga.cancel", **body, reason="the guest asked", why="x", **keys(seen))
        assert refusal.status == 409
        assert (await status(), await noted(reservation, "saga cancel")) == (before, [])


async def test_a_timer_is_cancelled() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop):
        async with shop.transaction("t1") as tx:
            tx.publish(placed(order_id="o-1", total=1), after=60.0, timer="remind o-1")
        console, body = Console(shop), {"service": "shop", "tenant": "t1", "timer": "remind o-1"}
        stranger = msgspec.structs.replace(ADA, tenants=frozenset(("t2",)))
        assert (await Console(shop, who=stranger).refusal("timers.cancel", **body, dry=True)).status == 404
        answer = await console.press("timers.cancel", **body)
        assert answer["sentence"] == "The timer remind o-1 is cancelled."
        assert await app_of(shop).store.timers.pending() == []
        assert (await noted(shop, "timers cancel"))[0].tenant == "t1"
        assert (await console.refusal("timers.cancel", **body, dry=True)).status == 404


async def test_a_timer_that_was_set_anew_since_it_was_seen_is_left_alone_however_many_there_are() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop):
        async with shop.transaction("t1") as tx:
            for number in range(1_005):
                tx.publish(placed(order_id=f"o-{number}", total=1), after=60.0 + number, timer=f"remind {number}")
        console, body = Console(shop), {"service": "shop", "tenant": "t1", "timer": "remind 1004"}
        seen = await console.look("timers.cancel", **body)
        assert "for shop.order" in seen["sentence"]
        async with shop.transaction("t1") as tx:
            tx.publish(placed(order_id="o-1004", total=2), after=5_000.0, timer="remind 1004")
        refusal = await console.refusal("timers.cancel", **body, why="x", **keys(seen))
        assert (refusal.status, await noted(shop, "timers cancel")) == (409, [])
        assert await app_of(shop).store.timers.get("t1", "remind 1004") is not None
        await console.press("timers.cancel", **body)
        assert await app_of(shop).store.timers.get("t1", "remind 1004") is None


async def test_a_schedule_is_paused_resumed_and_run_once_for_each_press() -> None:
    scene = Scene()
    async with Harness(scene.hotel) as h:
        await h.advance(1)
        console, body = Console(scene.hotel), {"service": "hotel", "schedule": "night_audit"}
        await console.press("schedule.pause", **body)
        assert (await scene.row()).paused_at is not None
        assert (await console.refusal("schedule.pause", **body, dry=True)).status == 409
        await console.press("schedule.resume", **body)
        seen = await console.look("schedule.run", **body)
        for again in (False, True):
            answer = await console.send("schedule.run", **body, why="ticket 7", **keys(seen))
            assert answer["again"] is again
        await h.advance(1)
        assert len(scene.runs) == 1
        assert [len(await noted(scene.hotel, f"schedule {verb}")) for verb in ("pause", "resume", "run")] == [1, 1, 1]
        assert (
            "Did you mean"
            in (await console.refusal("schedule.run", service="hotel", schedule="night_odit", dry=True)).message
        )


async def test_what_is_pressed_on_one_services_schedule_is_never_done_to_anothers(tmp_path: Path) -> None:
    hotel, shop = Scene().hotel, a_shop()[0]
    app = App(hotel, shop, store=f"sqlite:///{tmp_path}/both.db", broker="memory://")
    async with contextlib.aclosing(app):
        await app.store.upgrade()
        async with app.store.begin() as tx:  # it was the shop's before it was the hotel's
            for owner in ("hotel", "shop"):
                row = ScheduleRow(service=owner, name="night_audit", expression="0 3 * * *", tz="UTC", next_at=4e9)
                await app.store.schedules.add(tx, row)
        console, body = Console(hotel, shop), {"service": "shop", "schedule": "night_audit"}
        for verb in ("pause", "resume", "run"):
            assert (await console.refusal(f"schedule.{verb}", **body, dry=True)).status == 409
            act = {"pause": app.schedules.pause, "resume": app.schedules.resume, "run": app.schedules.run_now}[verb]
            with pytest.raises(ConfigurationError, match="shop has no schedule 'night_audit'"):
                await act("night_audit", service="shop")
        await console.press("schedule.forget", **body)
        assert [(row.service, row.paused_at) for row in await app.store.schedules.find()] == [("hotel", None)]
        assert [action.service for action in await noted(shop, "schedule forget")] == ["shop"]


async def test_a_refused_event_is_tried_again(tmp_path: Path) -> None:
    shop, *_ = a_shop()
    async with contextlib.aclosing(App(shop, store=f"sqlite:///{tmp_path}/shop.db", broker="memory://")) as app:
        store = app.store
        await store.upgrade()
        shards = await store.outbox.lease("one", 60.0)
        await add(store, row("o-1", topic="shop.order"))
        poll = await store.outbox.poll(shards, 10)
        [found] = poll.rows
        assert await store.outbox.settle("one", poll, [stuck(found, after=60.0, attempts=3, quarantined=True)])
        console, body = Console(shop), {"service": "shop", "id": str(found.id)}
        seen = await console.look("outbox.retry", **body)
        assert "refused 3 times and quarantined" in seen["sentence"]
        await console.send("outbox.retry", **body, why="ticket 7", **keys(seen))
        assert [one.quarantined for one in await store.outbox.stuck()] == [False]
        assert (await console.send("outbox.retry", **body, why="ticket 7", **keys(seen)))["again"]
        assert [action.why for action in await noted(shop, "outbox retry")] == ["ticket 7"]


async def test_a_consumer_is_moved() -> None:
    shop, placed, broken = a_shop()
    broken["broken"] = False
    async with Harness(shop) as harness:
        await harness.publish(placed(order_id="o-1", total=1))
        await harness.advance(1)
        console = Console(shop)
        assert (await console.refusal("seek", service="shop", dry=True)).status == 400
        assert (await console.refusal("seek", service="shop", time="2026-04-22T10:00:00", dry=True)).status == 400
        assert (
            "Did you mean 'shop.order'?"
            in (
                await console.refusal("seek", service="shop", topic="shop.oder", time="2026-04-22T10:00:00Z", dry=True)
            ).message
        )
        await console.press("seek", service="shop", time="2026-04-22T10:00:00Z")
        [action] = await noted(shop, "seek")
        assert (action.outcome, action.by) == ("done", "ada (console)")


async def test_a_read_model_is_built_anew_by_a_job() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await harness.settled()
        console = Console(hotel.service)
        runner = Runner(console.estate, look=0.02)
        runner.start()
        try:
            answer = await console.press(
                "projection.rebuild", service="rooms", projection="listings", **{"from": "streams"}
            )
            jobs = app_of(hotel.service).store.jobs
            job = await eventually(lambda: jobs.get(answer["job"]), right=lambda job: job.state != "running")
        finally:
            await runner.aclose()
        assert (job.state, job.note.startswith("generation 2 of listings is live")) == ("done", True), job.note
        assert [action.outcome for action in await noted(hotel.service, "projection rebuild")] == ["done"]
        [whole] = await noted(hotel.service, "job start")
        assert whole.outcome == "done"


@pytest.mark.parametrize("name", sorted(ACTS))
async def test_every_act_is_refused_to_who_lacks_its_role(name: str) -> None:
    shop, *_ = a_shop()
    others: frozenset[Role] = frozenset(role for role in INCLUDES if ACTS[name].role not in INCLUDES[role])
    async with Harness(shop):
        nobody = Who(name="rae", roles=others, payloads=True)
        assert (await Console(shop, who=nobody).refusal(name, service="shop", dry=True)).status == 403
        if ACTS[name].all_tenants:
            some = Who(name="rae", roles=frozenset[Role](("admin",)), tenants=frozenset(("t1",)), payloads=True)
            assert (await Console(shop, who=some).refusal(name, service="shop", dry=True)).status == 403


async def test_only_events_of_the_key_are_sent_again() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        for order in ("o-1", "o-2"):
            await harness.publish(placed(order_id=order, total=1))
        await harness.advance(1)
        console = Console(shop)
        for filtered, number in (({}, 2), ({"key": "o-1"}, 1)):
            seen = await console.look("outbox.resend", service="shop", **filtered)
            assert seen["counts"] == {"shop.order, t1": number, "shop.order.dlq, t1": number}


@pytest.mark.parametrize("name", ["service", "why", "dry", "seen", "press"])
def test_an_act_with_a_parameter_that_would_never_arrive_is_refused_as_it_is_made(name: str) -> None:
    taking = msgspec.defstruct("Taking", [("theirs", str, msgspec.field(name=name))])
    with pytest.raises(ConfigurationError, match=f"seek: the parameter '{name}' is what every press says"):
        msgspec.structs.replace(ACTS["seek"], parameters=taking)


async def test_a_look_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    shop, *_ = a_shop()

    async def forever(call: object) -> Look:
        await asyncio.Event().wait()
        raise AssertionError

    slow = {"seek": msgspec.structs.replace(ACTS["seek"], look=forever)}
    async with Harness(shop):
        monkeypatch.setattr(pressing, "LOOKS_WITHIN", 0.01)
        with pytest.raises(Refusal, match="It took too long to find out what would happen") as caught:
            await pressing.press(slow, Console(shop).estate, ADA, "seek", {"service": "shop", "dry": True})
        assert caught.value.status == 503


async def test_a_job_that_waits_for_nothing_cannot_be_resumed() -> None:
    shop, placed, _ = a_shop()
    async with Harness(shop) as harness:
        await harness.publish(placed(order_id="o-1", total=1))
        await harness.advance(1)
        console = Console(shop)
        answer = await console.press("held.retry.all", service="shop")
        assert (await console.refusal("job.resume", service="shop", job=answer["job"], dry=True)).status == 409
