"""`posthouse saga`: attempts, fields, parents and children, tasks of people, and deadlines that fail."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Project
from tests.unit.processes.saga import claims

DRIVE = """
import asyncio

from posthouse.app import app_of
from posthouse.watch.status import drained
from insurer import *


async def whole():
    async with claims.running():
        async with claims.transaction("t1", correlation="monday") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c1", policy_id="p1", inspected=True))
            await claims.start_saga(tx, ClaimSaga(claim_id="c2", policy_id="p1", number=7))
            await claims.start_saga(tx, ClaimSaga(claim_id="c3", policy_id="p2"))
        await app_of(claims).sagas.cancel("claim", "c2", "a mistake", tenant="t1")
        async with claims.transaction("t1", correlation="tuesday") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c2", policy_id="p1", number=8))
        async with claims.transaction("t1", correlation="a person") as tx:
            tx.publish(ClaimNoted(claim_id="c3"))
            tx.publish(ClaimApproved(claim_id="c1"))
        await drained(claims)


def main():
    asyncio.run(whole())
"""

TARGET = "insurer:claims"


@pytest.fixture
def insurer(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.syspath_prepend(str(tmp_path))
    project.write("insurer.py", Path(claims.__file__).read_text(encoding="utf-8"))
    project.write("drive.py", DRIVE)
    return project


def drive(insurer: Project) -> None:
    insurer.forget()
    importlib.import_module("drive").main()
    insurer.forget()


def test_sagas_are_listed_by_the_fields_that_they_are_indexed_by(insurer: Project) -> None:
    drive(insurer)
    found: Any = insurer.json("saga", "list", TARGET, "--where", "policy_id=p1")
    assert [(row["id"], row["attempt"], row["status"]) for row in found] == [
        ("c1", 1, "running"),
        ("c2", 1, "cancelled"),
        ("c2", 2, "running"),
    ]
    narrow: Any = insurer.json("saga", "list", TARGET, "--where", "policy_id=p1", "--where", "number=8")
    assert [(row["id"], row["attempt"]) for row in narrow] == [("c2", 2)]
    assert "c2 (attempt 2)" in insurer.run("saga", "list", TARGET, "--where", "number=8", columns=120).stdout


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("polcy_id=p1",), "no saga is indexed by 'polcy_id'. Did you mean 'policy_id'?"),
        (("inspected=yes",), "no saga is indexed by 'inspected'. Known: case, due, number, policy_id."),
        (("number=many",), "number=many finds no claim"),
        (("policy_id",), "--where policy_id: write FIELD=VALUE, as in --where policy_id=p1"),
        (("number=1", "number=2"), "--where names a field twice"),
    ],
)
def test_what_cannot_be_asked_for_is_told(insurer: Project, asked: tuple[str, ...], words: str) -> None:
    drive(insurer)
    result = insurer.run("saga", "list", TARGET, *(part for one in asked for part in ("--where", one)))
    assert result.exit_code != 0
    assert words in " ".join(result.stderr.split())


def test_children_are_listed_and_shown_with_their_parent_and_it_with_them(insurer: Project) -> None:
    drive(insurer)
    children: Any = insurer.json("saga", "list", TARGET, "--parent", "claim", "c1")
    assert [(row["saga"], row["id"], row["parent"]) for row in children] == [
        ("inspection", "i-c1", {"saga": "claim", "id": "c1", "attempt": 1})
    ]
    assert insurer.json("saga", "list", TARGET, "--parent", "claim", "c2") == []
    shown = insurer.run("saga", "show", TARGET, "claim", "c1").stdout
    assert "children     inspection i-c1, running" in shown
    assert "parent       claim c1" in insurer.run("saga", "show", TARGET, "inspection", "i-c1").stdout


def test_the_newest_attempt_is_shown_unless_another_is_named(insurer: Project) -> None:
    drive(insurer)
    newest = insurer.run("saga", "show", TARGET, "claim", "c2").stdout
    assert "attempt      2; 1 is cancelled" in newest
    assert "It waits for town.claims.claim.approved.v1.\n" in newest, "signed may not run before"
    first = insurer.run("saga", "show", TARGET, "claim", "c2", "--attempt", "1").stdout
    assert "attempt      1; 2 is running" in first
    assert "a mistake" in first
    nobody = insurer.run("saga", "show", TARGET, "claim", "c2", "--attempt", "3")
    assert "there is no saga claim c2, attempt 3,: see" in nobody.stderr
    refused = insurer.run("saga", "cancel", TARGET, "claim", "c2", "--attempt", "1", "--reason", "again", "--yes")
    assert "claim c2 is cancelled: only a running or partial saga can be cancelled" in refused.stderr
    cancelled = insurer.run("saga", "cancel", TARGET, "claim", "c2", "--reason", "again", "--yes")
    assert "claim c2 (attempt 2) of t1 was running and is cancelled" in cancelled.stdout


def test_tasks_tell_who_should_act_what_for_and_until_when(insurer: Project) -> None:
    drive(insurer)
    every: Any = insurer.json("saga", "tasks", TARGET)
    assert [(task["by"], task["id"], task["step"], task["deadline"]) for task in every] == [
        ("claims-manager", "c3", "approved", "forgotten"),
        ("claims-manager", "c2", "approved", "forgotten"),
        ("claims-desk", "c3", None, "forgotten"),
        ("director", "c1", "signed", "forgotten"),
    ]
    result = insurer.run("saga", "tasks", TARGET, "--by", "claims-desk", columns=140)
    assert "decide: it is partial, a part is missing" in result.stdout
    assert f"posthouse saga show {TARGET} claim c3 --tenant t1" in result.stdout
    assert "claims-desk: decide, for" in insurer.run("saga", "show", TARGET, "claim", "c3").stdout
    wrong = insurer.run("saga", "tasks", TARGET, "--by", "claims-manger")
    assert "no saga of claims waits for 'claims-manger'. Did you mean 'claims-manager'?" in wrong.stderr


LATE = """
import asyncio

from posthouse import Policy
from posthouse.app import app_of
from posthouse.watch.status import drained
from insurer import *


async def whole():
    async with claims.running():
        async with claims.transaction("t1", correlation="monday") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c 2"))
        await app_of(claims).sagas.cancel("claim", "c 2", "a mistake", tenant="t1")
        async with claims.transaction("t1", correlation="tuesday") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c 2"))
        async with claims.transaction("t1", correlation="monday") as tx:
            tx.publish(ClaimApproved(claim_id="c 2"))
        async with claims.transaction("t1", correlation="tuesday") as tx:
            tx.publish(ClaimClosed(claim_id="c 2"))
        await drained(claims)


def main():
    asyncio.run(whole())
"""

NEEDY = """    @undo(approved)
    def recall(self, event: Event[ClaimApproved], turn: Turn) -> None:
        raise ValueError("the bank is closed")

    @step(ClaimSigned"""


def test_an_older_attempt_that_waits_for_a_person_is_led_to_wherever_it_is_named(insurer: Project) -> None:
    text = (insurer.folder / "insurer.py").read_text(encoding="utf-8")
    broken = text.replace("    @step(ClaimSigned", NEEDY).replace(
        'operator="claims-desk",', 'operator="claims-desk",\n    policy=Policy(max_attempts=1),'
    )
    insurer.write("insurer.py", broken.replace("import Event,", "import Event, Policy,"))
    insurer.write("drive.py", LATE)
    drive(insurer)
    to_it = f"{TARGET} claim 'c 2' --tenant t1 --attempt 1"
    tasks = insurer.run("saga", "tasks", TARGET, columns=160).stdout
    assert "claim c 2 (attempt 1)" in tasks
    assert f"posthouse saga show {to_it}\n" in tasks
    listed = insurer.run("saga", "list", TARGET, "--status", "compensation_failed", columns=160).stdout
    assert "c 2 (attempt 1)" in listed
    newest = insurer.run("saga", "show", TARGET, "claim", "c 2", columns=160).stdout
    assert (
        "It is completed: nothing is left to do.\nIts attempt 1 is compensation_failed, and waits for claims-desk:"
        in newest
    )
    assert f"posthouse saga show {to_it}\n" in newest
    first = insurer.run("saga", "show", TARGET, "claim", "c 2", "--attempt", "1", columns=160).stdout
    assert f"posthouse saga retry {to_it}\n" in first
    refused = insurer.run("saga", "retry", TARGET, "claim", "c 2", columns=160)
    assert refused.exit_code == 2
    assert "there is nothing to retry" in refused.stderr
    assert f"posthouse saga show {to_it}\n" in refused.stderr


def test_nobody_has_a_task_when_nothing_waits(insurer: Project) -> None:
    insurer.write(
        "drive.py",
        "import asyncio\nfrom insurer import *\n\n\nasync def whole():\n    async with claims.running(): ...\n\n\n"
        "def main():\n    asyncio.run(whole())\n",
    )
    drive(insurer)
    assert insurer.run("saga", "tasks", TARGET).stdout == "nothing waits for people\n"


def test_the_index_is_filled_by_hand_and_the_operators_log_knows(insurer: Project) -> None:
    drive(insurer)
    text = (insurer.folder / "insurer.py").read_text(encoding="utf-8")
    insurer.write("insurer.py", text.replace('index=("policy_id",', 'index=("policy_id", "kind",').replace(
        '    policy_id: str = ""\n', '    policy_id: str = ""\n    kind: str = "car"\n'
    ))  # fmt: skip
    assert insurer.json("saga", "list", TARGET, "--where", "kind=car") == []
    filled = insurer.run("saga", "index", TARGET, "--by", "ann", "--why", "release 7")
    assert filled.stdout == "4 sagas can be found by more than before\n"
    found: Any = insurer.json("saga", "list", TARGET, "--where", "kind=car")
    assert len(found) == 4
    assert insurer.run("saga", "index", TARGET).stdout == "all can be found by everything\n"
    actions: Any = insurer.json("actions", TARGET)
    assert [(a["verb"], a["by"], a["why"]) for a in actions if a["verb"] == "saga index"] == [
        ("saga index", "ann", "release 7")
    ] * 4


def test_a_deadline_whose_turn_fails_is_told_with_the_command(insurer: Project) -> None:
    text = (insurer.folder / "insurer.py").read_text(encoding="utf-8")
    broken = text.replace("@deadline(600.0)", "@deadline(0.01)").replace(
        'turn.compensate("forgotten")', 'raise ValueError("the clerk is ill")'
    )
    policy = "from posthouse import Policy\n" + broken.replace(
        'operator="claims-desk",', 'operator="claims-desk",\n    policy=Policy(max_attempts=1),'
    ).replace("from __future__ import annotations\n", "")
    insurer.write("insurer.py", policy)
    insurer.write("drive.py", DRIVE.replace("await drained(claims)", "await failed()").replace(
        "def main", """async def failed():
    from posthouse.store import HeldFilter
    while len([held async for held in claims.held.find(HeldFilter(state="dead"))]) < 3:
        await asyncio.sleep(0.01)


def main"""))  # fmt: skip
    drive(insurer)
    shown = " ".join(insurer.run("saga", "show", TARGET, "claim", "c1", columns=200).stdout.split())
    assert "forgotten was due" in shown
    assert "its turn failed 1 time, it is a dead letter: ValueError: the clerk is ill" in shown
    assert f"mend the cause, then: posthouse held retry {TARGET} " in shown


def test_a_saga_is_traced_by_its_name_and_id(insurer: Project) -> None:
    drive(insurer)
    found: Any = insurer.json("trace", "--saga", "claim", "c2", TARGET)
    assert found["correlation"] == "tuesday"
    assert [event["type"].split(".")[-2] for event in found["events"]] == ["opened", "deadline_passed"]
    first: Any = insurer.json("trace", "--saga", "claim", "c2", TARGET, "--attempt", "1")
    assert first["correlation"] == "monday"
    wrong = insurer.run("trace", "--saga", "clam", "c2", TARGET)
    assert "no saga is called 'clam'. Did you mean 'claim'?" in wrong.stderr
    assert "there is no saga claim c9" in insurer.run("trace", "--saga", "claim", "c9", TARGET).stderr
    alone = insurer.run("trace", "c2", TARGET, "--attempt", "1")
    assert "--tenant and --attempt are those of a saga: name it with --saga" in alone.stderr
