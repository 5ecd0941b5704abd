"""`posthouse saga`: what a person sees of processes, and what becomes of their word."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.cli.conftest import Project
from tests.unit.processes.saga import hotel

DRIVE = """
import asyncio
from contextlib import AsyncExitStack

from posthouse.watch.status import drained
from stay import *

SERVICES = (reservation, inventory, payment)


async def whole(failing):
    Weather.drop_hold_fails = failing
    async with AsyncExitStack() as stack:
        for service in SERVICES:
            await stack.enter_async_context(service.running())
        async with reservation.transaction("t1") as tx:
            for booking in ("paid", "reviewed", "failed", "held"):
                await reservation.start_saga(tx, BookingSaga(booking_id=booking))
        async with inventory.transaction("t1") as tx:
            for booking in ("paid", "reviewed", "failed"):
                tx.publish(AllocationCommitted(allocation_id=f"a-{booking}", booking_id=booking))
        await drained(*SERVICES)
        async with payment.transaction("t1") as tx:
            tx.publish(IntentCaptured(booking_id="paid"))
            tx.publish(ReviewOpened(booking_id="reviewed"))
            tx.publish(IntentFailed(booking="failed"))
        await drained(*SERVICES)
        async with payment.transaction("t1") as tx:
            tx.publish(IntentCaptured(booking_id="failed", cents=7))
        if failing:
            async with inventory.transaction("t1") as tx:
                tx.publish(AllocationReleased(allocation_id="a-failed", booking_id="failed"))
        await drained(*SERVICES)


def main(failing=0):
    asyncio.run(whole(failing))
"""

TARGET = "stay:reservation"


@pytest.fixture
def stay(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.syspath_prepend(str(tmp_path))
    text = Path(hotel.__file__).read_text(encoding="utf-8")
    project.write("stay.py", text.replace("POLICY = Policy(max_attempts=3", "POLICY = Policy(max_attempts=1"))
    project.write("drive.py", DRIVE)
    return project


def drive(stay: Project, failing: int = 0) -> None:
    stay.forget()
    importlib.import_module("drive").main(failing)
    stay.forget()


def test_the_list_shows_each_saga_in_a_line_and_the_sum(stay: Project) -> None:
    drive(stay)
    result = stay.run("saga", "list", TARGET, columns=100)
    assert result.exit_code == 0
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["SAGA", "ID", "TENANT", "STATUS", "LAST", "STEP", "FOR", "NEXT,", "OR", "WHY"]
    assert [line.split()[1:5] for line in lines[:4]] == [
        ["paid", "t1", "completed", "paid"],
        ["reviewed", "t1", "partial", "room_committed"],
        ["failed", "t1", "compensating", "room_committed"],
        ["held", "t1", "running", "hold"],
    ]
    assert "end of waiting in" in lines[2]
    assert "hold_expired in" in lines[3]
    assert "4 sagas of all kinds, all tenants: 1 compensating, 1 completed, 1 partial, 1 running" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_filters_narrow_the_list_and_one_that_finds_nothing_still_shows_the_sum(stay: Project) -> None:
    drive(stay)
    only: Any = stay.json("saga", "list", TARGET, "--status", "partial")
    assert [(row["id"], row["reason"]) for row in only] == [("reviewed", "under review")]
    nobody = stay.run("saga", "list", TARGET, "--tenant", "t9")
    assert "no saga fits\n4 sagas of all kinds, all tenants" in nobody.stdout


def test_a_saga_shows_state_deadlines_and_its_history_in_order(stay: Project) -> None:
    drive(stay)
    result = stay.run("saga", "show", TARGET, "booking", "failed", columns=100)
    assert result.exit_code == 0
    assert '"allocation_id": "a-failed"' in result.stdout
    assert "release_room of room_committed, which waits for hotel.inventory.allocation.released.v1" in result.stdout
    history = result.stdout.partition("History\n")[2].splitlines()
    kinds = [line.split("  ")[-2] for line in history if line[:3].strip().isdigit()]
    assert kinds == [
        "start hold",
        "event hotel.inventory.allocation.committed.v1 → room_committed",
        "event hotel.payment.intent.failed.v1 → payment_failed",
        "event hotel.payment.intent.captured.v1 → paid_too_late",
    ]
    assert "       undoes by release_room" in history
    assert "       came late" in history
    assert "It goes on when hotel.inventory.allocation.released.v1 has come" in result.stdout


def test_a_failed_compensation_says_what_to_do_and_a_retry_ends_it(stay: Project) -> None:
    drive(stay, failing=1)
    shown = stay.run("saga", "show", TARGET, "booking", "failed")
    assert "failed: drop_hold: RuntimeError: the hold would not drop" in shown.stdout
    assert "It cannot undo hold by itself." in shown.stdout
    assert f"posthouse saga retry {TARGET} booking failed --tenant t1" in shown.stdout
    again = stay.run("saga", "retry", TARGET, "booking", "failed", "--by", "anna")
    assert again.exit_code == 0
    assert "booking failed of t1 was compensation_failed and is compensated; drop_hold has run" in again.stdout
    assert "it says hotel.reservation.booking.cancelled.v1, which leaves with `posthouse run`" in again.stdout
    assert "It is compensated: nothing is left to do." in again.stdout
    history: Any = stay.json("saga", "show", TARGET, "booking", "failed")
    assert history["history"][-1]["input"] == {"kind": "operator", "type": "retry", "data": {"by": "anna"}}
    actions: Any = stay.json("actions", TARGET)
    (kept,) = actions
    assert (kept["verb"], kept["by"], kept["tenant"], kept["target"]) == (
        "saga retry",
        "anna",
        "t1",
        "saga booking failed",
    )
    assert kept["changed"] == {"status": ["compensation_failed", "compensated"]}


def test_status_ends_with_1_while_a_compensation_has_failed_and_names_those_that_wait_for_people(stay: Project) -> None:
    everybody = (TARGET, "stay:inventory", "stay:payment")
    drive(stay, failing=1)
    failed = stay.run("status", *everybody)
    assert failed.exit_code == 1, "what should be undone stands"
    assert "1 of the saga booking could not undo what they did: see `posthouse saga list" in failed.stdout
    assert "1 of the saga booking wait for somebody to do a part" in failed.stdout
    stay.run("saga", "retry", TARGET, "booking", "failed")
    after = stay.run("status", *everybody, "--json")
    said: Any = msgspec.json.decode(after.stdout)
    assert said["sagas"] == {"booking": {"partial": 1}}
    assert after.exit_code != 1, "a partial saga is shown, and waits"


def test_resume_goes_on_without_what_was_done_by_hand(stay: Project) -> None:
    drive(stay, failing=1)
    done: Any = stay.json(
        "saga", "resume", TARGET, "booking", "failed", "--note", "dropped at the desk", "--by", "anna"
    )
    assert (done["was"], done["status"]) == ("compensation_failed", "compensated")
    assert done["turn"]["input"]["data"] == {"by": "anna", "note": "dropped at the desk"}


def test_cancel_asks_first_and_then_undoes_everything(stay: Project) -> None:
    drive(stay)
    asked = stay.run("saga", "cancel", TARGET, "booking", "held", "--reason", "closed", input="n\n")
    assert asked.exit_code != 0
    assert "Undo every step of booking held?" in asked.stderr
    result = stay.run("saga", "cancel", TARGET, "booking", "held", "--reason", "closed", "--yes")
    assert "booking held of t1 was running and is cancelled; drop_hold has run" in result.stdout


def test_a_verb_that_does_not_fit_is_refused_in_words(stay: Project) -> None:
    drive(stay)
    result = stay.run("saga", "retry", TARGET, "booking", "paid")
    assert result.exit_code == 2
    assert "booking paid is completed: there is nothing to retry" in result.stderr


def test_a_misspelled_saga_gets_a_suggestion(stay: Project) -> None:
    for command in (
        ("list", TARGET, "--saga", "bookin"),
        ("show", TARGET, "bookin", "b1"),
        ("draw", TARGET, "--saga", "bookin"),
    ):
        result = stay.run("saga", *command)
        assert result.exit_code == 2
        assert "Did you mean 'booking'?" in result.stderr


def test_a_saga_that_is_not_there_is_named(stay: Project) -> None:
    stay.run("db", "upgrade", TARGET)
    result = stay.run("saga", "show", TARGET, "booking", "b9")
    assert result.exit_code == 2
    assert "there is no saga booking b9: see `posthouse saga list`" in result.stderr


def test_events_that_are_held_for_a_saga_are_shown_with_it(stay: Project) -> None:
    text = (stay.folder / "stay.py").read_text(encoding="utf-8")
    broken = text.replace('        turn.partial("under review")', '        raise ValueError("the reviewer is ill")')
    stay.write("stay.py", broken)
    drive(stay)
    result = stay.run("saga", "show", TARGET, "booking", "reviewed")
    assert "1  dead  hotel.payment.review.opened.v1  ValueError: the reviewer is ill" in result.stdout
    assert f"An event for it is held: posthouse held show {TARGET} 1" in result.stdout
    assert "the reviewer is ill" not in stay.run("saga", "show", TARGET, "booking", "paid").stdout


def test_the_id_of_two_tenants_needs_a_tenant(stay: Project) -> None:
    stay.write(
        "drive.py",
        DRIVE.replace(
            "booking_id=booking))",
            'booking_id=booking))\n        async with reservation.transaction("t2") as tx:\n'
            '            await reservation.start_saga(tx, BookingSaga(booking_id="held"))',
            1,
        ),
    )
    drive(stay)
    result = stay.run("saga", "show", TARGET, "booking", "held")
    assert "booking held is there for the tenants t1, t2: add --tenant" in result.stderr
    assert stay.run("saga", "show", TARGET, "booking", "held", "--tenant", "t2").exit_code == 0


def test_a_service_without_sagas_says_how_to_declare_one(project: Project) -> None:
    result = project.run("saga", "list", "shop:orders")
    assert result.exit_code == 2
    assert "orders declares no saga: declare one with @orders.saga(…)" in result.stderr


def test_a_saga_is_drawn_from_its_code(stay: Project) -> None:
    result = stay.run("saga", "draw", TARGET)
    assert result.exit_code == 0
    assert result.stdout.startswith("**booking** of reservation\n\n```mermaid\nstateDiagram-v2\n")


def test_a_release_that_fits_passes_the_check(stay: Project) -> None:
    drive(stay)
    result = stay.run("saga", "check", TARGET)
    assert (result.exit_code, result.stdout) == (0, "compared, of those that are not over: 3 of booking: all fit\n")
    stay.forget()
    assert stay.run("saga", "check", TARGET, "--all").stdout == result.stdout


def test_a_release_that_could_not_go_on_fails_the_check(stay: Project, tmp_path: Path) -> None:
    drive(stay)
    source = (tmp_path / "stay.py").read_text(encoding="utf-8")
    project_without = source.replace("def hold_expired", "def hold_ran_out").replace(
        "self.hold_expired", "self.hold_ran_out"
    )
    stay.write("stay.py", project_without)
    stay.forget()
    result = stay.run("saga", "check", TARGET, columns=200)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "cannot go on: booking: the deadline 'hold_expired' is armed, and BookingSaga does not declare it (1 of them, as held of t1)",
        "  bring it back until no saga has it, or let the release before run these to their end",
        "compared, of those that are not over: 3 of booking",
    ]
    stay.forget()
    told = msgspec.json.decode(stay.run("saga", "check", TARGET, "--json").stdout)
    assert (told["fits"], told["counts"], told["findings"][0]["id"]) == (False, {"booking": 3}, "held")


def test_histories_are_dumped_some_of_each_way_and_replayed(stay: Project, tmp_path: Path) -> None:
    drive(stay)
    result = stay.run("saga", "dump", TARGET, "--to", "histories.jsonl", "--each", "1", columns=200)
    assert (result.exit_code, result.stdout) == (0, "histories.jsonl: 4 of 4 sagas, by 4 ways\n")
    stay.forget()
    result = stay.run("saga", "replay", TARGET, "histories.jsonl", columns=200)
    assert (result.exit_code, result.stdout) == (0, "replayed 4 of booking: all as they were\n")
    source = (tmp_path / "stay.py").read_text(encoding="utf-8")
    stay.write("stay.py", source.replace("turn.clear(self.hold_expired)", "pass"))
    stay.forget()
    result = stay.run("saga", "replay", TARGET, "histories.jsonl", columns=200)
    assert result.exit_code == 1
    assert "booking failed of t1, turn 2 (event " in result.stdout
    assert result.stdout.endswith("replayed 4 of booking: 3 of them differ\n")


def test_an_empty_dump_is_no_pass(stay: Project, tmp_path: Path) -> None:
    drive(stay)
    result = stay.run("saga", "dump", TARGET, "--to", "histories.jsonl", "--tenant", "nobody")
    assert (result.exit_code, result.stdout) == (1, "none of 0 sagas fits: nothing was written\n")
    assert not (tmp_path / "histories.jsonl").exists()
    stay.write("histories.jsonl", "")
    stay.forget()
    result = stay.run("saga", "replay", TARGET, "histories.jsonl")
    assert (result.exit_code, result.stdout) == (1, "histories.jsonl holds no history: that proves nothing\n")
    stay.forget()
    result = stay.run("saga", "replay", TARGET, "nowhere.jsonl")
    assert (result.exit_code, "nowhere.jsonl cannot be read" in result.output) == (2, True)


EARLY = """
import asyncio
from contextlib import AsyncExitStack

from posthouse.watch.status import drained
from stay import *


async def whole():
    async with AsyncExitStack() as stack:
        for service in (reservation, payment):
            await stack.enter_async_context(service.running())
        async with payment.transaction("t1") as tx:
            tx.publish(IntentCaptured(booking_id="early", cents=7))
        await drained(reservation, payment)


def main():
    asyncio.run(whole())
"""


def test_events_that_came_early_are_seen_with_what_they_wait_for(stay: Project) -> None:
    stay.write("early.py", EARLY)
    stay.forget()
    importlib.import_module("early").main()
    stay.forget()
    assert "awaited" in stay.run("saga", "list", TARGET).output
    assert "1 early event" in stay.run("saga", "list", TARGET, "--status", "awaited").output
    shown = " ".join(stay.run("saga", "show", TARGET, "booking", "early").output.split())
    assert "hotel.payment.intent.captured.v1" in shown
    assert "waits for its start; a dead letter in 60 min" in shown
    assert "It was not started yet, and events came for it" in shown
    told = " ".join(stay.run("status", TARGET).output.split())
    assert "1 of the saga booking were not started, and events wait for them: see `posthouse saga list" in told
    (facts,) = msgspec.json.decode(stay.run("saga", "list", TARGET, "--json").output)
    assert [one["method"] for one in facts["waiting"]] == ["paid"]


BEHIND = """
import asyncio
from contextlib import AsyncExitStack

from posthouse import App, Event, Payload, Saga, Service, Turn, starts, step
from posthouse.watch.status import drained
from posthouse.store import HeldFilter

desk = Service("desk", namespace="hotel")
App(desk, store="sqlite:///desk.db", broker="embedded:///desk.log")

@desk.event("bell.rung.v1", key="guest_id")
class Rung(Payload):
    guest_id: str

@desk.saga("visit", correlate="guest_id", early_within=0.1)
class Visit(Saga):
    guest_id: str
    @starts
    def come(self, turn: Turn) -> None: ...
    @step(Rung)
    def rung(self, event: Event[Rung], turn: Turn) -> None: ...

async def ring():
    async with desk.transaction("t1") as tx:
        tx.publish(Rung(guest_id="g"))
    await drained(desk)

async def whole():
    async with desk.running():
        await ring()
        while not [held async for held in desk.held.find(HeldFilter(state="dead"))]:
            await drained(desk)
        async with desk.transaction("t1") as tx:
            await desk.start_saga(tx, Visit(guest_id="g"))
        await ring()
"""


def test_an_early_event_is_seen_to_wait_behind_a_dead_letter_with_what_to_do(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    project.write("behind.py", BEHIND)
    project.forget()
    asyncio.run(importlib.import_module("behind").whole())
    project.forget()
    shown = " ".join(project.run("saga", "show", "behind:desk", "visit", "g").output.split())
    todo = "a dead letter: posthouse held retry behind:desk 1, or posthouse held skip behind:desk 1"
    assert shown.count(todo) == 2
    assert f"waits for hotel.desk.bell.rung.v1, which came before it, {todo}" in shown
