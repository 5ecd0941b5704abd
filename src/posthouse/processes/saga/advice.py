"""Advice: what happens next to a saga, and what a person may do about it. Pure functions of a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from posthouse.clock import lasting
from posthouse.processes.saga.declared import SagaType
from posthouse.store.sagas import SagaRow

Verb = Literal["retry", "resume", "cancel"]
"""What an operator may do with a saga."""


class Advice(msgspec.Struct, frozen=True):
    """A sentence; or, with a `press`, what doing that would mean."""

    words: str
    press: Verb | None = None


def advice(of: SagaType, row: SagaRow) -> Iterator[Advice]:
    """How it stands, in sentences, and what may be done about it."""
    if unknown := [call.step for call in row.calls if call.given_up]:
        yield Advice(f"Nobody knows whether the call of {' and '.join(unknown)} was heard: do not take it for failed.")
        yield Advice("ask again, with the same key", "retry")
        yield Advice("you know, and have seen to it by hand", "resume")
        if row.status == "partial":
            yield Advice("undo everything else, once it is known", "cancel")
        return
    match row.status:
        case "completed" | "compensated" | "cancelled":
            yield Advice(f"It is {row.status}: nothing is left to do.")
        case "compensation_failed":
            yield Advice(f"It cannot undo {row.undoing.step if row.undoing is not None else 'its steps'} by itself.")
            yield Advice("mend the cause, then", "retry")
            yield Advice("or do it by hand, then", "resume")
        case "partial":
            yield Advice(f"A part could not be done{f': {row.reason}' if row.reason else ''}. It still takes events.")
            if of.partial_retry is not None:
                yield Advice("try it again", "retry")
            yield Advice("it was done by hand", "resume")
            yield Advice("undo everything", "cancel")
        case "awaited":
            yield Advice(
                "It was not started yet, and events came for it: they are taken when it is, or are dead letters in the end."
            )
        case "compensating":
            yield from _compensating(of, row)
        case "running":
            yield from _running(of, row)


def _compensating(of: SagaType, row: SagaRow) -> Iterator[Advice]:
    undoing = row.undoing
    undo = None if undoing is None else of.undos.get(undoing.step)
    if undoing is not None and undoing.waiting and undo is not None and undo.until is not None:
        yield Advice(
            f"It goes on when {undo.until.name} has come; if that takes longer than {lasting(undo.within)}, it fails."
        )
        yield Advice("ask for it again", "retry")
        yield Advice("it was done by hand", "resume")
    elif undoing is not None and undoing.attempts:
        yield Advice("The undo runs again by itself.")
        yield Advice("now", "retry")
        yield Advice("it was done by hand", "resume")
    elif row.calls:
        yield Advice(
            f"It waits for the answer to the call of {', '.join(call.step for call in row.calls)}, and undoes that first."
        )
    else:
        yield Advice("It undoes its steps, last one first.")


def _running(of: SagaType, row: SagaRow) -> Iterator[Advice]:
    out = [call.step for call in row.calls]
    if out:
        yield Advice(f"It waits for the answer to the call of {', '.join(out)}.")
    begun = {*row.steps, *out}
    steps = [take for take in of.takes if take.kind == "step" and take.method not in begun]
    missing = [take.event_type.name for take in steps if not of.missing(take.method, row.steps)]
    if missing or not out:
        yield Advice(f"It waits for {' or '.join(missing)}." if missing else "It waits for an event or a deadline.")
    yield Advice("undo everything", "cancel")
