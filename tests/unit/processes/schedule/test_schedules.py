"""Schedules of a service in a harness: each moment once, by whom, for whom, and what operators do."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from posthouse import Payload, Policy, Run, Service, Tx
from posthouse.app import app_of
from posthouse.errors import ConfigurationError, DeskError, StoreUnavailable
from posthouse.processes.schedule import Missed, Schedule, Scheduler, schedule
from posthouse.store.schedules import ScheduleRow
from posthouse.testing import Harness, SyncHarness, assert_survives_crashes

BEGIN = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)  # when the clock of a harness begins


class Audited(Payload):
    moment: datetime


class Scene:
    """A hotel that audits each night, and what it did."""

    def __init__(self, expression: str = "0 6 * * *", **options: object) -> None:
        self.runs: list[Run] = []
        self.fails: set[datetime] = set()
        self.hotel = hotel = Service("hotel")
        hotel.event("audit.done.v1")(Audited)

        @hotel.every(expression, **({"tz": "Asia/Kabul", "policy": Policy(max_attempts=2)} | options))  # type: ignore[arg-type]
        async def night_audit(run: Run, tx: Tx) -> Audited:
            """Count the day."""
            if run.moment in self.fails:
                raise ValueError("the books do not add up")
            self.runs.append(run)
            return Audited(moment=run.moment)

    @property
    def moments(self) -> list[datetime]:
        return [run.moment.astimezone(UTC) for run in self.runs]

    async def row(self) -> ScheduleRow:
        (row,) = await app_of(self.hotel).store.schedules.find()
        return row


def night(number: int) -> datetime:
    """The moment of the n-th audit: six in the morning in Kabul."""
    return datetime(2027, 1, 15, 1, 30, tzinfo=UTC) + timedelta(days=number)


async def test_each_moment_runs_once_and_the_clock_goes_from_one_to_the_next() -> None:
    scene = Scene()
    async with Harness(scene.hotel) as h:
        await h.advance(3 * 86_400)
        assert scene.moments == [night(1), night(2), night(3)]
        assert [event.data.moment for event in await h.published(Audited)] == scene.moments
        assert {event.time[:16] for event in await h.published(Audited)} == {
            f"{night(n):%Y-%m-%dT%H:%M}" for n in (1, 2, 3)
        }
        first = scene.runs[0]
        assert (first.schedule, first.missed, first.by_hand, first.tenant) == ("night_audit", 0, False, "default")
        assert first.moment.tzinfo == ZoneInfo("Asia/Kabul")
        row = await scene.row()
        assert (row.next_at, row.last_at, row.done_at) == tuple(night(n).timestamp() for n in (4, 3, 3))
        await h.assert_replay_safe()


async def test_what_a_run_says_has_the_run_as_its_cause() -> None:
    scene = Scene()
    async with Harness(scene.hotel) as h:
        await h.advance(86_400)
        (said,) = await h.published(Audited)
        assert (said.causation, said.correlation) == (scene.runs[0].id, scene.runs[0].id)


async def test_a_run_that_fails_is_tried_again_and_holds_up_no_other() -> None:
    scene = Scene()
    scene.fails = {night(1)}
    async with Harness(scene.hotel) as h:
        await h.advance(2 * 86_400)
        assert scene.moments == [night(2)]
        (held,) = await h.held(scene.hotel)
        assert (held.state, held.attempts, held.type) == ("dead", 2, "hotel.schedule.night_audit_due.v1")
        (view,) = await app_of(scene.hotel).schedules.find()
        assert (view.failed, view.overdue) == (1, 0.0)
        scene.fails.clear()
        await scene.hotel.held.retry(held.id)
        await h.settled()
        assert scene.moments == [night(2), night(1)]
        assert (await scene.row()).done_at == night(2).timestamp()


@pytest.mark.parametrize(
    ("missed", "late", "runs"),
    [
        ("once", 5.0, [(night(3), 2)]),
        ("all", 5.0, [(night(1), 0), (night(2), 0), (night(3), 0)]),
        ("skip", 5.0, [(night(3), 2)]),
        ("skip", 600.0, []),
    ],
)
async def test_what_passed_while_nobody_ran_is_dealt_with_by_the_rule(
    missed: Missed, late: float, runs: list[tuple[datetime, int]]
) -> None:
    scene = Scene(missed=missed)
    async with Harness(scene.hotel) as h:
        await h.settled()
        h.clock.move_to(night(3).timestamp() + late)  # over all of them at once
        await h.settled()
        assert [(run.moment.astimezone(UTC), run.missed) for run in scene.runs] == runs
        assert (await scene.row()).next_at == night(4).timestamp()


async def test_a_backlog_of_many_moments_is_worked_off() -> None:
    scene = Scene("*/5 * * * *", missed="all")
    async with Harness(scene.hotel) as h:
        await h.settled()
        h.clock.advance(86_400)
        await h.settled()
        assert len(scene.runs) == len(set(scene.moments)) == 288


async def tenants(tx: Tx) -> Collection[str]:
    return [str(name) for (name,) in await tx.execute("SELECT 't1' UNION SELECT 't2' UNION SELECT 't3'")]


async def test_a_moment_has_a_run_for_each_tenant_that_there_is_then() -> None:
    scene = Scene(tenants=tenants)
    async with Harness(scene.hotel) as h:
        await h.advance(86_400)
        assert sorted(run.tenant for run in scene.runs) == ["t1", "t2", "t3"]
        assert {event.tenant for event in await h.published(Audited)} == {"t1", "t2", "t3"}


async def test_a_function_of_tenants_that_fails_leaves_the_moment_and_is_asked_again() -> None:
    asked: list[int] = []

    async def unsure(tx: Tx) -> Collection[str]:
        asked.append(1)
        if len(asked) < 3:
            raise ValueError("who?")
        return ["t1"]

    scene = Scene(tenants=unsure)
    async with Harness(scene.hotel) as h:
        await h.advance(night(1).timestamp() - h.clock.now() + 60)
        assert scene.moments == [night(1)]
        assert len(asked) == 3


async def test_a_plain_function_may_run_and_take_the_run_alone() -> None:
    hotel, runs = Service("hotel"), list[Run]()

    @hotel.every("0 6 * * *")
    def sweep(run: Run) -> None:
        runs.append(run)

    async with Harness(hotel) as h:
        await h.advance(86_400)
    assert [run.schedule for run in runs] == ["sweep"]


def test_the_harness_without_an_event_loop_goes_through_moments_too() -> None:
    scene = Scene()
    with SyncHarness(scene.hotel) as harness:
        harness.advance(86_400)
    assert scene.moments == [night(1)]


# Operators.


async def test_a_paused_schedule_runs_nothing_and_resumes_with_the_next_moment() -> None:
    scene = Scene(missed="all")
    async with Harness(scene.hotel) as h:
        await h.settled()
        desk = app_of(scene.hotel).schedules
        await desk.pause("night_audit", by="zahra", why="stocktaking")
        await h.advance(3 * 86_400)
        assert scene.runs == []
        await desk.resume("night_audit", by="zahra")
        await h.advance(86_400)
        assert scene.moments == [night(4)]
        actions = await app_of(scene.hotel).actions.find()
        assert [(a.verb, a.by, a.why, a.target, dict(a.changed)) for a in reversed(actions)] == [
            ("schedule pause", "zahra", "stocktaking", "schedule night_audit", {"state": ("runs", "paused")}),
            ("schedule resume", "zahra", "", "schedule night_audit", {"state": ("paused", "runs")}),
        ]
        with pytest.raises(DeskError, match="is not paused"):
            await desk.resume("night_audit")


async def test_a_run_by_hand_leaves_the_next_moment_alone() -> None:
    scene = Scene()
    async with Harness(scene.hotel) as h:
        await h.settled()
        desk = app_of(scene.hotel).schedules
        moment = await desk.run_now("night_audit", by="zahra")
        await h.settled()
        assert [(run.by_hand, run.moment.timestamp()) for run in scene.runs] == [(True, moment)]
        assert (await scene.row()).next_at == night(1).timestamp()
        with pytest.raises(ConfigurationError, match="Did you mean 'night_audit'"):
            await desk.run_now("night_audits")


async def test_a_row_that_nobody_declares_can_be_forgotten() -> None:
    scene = Scene()
    async with Harness(scene.hotel) as h:
        await h.settled()
        app = app_of(scene.hotel)
        async with app.store.begin() as tx:
            await app.store.schedules.add(tx, replace(await scene.row(), name="old_audit"))
        views = {view.name: view for view in await app.schedules.find()}
        assert views["old_audit"].declared is None
        await h.advance(86_400)
        assert scene.moments == [night(1)], "nobody runs it"
        with pytest.raises(DeskError, match="is declared"):
            await app.schedules.forget("night_audit")
        await app.schedules.forget("old_audit")
        assert [view.name for view in await app.schedules.find()] == ["night_audit"]


# Releases.


def scheduler(scene: Scene, other: Scene) -> Scheduler:
    """A process of another release beside the one that runs."""
    app = app_of(scene.hotel)
    schedules: list[Schedule] = list(other.hotel.declared.schedules)
    return Scheduler(schedules, app.store, app.opened.builders, app.clock)


async def test_a_changed_expression_takes_effect_when_a_process_with_it_starts() -> None:
    scene, new = Scene(), Scene("0 7 * * *")
    async with Harness(scene.hotel) as h:
        await h.advance(night(1).timestamp() - h.clock.now())
        await scheduler(scene, new).look()
        row = await scene.row()
        assert (row.expression, row.next_at) == ("0 7 * * *", night(1).timestamp() + 3600)
        await h.advance(7_200)
        assert [f"{moment:%H:%M}" for moment in scene.moments] == ["01:30", "02:30"], "no moment twice"
        await h.advance(86_400)  # the other process is gone
        assert scene.moments == [night(1), night(1) + timedelta(hours=1), night(2)]


async def test_a_moment_that_has_come_is_run_by_the_expression_that_it_came_by() -> None:
    scene, new = Scene(), Scene("0 7 * * *")
    async with Harness(scene.hotel) as h:
        await h.settled()
        other = scheduler(scene, new)
        async with app_of(scene.hotel).store.begin() as tx:  # nobody ran when it came
            row = replace(await scene.row(), next_at=night(0).timestamp())
            await app_of(scene.hotel).store.schedules.save(tx, row)
        await other.look()
        await other.look()
        assert (await scene.row()).expression == "0 7 * * *"
        await h.settled()
        assert scene.moments == [night(0)]


async def test_releases_beside_each_other_do_not_quarrel_and_the_one_that_stays_wins() -> None:
    scene, new = Scene(), Scene("0 7 * * *")
    async with Harness(scene.hotel) as h:
        await h.settled()
        other = scheduler(scene, new)
        await other.look()
        for _ in range(6):
            h.clock.advance(30)
            await other.look()
            await h.settled()
            assert (await scene.row()).expression == "0 7 * * *", "the one that started last"
        for _ in range(4):
            h.clock.advance(30)
            await h.settled()
        assert (await scene.row()).expression == "0 6 * * *", "the other one is gone"


async def test_what_came_while_a_release_was_tried_and_rolled_back_is_run_by_the_one_that_stayed() -> None:
    """The other one was there for a moment; and nobody looks again and again while it may be there."""
    scene, tried = Scene("* * * * *"), Scene("0 0 1 1 *")
    async with Harness(scene.hotel) as h:
        await h.settled()
        stayed = scheduler(scene, Scene("* * * * *"))
        await stayed.look()
        await scheduler(scene, tried).look()
        assert (await scene.row()).expression == "0 0 1 1 *"
        h.clock.advance(30)
        assert await stayed.look() == pytest.approx(1.0), "it may be there"
        h.clock.advance(40)
        await stayed.look()
        await h.settled()
        assert scene.moments == [BEGIN + timedelta(minutes=1)]


async def test_one_whose_tenants_cannot_be_read_keeps_no_other_waiting() -> None:
    scene = Scene()

    async def houses(tx: Tx) -> Collection[str]:
        raise StoreUnavailable("the statement took too long")

    first = Scene("0 6 * * *", tenants=houses, name="remind")
    async with Harness(scene.hotel) as h:
        await h.settled()
        app = app_of(scene.hotel)
        both = [*first.hotel.declared.schedules, *scene.hotel.declared.schedules]
        other = Scheduler(both, app.store, app.opened.builders, app.clock)
        await other.look()
        h.clock.advance(night(1).timestamp() - h.clock.now())
        with pytest.raises(StoreUnavailable):
            await other.look()
        rows = {row.name: row.last_at for row in await app.store.schedules.find()}
        assert rows == {"remind": None, "night_audit": night(1).timestamp()}


async def test_one_whose_tenants_nobody_names_is_given_up_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schedule, "WHOM_WITHIN", 0.05)
    scene = Scene()

    async def houses(tx: Tx) -> Collection[str]:
        await asyncio.Event().wait()
        return ["t1"]

    first = Scene("0 6 * * *", tenants=houses, name="remind")
    async with Harness(scene.hotel) as h:
        await h.settled()
        app = app_of(scene.hotel)
        both = [*first.hotel.declared.schedules, *scene.hotel.declared.schedules]
        other = Scheduler(both, app.store, app.opened.builders, app.clock)
        await other.look()
        h.clock.advance(night(1).timestamp() - h.clock.now())
        await other.look()
        rows = {row.name: row.last_at for row in await app.store.schedules.find()}
        assert rows == {"remind": None, "night_audit": night(1).timestamp()}
        assert "the schedule remind could not begin a run, and tries again" in caplog.text


async def test_missed_moments_of_many_tenants_are_begun_in_several_transactions() -> None:
    scene = Scene("* * * * *", missed="all", tenants=[f"t{n}" for n in range(60)])
    async with Harness(scene.hotel) as h:
        await h.settled()
        app = app_of(scene.hotel)
        other = scheduler(scene, scene)
        await other.look()
        h.clock.advance(180)
        await other.look()
        (row,) = await app.store.schedules.find()
        assert row.last_at == (BEGIN + timedelta(minutes=1)).timestamp(), "one moment, of all tenants"
        await h.settled()
        assert len(scene.runs) == 180


async def test_a_restart_repeats_nothing_and_forgets_nothing() -> None:
    scene = Scene()
    async with Harness(scene.hotel) as h:
        await h.advance(86_400)
        again = scheduler(scene, Scene())
        for _ in range(3):
            await again.look()
        await h.settled()
        assert scene.moments == [night(1)]


async def test_many_schedulers_begin_a_moment_once() -> None:
    scene = Scene()
    async with Harness(scene.hotel) as h:
        await h.settled()
        others = [scheduler(scene, Scene()) for _ in range(5)]
        for other in others:
            await other.look()
        h.clock.move_to(night(1).timestamp())
        await asyncio.gather(*(other.look() for other in others))
        await h.settled()
        assert scene.moments == [night(1)]


# What is refused.


async def run_nothing(run: Run, tx: Tx) -> None: ...


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"missed": "twice"}, "it is 'once' or 'all' or 'skip'"),
        ({"tenants": "t1"}, r"write tenants=\['t1'\]"),
        ({"tenants": []}, "runs for nobody"),
        ({"tenants": lambda tx: []}, "is an async function of a Tx, or a list"),
        ({"name": "Night Audit"}, "Night Audit"),
        ({"policy": Policy(grouped=True)}, "takes one run"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Service("hotel").every("0 6 * * *", **options)(run_nothing)  # type: ignore[arg-type]


def test_a_service_of_many_tenants_says_for_whom() -> None:
    with pytest.raises(ConfigurationError, match=r"say for whom hotel.every\('0 6 \* \* \*'\) runs"):
        Service("hotel", default_tenant=None).every("0 6 * * *")(run_nothing)


def test_two_schedules_have_two_names() -> None:
    hotel = Service("hotel")
    hotel.every("0 6 * * *")(run_nothing)
    with pytest.raises(ConfigurationError, match="is the schedule 'run_nothing' already"):
        hotel.every("0 7 * * *")(run_nothing)
    hotel.every("0 7 * * *", name="other")(run_nothing)
    assert [schedule.name for schedule in hotel.declared.schedules] == ["run_nothing", "other"]


# Crashes.


async def test_a_crash_after_any_step_leads_to_the_same_end() -> None:
    """Runs are begun by a commit of the library's own, which the kit enumerates as it does all others."""
    hotel = Service("hotel")
    hotel.event("audit.done.v1")(Audited)

    @hotel.setup
    async def tables(tx: Tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS audit (moment TEXT)")

    @hotel.every("0 6 * * *", tz="Asia/Kabul", missed="all")
    async def audit(run: Run, tx: Tx) -> Audited:
        await tx.execute("INSERT INTO audit VALUES (?)", (run.moment.isoformat(),))
        return Audited(moment=run.moment)

    async def two_nights(h: Harness) -> None:
        await h.advance(2 * 86_400)

    crashes = await assert_survives_crashes(two_nights, hotel)
    assert crashes.steps >= 8, "two moments, each begun, published, run and said"
