"""Advice: what happens next to a saga, and the commands that a person may type about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posthouse.processes import SagaType
from posthouse.processes.saga import advice as known
from posthouse.processes.saga.tasks import HELP
from posthouse.store.sagas import SagaRow


def advice(of: SagaType, row: SagaRow, target: str, held: Sequence[int] = ()) -> Iterator[str]:
    """One sentence each, with the command to type where there is one."""
    for one in known.advice(of, row):
        if one.press is None:
            yield one.words
        else:
            reason = " --reason …" if one.press == "cancel" else ""
            yield f"  {one.words}: posthouse saga {one.press} {target} {of.asked_as(row)}{reason}"
    if held and not any(call.given_up for call in row.calls):
        yield f"An event for it is held: posthouse held show {target} {held[0]}"


def of_others(of: SagaType, others: Sequence[SagaRow], target: str) -> Iterator[str]:
    """What of other attempts of the same id waits for an operator."""
    for row in others:
        if HELP in row.tasks:
            yield f"Its attempt {row.attempt} is {row.status}, and waits for {of.operator}:"
            yield f"  posthouse saga show {target} {of.asked_as(row)}"
