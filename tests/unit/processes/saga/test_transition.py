"""How a saga's row changes, without any store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from posthouse.processes.saga.transition import (
    RETRY_UNDO,
    UNDO_WITHIN,
    all_undone,
    attempted,
    awaiting,
    compensating,
    completed,
    failed,
    marked,
    rearmed,
    takes_in_time,
    undone,
    with_step,
)
from posthouse.processes.saga.turn import Mark
from posthouse.store.sagas import ENDED, Armed, Done, SagaRef, SagaRow, SagaStatus, Undoing, timer_name

A, B = Done("a", 1), Done("b", 2)

RUNNING = SagaRow(saga="s", tenant="t", id="1", done=(A, B), deadlines={"x": Armed("e", 1.0), "y": Armed("f", 2.0)})
STATUSES: tuple[SagaStatus, ...] = (
    "running",
    "compensating",
    "completed",
    "compensated",
    "partial",
    "compensation_failed",
    "cancelled",
)


@pytest.mark.parametrize("status", STATUSES)
def test_only_running_and_partial_sagas_take_events_in_time(status: SagaStatus) -> None:
    row = replace(RUNNING, status=status)
    assert takes_in_time(row) == (status in ("running", "partial"))
    assert row.ended == (status in ("completed", "compensated", "cancelled"))
    assert not (row.ended and takes_in_time(row))


def test_a_step_is_done_as_often_as_it_must_be_undone() -> None:
    assert with_step(RUNNING, Done("c", 3)).steps == ("a", "b", "c")
    assert with_step(RUNNING, Done("a", 3)) == RUNNING
    assert with_step(RUNNING, Done("a", 3, undoable=True)).done == (A, B, Done("a", 3, undoable=True))


def test_what_a_method_says_is_what_becomes_of_the_saga() -> None:
    assert marked(RUNNING, None, 5.0) == RUNNING
    done = marked(RUNNING, Mark("complete", "well"), 5.0)
    assert (done.status, done.note, done.ended_at) == ("completed", "well", 5.0)
    rests = marked(RUNNING, Mark("partial", "no key"), 5.0)
    assert (rests.status, rests.reason, rests.ended_at) == ("partial", "no key", None)
    back = marked(RUNNING, Mark("compensate", "unpaid"), 5.0)
    assert (back.status, back.reason, back.cancelled, back.ended_at) == ("compensating", "unpaid", False, None)


def test_undos_come_off_the_end_until_nothing_is_left() -> None:
    row = compensating(RUNNING, "why")
    row = undone(attempted(row, 2, "oh"))
    assert (row.done, row.undoing) == ((A,), None)
    row = awaiting(row)
    assert row.undoing == Undoing(of=A, waiting=True)
    row = undone(row)
    assert (row.done, row.undoing) == ((), None)
    assert all_undone(row, 9.0).status == "compensated"
    assert all_undone(replace(row, cancelled=True), 9.0).status == "cancelled"
    assert all_undone(row, 9.0).ended_at == 9.0


def test_a_failed_compensation_remembers_where_it_stands_and_what_it_waits_for() -> None:
    row = failed(attempted(compensating(RUNNING, "why"), 3, "oh"), "given up")
    assert (row.status, row.undoing) == ("compensation_failed", Undoing(of=B, attempts=3, error="given up"))
    waiting = failed(awaiting(compensating(RUNNING, "why")), "never came")
    assert waiting.undoing == Undoing(of=B, waiting=True, error="never came")
    assert undone(waiting).status == "compensating"


def test_deadlines_that_nobody_touched_stay() -> None:
    row, to_set, to_cancel = rearmed(RUNNING, fired=None, cleared=(), set_for={})
    assert (row, to_set, to_cancel) == (RUNNING, {}, [])


def test_what_fired_is_gone_and_needs_no_cancelling() -> None:
    row, to_set, to_cancel = rearmed(RUNNING, fired="x", cleared=(), set_for={})
    assert ([*row.deadlines], to_set, to_cancel) == (["y"], {}, [])


def test_what_fired_may_be_set_again() -> None:
    row, to_set, to_cancel = rearmed(RUNNING, fired="x", cleared=(), set_for={"x": 3.0})
    assert ([*row.deadlines], to_set, to_cancel) == (["y"], {"x": 3.0}, [])


def test_what_is_cleared_is_cancelled_and_what_is_moved_is_only_set() -> None:
    row, to_set, to_cancel = rearmed(RUNNING, fired=None, cleared={"x", "never set"}, set_for={"y": 3.0})
    assert ([*row.deadlines], to_set, to_cancel) == ([], {"y": 3.0}, ["x"])


@pytest.mark.parametrize("status", [*ENDED, "compensation_failed"])
def test_nothing_is_armed_after_the_end(status: SagaStatus) -> None:
    row, to_set, to_cancel = rearmed(replace(RUNNING, status=status), fired=None, cleared=(), set_for={"z": 1.0})
    assert (row.deadlines, to_set, to_cancel) == ({}, {}, ["x", "y"])


def test_a_saga_that_compensates_keeps_only_the_librarys_own_deadlines() -> None:
    row = replace(RUNNING, status="compensating", deadlines={**RUNNING.deadlines, UNDO_WITHIN: Armed("g", 3.0)})
    left, to_set, to_cancel = rearmed(row, fired=None, cleared=(), set_for={"z": 1.0, RETRY_UNDO: 2.0})
    assert ([*left.deadlines], to_set, to_cancel) == ([UNDO_WITHIN], {RETRY_UNDO: 2.0}, ["x", "y"])


def test_a_completed_saga_keeps_the_note_that_it_had() -> None:
    assert completed(replace(RUNNING, note="before"), 1.0).note == "before"
    assert completed(replace(RUNNING, note="before"), 1.0, "now").note == "now"


def test_no_two_deadlines_have_the_same_timer_whatever_is_in_an_id() -> None:
    ids, deadlines = ("b1", "b1 stop", "stop waiting b1", "waiting b1"), ("waiting", "stop", "stop waiting", "call 1")
    names = {timer_name(SagaRef("booking", id), deadline) for id in ids for deadline in deadlines}
    assert len(names) == len(ids) * len(deadlines)
