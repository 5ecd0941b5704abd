"""Jobs over sagas: those that fitted at the press, each once, and none that went on since."""

from __future__ import annotations

import msgspec
import pytest

from posthouse.app import app_of
from posthouse.console.acting.running import Run, item_key
from posthouse.console.asking import Ask
from posthouse.console.pages.sagas import some
from posthouse.errors import GrantNeeded
from posthouse.operators import pressed
from posthouse.store import CoreStore, GrantVerb, Scope
from posthouse.store.actions import ActionFilter
from posthouse.store.jobs import Job, Open
from posthouse.store.sagas import SagaFilter
from posthouse.testing import Harness
from posthouse.trust.rights import Asked, Rights, signed_in
from tests.unit.console.acting.pressing import ADA, Console
from tests.unit.console.acting.stays import Stays, stays
from tests.unit.console.acting.test_jobs import until

FAST = {"service": "hotel", "rate": 1000}


async def done(harness: Harness, of: Stays, answer: dict[str, str]) -> Job:
    """The job that was pressed, run to its end."""
    store: CoreStore = app_of(of.hotel).store
    job = await store.jobs.take(["hotel"], "one", 30.0)
    assert job is not None
    assert job.id == answer["job"]
    await until(harness, Run(of.hotel, job, lease=30.0, look=0.01))
    ended = await store.jobs.get(job.id)
    assert ended is not None
    return ended


async def test_all_that_rest_are_retried_once_up_to_what_rested_at_the_press() -> None:
    of = stays()
    async with Harness(of.hotel) as harness:
        await of.rest(harness, "a", "b", "c")
        await of.begin(harness, "runs")
        console = Console(of.hotel)
        seen = await console.look("saga.retry.all", **FAST)
        assert seen["sentence"] == "3 sagas of hotel run again what failed, one after the other."
        answer = await console.press("saga.retry.all", **FAST)
        await of.rest(harness, "late")
        job = await done(harness, of, answer)
        assert (job.state, job.total, job.done, job.applied, job.failed, job.refused) == ("done", 3, 3, 3, 0, 0)
        standing = {"a": "completed", "b": "completed", "c": "completed", "runs": "running", "late": "partial"}
        assert await of.standing() == standing
        noted = await app_of(of.hotel).actions.find(ActionFilter(verb="saga retry"))
        assert sorted(action.target for action in noted) == ["saga stay a", "saga stay b", "saga stay c"]
        assert {(action.by, action.why) for action in noted} == {("ada (console)", f"ticket 7 [job {job.id}]")}


async def test_what_went_on_after_the_press_is_left_out_although_it_fits_again() -> None:
    of = stays()
    async with Harness(of.hotel) as harness:
        await of.rest(harness, "a", "b")
        answer = await Console(of.hotel).press("saga.cancel.all", **FAST, reason="closed")
        await harness.advance(1)
        await harness.publish(of.reviewed(stay_id="b", why="again"), tenant="t1")
        await harness.settled()
        job = await done(harness, of, answer)
        assert (job.state, job.total, job.done, job.refused) == ("done", 2, 1, 0)
        assert await of.standing() == {"a": "cancelled", "b": "partial"}


async def test_a_job_takes_those_that_failed_alike_and_stand_alike() -> None:
    of = stays()
    of.undo_fails |= {"x", "y"}
    async with Harness(of.hotel) as harness:
        await of.rest(harness, "a", "b", "c", why="no room 17")
        await of.rest(harness, "d", why="no key")
        await of.begin(harness, "x", "y")
        for id in ("x", "y"):
            await app_of(of.hotel).sagas.cancel("stay", id, "closed", tenant="t1")
        await harness.settled()
        console = Console(of.hotel)
        ask = Ask(estate=console.estate, who=ADA, path={"service": "hotel"}, query={})
        page = msgspec.json.decode(msgspec.json.encode(await some(ask)))
        shown = {one["id"]: (one["step"], one["failure"]) for one in page["items"]}
        assert shown["a"] == shown["c"] == ("begin", "no room …")
        assert shown["x"] == shown["y"] == ("begin", "forget: RuntimeError")
        for failure, number in (("no room …", 3), ("no key", 1), ("forget: RuntimeError", 2)):
            seen = await console.look("saga.retry.all", **FAST, failure=failure)
            assert seen["counts"] == {"sagas": number}
        assert (await console.look("saga.retry.all", **FAST, step="begin"))["counts"] == {"sagas": 6}
        assert (await console.refusal("saga.retry.all", **FAST, step="pay", dry=True)).message == "Nothing fits."
        of.undo_fails.clear()
        job = await done(harness, of, await console.press("saga.retry.all", **FAST, failure="forget: RuntimeError"))
        assert (job.done, job.applied) == (2, 2)
        assert await of.standing() == dict.fromkeys("abcd", "partial") | dict.fromkeys("xy", "cancelled")


async def test_the_rest_is_not_touched_when_one_of_the_first_fails_again() -> None:
    of = stays()
    of.undo_fails |= {"a", "b", "c"}
    async with Harness(of.hotel) as harness:
        await of.begin(harness, "a", "b", "c")
        for id in ("a", "b", "c"):
            await app_of(of.hotel).sagas.cancel("stay", id, "closed", tenant="t1")
        await harness.settled()
        of.undo_fails.remove("b")
        answer = await Console(of.hotel).press("saga.retry.all", **FAST, canary=1)
        job = await done(harness, of, answer)
        assert (job.state, job.done, job.failed) == ("stopped", 1, 1)
        assert "of the first 1 failed again" in job.note
        assert (await of.standing())["b"] == "compensation_failed"


async def test_a_method_that_raises_is_one_more_failure_and_changes_nothing() -> None:
    of = stays()
    async with Harness(of.hotel) as harness:
        await of.rest(harness, "a", "b", "c", "d")
        of.retry_fails |= {"a", "c"}
        job = await done(harness, of, await Console(of.hotel).press("saga.retry.all", **FAST))
        assert (job.state, job.done, job.applied, job.failed, job.refused) == ("done", 2, 2, 2, 2)
        assert "stay c: " in job.note
        standing = {"a": "partial", "b": "completed", "c": "partial", "d": "completed"}
        assert await of.standing() == standing
        job = await done(harness, of, await Console(of.hotel).press("saga.retry.all", **FAST, stop_after=1))
        assert (job.state, job.failed, job.done) == ("stopped", 1, 0)


async def test_completing_takes_what_failed_as_done_by_hand() -> None:
    of = stays()
    async with Harness(of.hotel) as harness:
        await of.rest(harness, "a", "b")
        console = Console(of.hotel)
        seen = await console.look("saga.resume.all", **FAST)
        assert "by hand" in seen["danger"]
        job = await done(harness, of, await console.press("saga.resume.all", **FAST, note="the desk did it"))
        assert (job.done, job.applied) == (2, 2)
        assert await of.standing() == {"a": "completed", "b": "completed"}
        view = await app_of(of.hotel).sagas.show("stay", "a", tenant="t1")
        assert view.history[-1].note == "the desk did it"


async def test_those_that_run_are_undone_only_when_that_is_said() -> None:
    of = stays()
    async with Harness(of.hotel) as harness:
        await of.rest(harness, "rests")
        await of.begin(harness, "runs")
        console, asked = Console(of.hotel), {**FAST, "reason": "closed"}
        assert (await console.look("saga.cancel.all", **asked))["counts"] == {"sagas": 1}
        job = await done(harness, of, await console.press("saga.cancel.all", **asked, status="running"))
        assert job.done == 1
        assert await of.standing() == {"rests": "partial", "runs": "cancelled"}
        assert (await console.refusal("saga.cancel.all", **FAST, dry=True)).status == 400
        assert "Did you mean 'stay'" in (await console.refusal("saga.retry.all", **FAST, saga="sty", dry=True)).message


async def test_whoever_sees_some_tenants_touches_no_other() -> None:
    of = stays()
    async with Harness(of.hotel) as harness:
        await of.rest(harness, "mine", tenant="t1")
        await of.rest(harness, "theirs", tenant="t2")
        scoped = Console(of.hotel, who=msgspec.structs.replace(ADA, tenants=frozenset(("t1",))))
        assert (await scoped.look("saga.retry.all", **FAST))["counts"] == {"sagas": 1}
        assert (await scoped.refusal("saga.retry.all", **FAST, tenant="t2", dry=True)).status == 403
        job = await done(harness, of, await scoped.press("saga.retry.all", **FAST))
        assert (job.done, job.tenants) == (1, ("t1",))
        assert await of.standing() == {"mine": "completed", "theirs": "partial"}


async def test_what_a_console_did_before_it_died_is_not_done_again_by_the_next() -> None:
    of = stays()
    async with Harness(of.hotel) as harness:
        await of.rest(harness, "a", "b")
        app = app_of(of.hotel)
        answer = await Console(of.hotel).press("saga.retry.all", **FAST)
        first = await app.store.jobs.take(["hotel"], "died", 30.0)
        assert first is not None
        [row, _] = await app.store.sagas.find(SagaFilter())
        begun = msgspec.structs.replace(first, open=(Open(row.number, row.turn, "t1", True),))
        with pressed(item_key(first.id, row.number)):  # it acted, and died before it could note that
            await app.sagas.retry("stay", "a", tenant="t1", by=first.by, why=first.why)
        await app.store.jobs.save(begun, 0.0)
        job = await done(harness, of, answer)
        assert (job.state, job.done, job.refused) == ("done", 2, 0)
        noted = await app.actions.find(ActionFilter(verb="saga retry"))
        assert sorted(action.target for action in noted) == ["saga stay a", "saga stay b"]


async def granted(of: Stays, verb: GrantVerb, scope: Scope | None = None, *, most: int = 100) -> None:
    """To ada, by grace."""
    grants = app_of(of.hotel).grants
    asked = Asked(service="hotel", verb=verb, scope=scope or Scope(), most=most, rate=1000.0)
    with signed_in(True):
        grant = await grants.request(asked, by="ada", why="ticket 7")
        await grants.approve(grant.id, by="grace")


async def test_where_grants_are_asked_for_a_saga_is_retried_resumed_or_cancelled_with_one_only() -> None:
    of = stays()
    async with Harness(of.hotel) as harness:
        await of.rest(harness, "a", "b", "c")
        app, console, by = app_of(of.hotel), Console(of.hotel), "ada"
        app._rights = Rights(grants=True)
        desk = app.sagas
        for attempt, verb in (
            (desk.retry("stay", "a", tenant="t1", by=by), "replay"),
            (desk.resume("stay", "a", tenant="t1", by=by), "edit"),
            (desk.cancel("stay", "a", "closed", tenant="t1", by=by), "edit"),
        ):
            with pytest.raises(GrantNeeded, match=f"no grant to {verb} runs for ada"):
                await attempt
        for act, more in (("retry", {}), ("resume", {}), ("cancel", {"reason": "closed"})):
            for body in ({**FAST, **more}, {"service": "hotel", "saga": "stay", "id": "a", "tenant": "t1", **more}):
                refused = await console.refusal(f"saga.{act}{'.all' if 'rate' in body else ''}", **body, dry=True)
                assert "grant request" in str(refused), (act, refused)
        assert await of.standing() == dict.fromkeys("abc", "partial")
        await granted(of, "replay", Scope(tenant="t1", key="a"))
        await granted(of, "edit", Scope(consumer="hotel.stay"))
        with pytest.raises(GrantNeeded, match="is for tenant t1, key a"):
            await desk.retry("stay", "b", tenant="t1", by=by)
        await desk.retry("stay", "a", tenant="t1", by=by)
        await desk.resume("stay", "b", tenant="t1", by=by)
        await desk.cancel("stay", "c", "closed", tenant="t1", by=by)
        assert await of.standing() == {"a": "completed", "b": "completed", "c": "cancelled"}


async def test_a_job_over_sagas_pauses_when_its_grant_is_spent() -> None:
    of = stays()
    async with Harness(of.hotel) as harness:
        await of.rest(harness, "a", "b", "c")
        app_of(of.hotel)._rights = Rights(grants=True)
        await granted(of, "replay", most=2)
        job = await done(harness, of, await Console(of.hotel).press("saga.retry.all", **FAST))
        assert (job.state, job.done, job.refused) == ("paused", 2, 0)
        assert "no grant to replay runs for ada" in job.note
        assert await of.standing() == {"a": "completed", "b": "completed", "c": "partial"}
