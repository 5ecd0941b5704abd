"""Calls: a step asks the outside. What was noted in one turn is called outside of any, and answered in another."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from functools import partial
from typing import cast

import msgspec

from posthouse.contracts import EventType, Terms, declare
from posthouse.errors import Reject
from posthouse.events import Event, Subject
from posthouse.processes.saga.declared import OutsideCall
from posthouse.receiving.handler import Answer
from posthouse.seam.deadline import in_thread, on_loop
from posthouse.seam.masking import words_here
from posthouse.store.sagas import CallOut, SagaRef, SagaRow

CALLS_OUT = "calls out"
"""The field under which the index of the store holds sagas with calls that are not answered; no field of a class has this name."""
GRACE = 60.0
"""Seconds after which a call is overdue that should have been answered, or begun: nobody seems to make it."""


def overdue(row: SagaRow, now: float) -> float:
    """For how many seconds the answer to one of its calls is overdue; 0 where none is."""
    waits = [now - call.due_at for call in row.calls if not call.given_up]
    return max((wait for wait in waits if wait > GRACE), default=0.0)


class CallWanted(msgspec.Struct, kw_only=True):
    """The payload: whose call is to be made, and the turn that asked for it. Whether it still counts is told by the event's
    id."""

    saga: str
    id: str
    attempt: int = 1
    call: int


def call_event(service: str, namespace: str | None) -> EventType[CallWanted]:
    """`<service>.saga.call_wanted.v1`. It has no key: a call that takes long keeps no other waiting."""
    subject = Subject.build(namespace=namespace, service=service, aggregate="saga", verb="call_wanted")

    class Wanted(CallWanted):
        """A class of its own, for it belongs to one event."""

    return declare(Wanted, subject, key=None, topics="aggregate", terms=Terms(), internal=True)


class Answered(msgspec.Struct, frozen=True):
    """The outside has answered."""

    kept: msgspec.Raw


class Refused(msgspec.Struct, frozen=True):
    """The function said by `Reject` that nothing was done outside by this try, or by any, and that no try would help."""

    words: str
    every_try: bool = False


class Failed(msgspec.Struct, frozen=True):
    """Anything else: whether something was done outside, nobody knows."""

    error: Exception
    words: str


Outcome = Answered | Refused | Failed


class InHand(msgspec.Struct, frozen=True, kw_only=True):
    """A call that begins now: it is noted that it does. `more` is what the call of the step was answered that is undone."""

    of: SagaRef
    call: CallOut
    outside: OutsideCall
    event: Event[object]
    more: Answer = ()
    deadline: float


async def ask(asked: InHand) -> Outcome:
    """Call outside, while no transaction is open. Never raises what the function does."""
    function, step = asked.outside.function, asked.call.step
    work, name = (
        partial(function, asked.event, *asked.more),
        f"{step} (calling) of {asked.of}",
    )
    try:
        if inspect.iscoroutinefunction(function):
            answer = await on_loop(cast("Awaitable[object]", work()), asked.deadline, name)
        else:
            answer = await in_thread(work, asked.deadline, name)
    except Exception as error:
        answer = error
    return outcome_of(asked.outside, answer, asked.event)


def outcome_of(outside: OutsideCall, answer: object, *about: Event[object]) -> Outcome:
    """What a function returned, or raised, called about an event."""
    if isinstance(answer, Reject):
        return Refused(words_here(answer, *about), answer.every_try)
    try:
        if isinstance(answer, Exception):
            raise answer
        return Answered(outside.encode(answer))
    except Exception as error:
        return Failed(error, f"{type(error).__name__}: {words_here(error, *about)}")
