"""Transitions: how a saga's row changes. Pure functions from a row to the next."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from posthouse.processes.saga.turn import Mark, Wait
from posthouse.store.sagas import Done, SagaRow, Undoing

RETRY_UNDO = "retry undo"
"""The library's own deadline: a failed undo runs again."""
UNDO_WITHIN = "undo within"
"""The library's own deadline: the fact that an undo waits for should have come."""


def with_step(row: SagaRow, done: Done) -> SagaRow:
    """A step is done. One that was done before is undone as often; where nothing is to be undone, it keeps its place."""
    return row if not done.undoable and done.step in row.steps else replace(row, done=(*row.done, done))


def standing_at(row: SagaRow) -> Done:
    """What is undone now, or next."""
    return row.done[-1] if row.undoing is None else row.undoing.of


def marked(row: SagaRow, mark: Mark | None, now: float) -> SagaRow:
    """What a method said about the saga as a whole."""
    match mark:
        case Mark("complete", note):
            return completed(row, now, note)
        case Mark("partial", reason):
            return replace(row, status="partial", reason=reason)
        case Mark("compensate", reason):
            return compensating(row, reason)
    return row


def completed(row: SagaRow, now: float, note: str = "") -> SagaRow:
    """The goal is reached."""
    return replace(row, status="completed", note=note or row.note, undoing=None, ended_at=now)


def compensating(row: SagaRow, reason: str, *, cancelled: bool = False) -> SagaRow:
    """From here on steps are undone."""
    return replace(row, status="compensating", reason=reason, cancelled=cancelled, undoing=None)


def undone(row: SagaRow) -> SagaRow:
    """The step that it stands at is out of the way."""
    at = standing_at(row)
    return replace(row, status="compensating", done=tuple(done for done in row.done if done != at), undoing=None)


def awaiting(row: SagaRow) -> SagaRow:
    """The undo was called, and its fact is awaited."""
    return replace(row, undoing=Undoing(of=standing_at(row), waiting=True))


def attempted(row: SagaRow, attempts: int, error: str) -> SagaRow:
    """The undo failed, and will run again."""
    return replace(row, undoing=Undoing(of=standing_at(row), attempts=attempts, error=error))


def failed(row: SagaRow, error: str) -> SagaRow:
    """The compensation rests for an operator; a fact that is awaited may still come."""
    at = row.undoing or Undoing(of=standing_at(row))
    return replace(row, status="compensation_failed", undoing=replace(at, error=error))


def all_undone(row: SagaRow, now: float) -> SagaRow:
    """Nothing is left to undo."""
    status = "cancelled" if row.cancelled else "compensated"
    return replace(row, status=status, undoing=None, ended_at=now)


def kept_deadlines(row: SagaRow, armed: Collection[str]) -> Collection[str]:
    """Which armed deadlines still count: of an ended saga none, and of one that compensates, or could not, only the
    library's own."""
    if row.ended or row.status == "compensation_failed":
        return ()
    if row.status == "compensating":
        return [name for name in armed if name in (RETRY_UNDO, UNDO_WITHIN)]
    return armed


def takes_in_time(row: SagaRow) -> bool:
    """Whether steps and reactions still run."""
    return row.status in ("running", "partial")


def rearmed(
    row: SagaRow, *, fired: str | None, cleared: Collection[str], set_for: Mapping[str, Wait]
) -> tuple[SagaRow, Mapping[str, Wait], list[str]]:
    """What becomes of deadlines at the end of a turn: the row with those that stay, those to arm with what they wait for,
    and those to cancel."""
    wanted = kept_deadlines(row, set_for)
    to_set = {name: wait for name, wait in set_for.items() if name in wanted}
    armed = [name for name in row.deadlines if name != fired and name not in cleared and name not in to_set]
    staying = kept_deadlines(row, armed)
    to_cancel = [n for n in row.deadlines if n != fired and n not in staying and n not in to_set]
    deadlines = {name: at for name, at in row.deadlines.items() if name in staying}
    return replace(row, deadlines=deadlines), to_set, to_cancel
