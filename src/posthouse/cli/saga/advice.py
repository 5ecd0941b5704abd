"""Advice: what happens next to a saga, and what a person may do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posthouse.clock import lasting
from posthouse.processes import SagaType
from posthouse.processes.saga.tasks import HELP
from posthouse.store.sagas import SagaRow


def advice(of: SagaType, row: SagaRow, target: str, held: Sequence[int] = ()) -> Iterator[str]:
    """One sentence each, with the command to type where there is one."""
    name = f"{target} {of.asked_as(row)}"
    if unknown := [call.step for call in row.calls if call.given_up]:
        yield f"Nobody knows whether the call of {' and '.join(unknown)} was heard: do not take it for failed."
        yield f"  ask again, with the same key: posthouse saga retry {name}"
        yield f"  you know, and have seen to it by hand: posthouse saga resume {name}"
        if row.status == "partial":
            yield f"  undo everything else, once it is known: posthouse saga cancel {name} --reason …"
        return
    match row.status:
        case "completed" | "compensated" | "cancelled":
            yield f"It is {row.status}: nothing is left to do."
        case "compensation_failed":
            yield f"It cannot undo {row.undoing.step if row.undoing is not None else 'its steps'} by itself."
            yield f"  mend the cause, then: posthouse saga retry {name}"
            yield f"  or do it by hand, then: posthouse saga resume {name}"
        case "partial":
            yield f"A part could not be done{f': {row.reason}' if row.reason else ''}. It still takes events."
            if of.partial_retry is not None:
                yield f"  try it again: posthouse saga retry {name}"
            yield f"  it was done by hand: posthouse saga resume {name}"
            yield f"  undo everything: posthouse saga cancel {name} --reason …"
        case "awaited":
            yield "It was not started yet, and events came for it: they are taken when it is, or are dead letters in the end."
        case "compensating":
            yield from _compensating(of, row, name)
        case "running":
            yield from _running(of, row, name)
    if held:
        yield f"An event for it is held: posthouse held show {target} {held[0]}"


def of_others(of: SagaType, others: Sequence[SagaRow], target: str) -> Iterator[str]:
    """What of other attempts of the same id waits for an operator."""
    for row in others:
        if HELP in row.tasks:
            yield f"Its attempt {row.attempt} is {row.status}, and waits for {of.operator}:"
            yield f"  posthouse saga show {target} {of.asked_as(row)}"


def _compensating(of: SagaType, row: SagaRow, name: str) -> Iterator[str]:
    undoing = row.undoing
    undo = None if undoing is None else of.undos.get(undoing.step)
    if undoing is not None and undoing.waiting and undo is not None and undo.until is not None:
        yield f"It goes on when {undo.until.name} has come; if that takes longer than {lasting(undo.within)}, it fails."
        yield f"  ask for it again: posthouse saga retry {name}"
        yield f"  it was done by hand: posthouse saga resume {name}"
    elif undoing is not None and undoing.attempts:
        yield "The undo runs again by itself."
        yield f"  now: posthouse saga retry {name}"
        yield f"  it was done by hand: posthouse saga resume {name}"
    elif row.calls:
        yield f"It waits for the answer to the call of {', '.join(call.step for call in row.calls)}, and undoes that first."
    else:
        yield "It undoes its steps, last one first."


def _running(of: SagaType, row: SagaRow, name: str) -> Iterator[str]:
    out = [call.step for call in row.calls]
    if out:
        yield f"It waits for the answer to the call of {', '.join(out)}."
    begun = {*row.steps, *out}
    steps = [take for take in of.takes if take.kind == "step" and take.method not in begun]
    missing = [take.event_type.name for take in steps if not of.missing(take.method, row.steps)]
    if missing or not out:
        yield f"It waits for {' or '.join(missing)}." if missing else "It waits for an event or a deadline."
    yield f"  undo everything: posthouse saga cancel {name} --reason …"
