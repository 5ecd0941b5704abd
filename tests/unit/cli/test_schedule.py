"""`posthouse schedule`, and what `status` and `doctor` say of schedules."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from posthouse.app import app_of
from posthouse.service import Service
from posthouse.store import HeldFilter
from posthouse.store.schedules import ScheduleRow
from tests.kit.running import at_work
from tests.kit.waiting import eventually
from tests.unit.cli.conftest import SHOP, Project

SWEEP = """

from posthouse import Run


@orders.every("0 6 * * *", tz="Asia/Kabul", policy=Policy(max_attempts=1))
async def sweep(run: Run, tx: Tx) -> None:
    await tx.execute("INSERT INTO invoice VALUES (?, ?)", ("by hand" if run.by_hand else "due", 1))
"""
FAILING = SWEEP.replace("await tx.execute(", 'raise ValueError("dust") #')


@pytest.fixture
def project(project: Project) -> Project:
    project.write("shop.py", SHOP + SWEEP)
    return project


def ran(project: Project, *, held: int = 0, done: bool = False) -> None:
    """Let a worker run until it has the schedule, has done a run, or holds some."""

    async def work(service: Service) -> None:
        store = app_of(service).store
        await app_of(service).open()

        async def reached() -> bool:
            rows = await store.schedules.find()
            if len(await store.held.find(HeldFilter())) != held:
                return False
            return bool(rows) and (not done or rows[0].done_at is not None)

        async with at_work(lambda stop: service.run(stop=stop)):
            await eventually(reached, "the schedule", within=20.0, pause=0.01)

    project.with_service(work)


def changed(project: Project, **fields: object) -> None:
    """Change the row, as time or another release would."""

    async def work(service: Service) -> None:
        store = app_of(service).store
        (row,) = await store.schedules.find()
        async with store.begin() as tx:
            await store.schedules.remove(tx, row.service, row.name)
            await store.schedules.add(tx, replace(row, **fields))

    project.with_service(work)


def row_of(project: Project) -> ScheduleRow:
    found: list[ScheduleRow] = []

    async def work(service: Service) -> None:
        found.extend(await app_of(service).store.schedules.find())

    project.with_service(work)
    return found[0]


def test_a_schedule_is_listed_with_its_next_moment(project: Project) -> None:
    ran(project)
    (facts,) = json.loads(project.run("schedule", "list", "shop", "--json").stdout)
    assert facts["name"] == "sweep"
    assert facts["next"].endswith("T01:30:00.000000Z")
    assert (facts["last_done"], facts["failed"], facts["paused"], facts["declared"]) == (None, 0, False, True)
    said = project.run("schedule", "list", "shop", columns=140).output
    assert "sweep" in said
    assert "06:00" in said
    assert "0 6 * * *" in said
    assert "runs" in said


def test_before_a_worker_has_run_it_says_so(project: Project) -> None:
    project.place(("a", 1))
    assert "waits for its first worker" in project.run("schedule", "list", "shop", columns=140).output


def test_a_schedule_is_paused_and_resumed_with_who_and_why(project: Project) -> None:
    ran(project)
    paused = project.run("schedule", "pause", "shop", "sweep", "--by", "zahra", "--why", "stocktaking")
    assert paused.output == "sweep is paused: `posthouse schedule resume shop sweep` lets it go on\n"
    assert "paused for" in project.run("schedule", "list", "shop", columns=140).output
    again = project.run("schedule", "pause", "shop", "sweep")
    assert again.exit_code != 0
    assert "is paused already" in again.output
    assert "runs next at" in project.run("schedule", "resume", "shop", "sweep", "--by", "zahra").output
    actions: object = project.json("actions", "shop")
    assert [(a["verb"], a["by"], a["why"]) for a in reversed(actions)] == [  # type: ignore[call-overload]
        ("schedule pause", "zahra", "stocktaking"),
        ("schedule resume", "zahra", ""),
    ]


def test_a_run_by_hand_is_done_by_a_worker(project: Project) -> None:
    ran(project)
    assert "a run of sweep has begun" in project.run("schedule", "run", "shop", "sweep").output
    ran(project, done=True)
    assert project.invoices() == [("by hand", 1)]


def test_a_misspelled_name_is_answered_with_the_right_one(project: Project) -> None:
    ran(project)
    result = project.run("schedule", "run", "shop", "swep")
    assert result.exit_code == 2
    assert "orders has no schedule 'swep'. Did you mean 'sweep'?" in result.output


def test_status_names_a_schedule_whose_run_failed(project: Project) -> None:
    project.write("shop.py", SHOP + FAILING)
    ran(project)
    project.run("schedule", "run", "shop", "sweep")
    ran(project, held=1)
    result = project.run("status", "shop")
    assert result.exit_code == 1
    assert "orders: the schedule sweep: 1 run failed: see `posthouse schedule list shop`" in result.output.replace(
        "TARGET", "shop"
    )
    assert json.loads(project.run("status", "shop", "--json").stdout)["schedules"] == [
        {"service": "orders", "name": "sweep", "failed": 1, "retrying": 0, "overdue": None}
    ]


def test_status_names_one_whose_moment_nobody_has_begun(project: Project) -> None:
    ran(project)
    row = row_of(project)
    changed(project, next_at=row.now - 3600)
    result = project.run("status", "shop")
    assert result.exit_code == 4, "nobody runs the timers"
    assert "the schedule sweep: nobody has begun the run of" in result.output
    assert "overdue for 1 h" in project.run("schedule", "list", "shop", columns=140).output
    changed(project, paused_at=row.now)
    assert project.run("status", "shop").exit_code == 0, "one that is paused is in nobody's debt"


def test_doctor_names_a_row_that_the_code_does_not_declare_any_more(project: Project) -> None:
    ran(project)
    project.write("shop.py", SHOP)
    said = " ".join(project.run("doctor", "shop", columns=300).output.split())
    assert "schedule sweep" in said
    assert "`posthouse schedule forget shop sweep`" in said
    assert "not declared any more" in project.run("schedule", "list", "shop", columns=140).output
    assert project.run("schedule", "forget", "shop", "sweep").output == "sweep is forgotten\n"
    assert "schedule sweep" not in project.run("doctor", "shop", columns=300).output
