"""Transitions: how a saga's row changes. Pure functions from a row to the next."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from posthouse.processes.saga.turn import Mark, Wait
from posthouse.store.sagas import STOP_WAITING, CallOut, Done, SagaInput, SagaRow, SagaStatus, Undoing

RETRY_UNDO = "retry undo"
"""The library's own deadline: a failed undo runs again."""
UNDO_WITHIN = "undo within"
"""The library's own deadline: the fact that an undo waits for should have come."""
WAKE = "wake"
"""What is said at once, rather than at a deadline: the turn of events that waited has come."""


def with_step(row: SagaRow, done: Done) -> SagaRow:
    """A step is done. One that was done before is undone as often; where nothing is to be undone, it keeps its place."""
    return row if not done.undoable and done.step in row.standing else replace(row, done=(*row.done, done))


def next_undo(row: SagaRow) -> Done | None:
    """What is undone now, or next; None when nothing is left: of a saga that had ended, what came late is undone alone."""
    if row.undoing is not None:
        return row.undoing.of
    return next((done for done in reversed(row.done) if row.ended_as is None or done.late), None)


def standing_at(row: SagaRow) -> Done:
    """What is undone now, or next."""
    return next_undo(row) or row.done[-1]


def marked(row: SagaRow, mark: Mark | None, now: float) -> SagaRow:
    """What a method said about the saga as a whole."""
    match mark:
        case Mark("complete", note):
            return completed(row, now, note)
        case Mark("partial", reason):
            calls = tuple(replace(call, rests=False) for call in row.calls)
            return replace(row, status="partial", reason=reason, calls=calls)
        case Mark("compensate", reason):
            return compensating(row, reason)
    return row


def marked_late(row: SagaRow, mark: Mark | None, now: float) -> SagaRow:
    """What a method said that takes what comes late. Steps that are undone already, or are about to be, are not done again;
    and what came late before is still undone."""
    match mark:
        case Mark("compensate", reason):
            if "completed" not in (row.status, row.ended_as):
                return row
            return replace(_undoes_on(row), reason=reason, ended_as=None)
        case Mark("partial", reason):
            undoing = row.undoing if under_way(row) else None
            return replace(row, status="partial", reason=reason, undoing=undoing, ended_as=None, ended_at=None)
    return marked(row, mark, now)


def under_way(row: SagaRow) -> bool:
    """Whether the world was asked for the undo that it stands at: whatever else is decided, that one is seen through."""
    at = row.undoing
    return at is not None and (at.waiting or any(call.undoes == at.of for call in row.calls))


def _undoes_on(row: SagaRow) -> SagaRow:
    """Something is left to undo. An undo that failed for good stays for an operator."""
    rests = row.status == "compensation_failed" and row.undoing is not None
    return replace(row, status="compensation_failed" if rests else "compensating", ended_at=None)


def came_late(row: SagaRow, done: Done) -> SagaRow:
    """A step whose event came late is to be undone; then the saga ends again as it had ended."""
    row = replace(row, done=(*row.done, done))
    return replace(row, status="compensating", ended_as=row.status, ended_at=None) if row.ended else row


def completed(row: SagaRow, now: float, note: str = "") -> SagaRow:
    """The goal is reached. What came late before, and the undo that is under way, are undone first."""
    kept = row.undoing is not None and (row.undoing.of.late or under_way(row))
    row = replace(row, note=note or row.note, undoing=row.undoing if kept else None)
    if kept or any(done.late for done in row.done):
        return replace(_undoes_on(row), ended_as="completed")
    return replace(row, status="completed", ended_as=None, ended_at=now)


def compensating(row: SagaRow, reason: str, *, cancelled: bool = False) -> SagaRow:
    """From here on steps are undone; one that is being undone already is not asked for again."""
    undoing = row.undoing if under_way(row) else None
    return replace(row, status="compensating", reason=reason, cancelled=cancelled, undoing=undoing)


def undone(row: SagaRow) -> SagaRow:
    """The step that it stands at is out of the way."""
    at = standing_at(row)
    status = row.status if takes_in_time(row) else "compensating"
    return replace(row, status=status, done=tuple(done for done in row.done if done != at), undoing=None)


def undoing_now(row: SagaRow) -> SagaRow:
    """Its undo has begun."""
    return replace(row, undoing=Undoing(of=standing_at(row)))


def awaiting(row: SagaRow) -> SagaRow:
    """The undo was called, and its fact is awaited."""
    return replace(row, undoing=Undoing(of=standing_at(row), waiting=True))


def forestalled(row: SagaRow, fact: str) -> SagaRow:
    """The fact that the undo will wait for has come while its call is out; what says that it is undone outweighs what says that
    it will not be."""
    return row if row.undoing is None else replace(row, undoing=replace(row.undoing, fact=fact))


def attempted(row: SagaRow, attempts: int, error: str) -> SagaRow:
    """The undo failed, and will run again."""
    return replace(row, undoing=Undoing(of=standing_at(row), attempts=attempts, error=error))


def failed(row: SagaRow, error: str) -> SagaRow:
    """The compensation rests for an operator; a fact that is awaited may still come. Where one decides about the saga anyhow, the
    undo is as if it had not been asked for."""
    at = row.undoing or Undoing(of=standing_at(row))
    if takes_in_time(row):
        return replace(row, undoing=Undoing(of=at.of, error=error))
    return replace(row, status="compensation_failed", undoing=replace(at, error=error))


def all_undone(row: SagaRow, now: float) -> SagaRow:
    """Nothing is left to undo."""
    status = row.ended_as or ("cancelled" if row.cancelled else "compensated")
    return replace(row, status=status, undoing=None, ended_as=None, ended_at=now)


UNDO_DEADLINES = (RETRY_UNDO, UNDO_WITHIN)
OWN_DEADLINES = (*UNDO_DEADLINES, STOP_WAITING)


def keeps_deadline(row: SagaRow, name: str, *, late: bool = False) -> bool:
    """Whether a deadline still counts: of an ended saga only one that was set `late`, and the library's own while it
    compensates."""
    if name == STOP_WAITING:
        return bool(row.waiting)
    return row.status == "compensating" if name in UNDO_DEADLINES else late or takes_in_time(row)


def takes_in_time(row: SagaRow) -> bool:
    """Whether steps and reactions still run."""
    return row.status in ("running", "partial")


def rearmed(
    row: SagaRow, *, fired: str | None, cleared: Collection[str], set_for: Mapping[str, Wait], late: bool = False
) -> tuple[SagaRow, Mapping[str, Wait], list[str]]:
    """What becomes of deadlines at the end of a turn: the row with those that stay, those to arm with what they wait for,
    and those to cancel. What is set `late` is armed however the saga stands."""
    to_set = {name: wait for name, wait in set_for.items() if keeps_deadline(row, name, late=late)}
    staying = {
        name: armed
        for name, armed in row.deadlines.items()
        if name not in (fired, *cleared, *to_set) and keeps_deadline(row, name, late=armed.late)
    }
    to_cancel = [name for name in row.deadlines if name != fired and name not in staying and name not in to_set]
    return replace(row, deadlines=staying), to_set, to_cancel


def call_of(row: SagaRow, turn: int) -> CallOut | None:
    """The call that was asked for in a turn, if it is still out."""
    return next((call for call in row.calls if call.turn == turn), None)


def with_call(row: SagaRow, call: CallOut) -> SagaRow:
    """A call is out, or stands otherwise than before."""
    others = [other for other in row.calls if other.turn != call.turn]
    return replace(row, calls=(*others, call))


def without_call(row: SagaRow, call: CallOut) -> SagaRow:
    """A call is not out any more."""
    return replace(row, calls=tuple(other for other in row.calls if other.turn != call.turn))


def without_undo(row: SagaRow) -> SagaRow:
    """The undo that it stands at is done otherwise: what its call is answered changes nothing any more."""
    at = standing_at(row)
    return undone(replace(row, calls=tuple(call for call in row.calls if call.undoes != at)))


def without_unbegun(row: SagaRow) -> SagaRow:
    """Calls of steps that never began are not made: nothing has happened outside."""
    return replace(row, calls=tuple(call for call in row.calls if call.begun_at is not None or call.undoes))


def put_off(row: SagaRow) -> SagaRow:
    """No saga ends while a call is out: it waits for the answer, which is undone, and ends then as it would have now. Calls that
    never began are not made."""
    if not row.ended or not (row := without_unbegun(row)).calls:
        return row
    unknown = any(call.given_up for call in row.calls)
    status: SagaStatus = "compensation_failed" if unknown else "compensating"
    return replace(row, status=status, ended_as=row.status, ended_at=None)


def known_after_all(row: SagaRow, call: CallOut) -> SagaRow:
    """A call is not out any more; where the saga rested because nobody knew of it, it goes on."""
    row = without_call(row, call)
    rests = call.rests and row.status == "partial" and not any(other.given_up for other in row.calls)
    return replace(row, status="running", reason="") if rests else row


def given_up(row: SagaRow, call: CallOut, words: str) -> SagaRow:
    """Nobody knows what came of a call: the saga rests for an operator."""
    rests = row.status == "running" or any(other.rests for other in row.calls)
    row = with_call(row, replace(call, given_up=True, error=words, due_at=0.0, rests=rests))
    if row.status == "partial" and not rests:
        return row
    if takes_in_time(row):
        return replace(row, status="partial", reason=f"nobody knows whether the call of {call.step} was heard: {words}")
    return replace(row, status="compensation_failed")


def done_by(row: SagaRow, given: SagaInput, given_events: Collection[str]) -> SagaRow:
    """Steps that the turn that ends now has done are noted with its event: the next release sees whether it can undo them."""
    if given.kind not in ("event", "answer"):
        return row

    def noted(done: Done) -> Done:
        if done.turn != row.turn + 1 or done.step not in given_events:
            return done
        return replace(done, event=given.type, answered=given.kind == "answer")

    undoing = None if row.undoing is None else replace(row.undoing, of=noted(row.undoing.of))
    calls = (replace(call, undoes=noted(call.undoes)) if call.undoes else call for call in row.calls)
    return replace(row, done=tuple(map(noted, row.done)), undoing=undoing, calls=tuple(calls))
