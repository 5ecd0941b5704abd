"""Answering: the turns around a call to the outside. It begins, is answered, refused, tried again, or given up."""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec.structs import replace

from posthouse.errors import ConfigurationError
from posthouse.events import Event
from posthouse.processes.saga.calls import Answered, CallWanted, Failed, InHand, Outcome, Refused
from posthouse.processes.saga.conductor import Conductor
from posthouse.processes.saga.course import NOT_ITS_OWN, Course
from posthouse.processes.saga.declared import Undo
from posthouse.processes.saga.recorded import event_of
from posthouse.processes.saga.transition import (
    call_of,
    compensating,
    given_up,
    known_after_all,
    takes_in_time,
    with_call,
    without_call,
)
from posthouse.receiving.handler import Answer
from posthouse.receiving.policy import Again, decide
from posthouse.seam.masking import words_here
from posthouse.sending import Tx
from posthouse.store.sagas import CallOut, SagaInput, SagaRow

GIVEN_UP = "given up"
"""How the note of a turn begins that gave a call up."""
EARLIER = "refused, and an earlier try may have been heard"
SPENT = "all tries were begun, and the last was cut short"


class Doubtful(Exception):
    """A try was refused, after others of which nobody knows what came."""


class Answering:
    """For the sagas of one type. Each method is a transaction; the call is made between `begin` and `answered`."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self.of = conductor.of

    async def begin(self, event: Event[object], tx: Tx) -> InHand | None:
        """Note that a try begins: from here on the call may have been heard. None when there is nothing to call: it was
        answered, or called off, or all its tries are spent."""
        row, call = await self._out(event, tx)
        if row is None or call is None or call.event_id != event.id or call.given_up:
            return None
        policy = self.of.policy_of(call.step)
        given = SagaInput(kind="call", type=call.step, event_id=event.id, call=call.turn)
        course = self._conductor.turn(tx, row, given)
        if call.tries >= policy.max_attempts:
            self._give_up(course, call, None, SPENT)
            await self._conductor.finish(course)
            return None
        if call.step not in self.of.calls:
            raise ConfigurationError(
                f"{row.ref}: the call of {call.step!r} was noted by another release, and {self.of.cls.__name__} makes none there "
                "any more: bring it back until no saga waits for it"
            )
        about, more = await self._about(course, call)
        due_at = course.now + policy.deadline
        doubtful = call.begun_at is not None  # whatever ended well, or did nothing, ended the call
        call = replace(call, tries=call.tries + 1, begun_at=course.now, due_at=due_at, doubtful=doubtful)
        course.row = with_call(course.row, call)
        course.note = f"try {call.tries}"
        await self._conductor.finish(course)
        return InHand(
            of=row.ref,
            call=call,
            outside=self.of.calls[call.step],
            event=about,
            more=more,
            deadline=policy.deadline,
        )

    async def answered(self, event: Event[object], tx: Tx, outcome: Outcome | None) -> None:
        """What came of a try; nothing is done when none was made, or somebody else has heard of it. An answer is one, whichever
        try it answers; a try that came to nothing tells nothing about a later one."""
        row, call = await self._out(event, tx)
        if outcome is None or row is None:
            return
        if call is None:
            await self._over(tx, row, cast("CallWanted", event.data).call, outcome)
            return
        if call.event_id != event.id and not isinstance(outcome, Answered):
            return
        given = await self._input(tx, row, call)
        match outcome:
            case Answered(kept):
                course = await self._heard(tx, row, call, replace(given, answer=kept))
            case Refused(words, every_try):
                refused = replace(given, error=words, refused=True, every_try=every_try)
                course = self._conductor.turn(tx, row, refused)
                await self._refused(course, call if not every_try else replace(call, doubtful=False), words)
            case Failed(error, words):
                course = self._conductor.turn(tx, row, replace(given, error=words))
                self._failed(course, call, error, words)
        await self._conductor.finish(course)

    async def _over(self, tx: Tx, row: SagaRow, number: int, outcome: Outcome) -> None:
        """An operator did by hand what the call was to do, while it was out: whoever looks should know that it was heard too."""
        if row.tombstone or call_of(row, number) is not None:
            return
        history = await tx.store.sagas.turns_in(tx.transaction, row)
        about = [turn for turn in history if turn.input.call == number]
        heard = any(turn.input.kind == "answer" and (turn.input.refused or not turn.input.error) for turn in about)
        if heard or not about:
            return
        given = SagaInput(kind="answer", type=about[-1].input.type, call=number)
        match outcome:
            case Answered(kept):
                given, came = replace(given, answer=kept), "it was answered, and has happened"
            case Refused(words):
                given, came = replace(given, error=words, refused=True), f"it was refused: {words}"
            case Failed(_, words):
                given, came = replace(given, error=words), f"nobody knows whether it was heard: {words}"
        course = self._conductor.turn(tx, row, given)
        course.pass_over(f"the call of {given.type} was over, done by hand; {came}", late=not takes_in_time(row))
        course.report(given.type, None, course.note, 0)
        await self._conductor.finish(course)

    async def _about(self, course: Course, call: CallOut) -> tuple[Event[object], Answer]:
        """The event that a call is about; with what the call of the step was answered, where that is undone."""
        if not call.undoes:
            noted = await course.turn_of(call.turn, call.step)
            return event_of(self.of, noted.input, course.row.tenant, noted.at), ()
        event, answer = await course.given_to(call.undoes)
        if event is None:
            raise ConfigurationError(f"{course.row.ref}: {call.step} calls outside, and its step has no event any more")
        return event, answer

    async def _input(self, tx: Tx, row: SagaRow, call: CallOut) -> SagaInput:
        """What a turn about an answer is given: of a step also its event, which its undo will be given."""
        if call.undoes:
            return SagaInput(kind="answer", type=call.step, call=call.turn)
        noted = await self._conductor.turn(tx, row, SagaInput(kind="call", type=call.step)).turn_of(
            call.turn, call.step
        )
        return replace(noted.input, kind="answer", call=call.turn)

    async def _heard(self, tx: Tx, row: SagaRow, call: CallOut, given: SagaInput) -> Course:
        """Run the step, or undo it where the answer is too late. A method that fails leaves nothing behind: the outside is
        asked again, and says the same."""
        course = self._conductor.turn(tx, row, given)
        answer = (self.of.calls[call.step].decode(given.answer),)
        course.row = known_after_all(row, call)
        if not call.undoes and not takes_in_time(row):
            await course.answered_late(call.step, event_of(self.of, given, row.tenant, course.now), answer)
            return course
        goes_on, about = False, list[Event[object]]()
        try:
            async with tx.savepoint():
                if call.undoes:
                    goes_on = await course.undo_answered(self._undo(call), answer)
                else:
                    about.append(event_of(self.of, given, row.tenant, course.now))
                    await course.run(call.step, about[0], answer)
                course.check()
        except NOT_ITS_OWN:
            raise
        except Exception as error:
            words = f"{type(error).__name__}: {words_here(error, *about)}"
            course = self._conductor.turn(tx, row, replace(given, answer=msgspec.Raw(b"null"), error=words))
            self._failed(course, call, error, words)
            return course
        if goes_on:
            await course.compensate()
        return course

    async def _refused(self, course: Course, call: CallOut, words: str) -> None:
        """Nothing was done outside: there is nothing to undo of this step, and all that was done before it is undone. An undo
        that is refused has failed. Of earlier tries a refusal says nothing: where one may have been heard, nobody knows."""
        if call.doubtful:
            words = f"{EARLIER}: {words}"
            self._failed(course, call, Doubtful(words), words)
            return
        course.row = known_after_all(course.row, call)
        course.note = f"refused: {words}"
        if call.undoes:
            course.undo_refused_outside(self._undo(call), words)
            return
        if takes_in_time(course.row):
            course.row = compensating(course.row, f"{call.step}: {words}")
        await course.go_on_without_calls()

    def _undo(self, call: CallOut) -> Undo:
        return next(undo for undo in self.of.undos.values() if undo.method == call.step)

    def _failed(self, course: Course, call: CallOut, error: Exception, words: str) -> None:
        follows = decide(self.of.policy_of(call.step), error, call.tries)
        if isinstance(follows, Again):
            course.note = f"try {call.tries} failed: {words}"
            course.report(call.step, error, words, call.tries, again=course.now + follows.seconds)
            course.ask(replace(call, error=words), after=follows.seconds)
        else:
            self._give_up(course, call, error, words)

    def _give_up(self, course: Course, call: CallOut, error: Exception | None, words: str) -> None:
        course.note = f"{GIVEN_UP} after {call.tries} tries: {words}"
        course.row = given_up(course.row, call, words)
        course.report(call.step, error, words, call.tries)

    async def _out(self, event: Event[object], tx: Tx) -> tuple[SagaRow | None, CallOut | None]:
        """The saga, locked, and the call that this event led to; None where it is not out any more."""
        wanted = event.data
        if not isinstance(wanted, CallWanted) or wanted.saga != self.of.name:
            return None, None
        row = await self._conductor.load(tx, wanted.id, attempt=wanted.attempt)
        return row, None if row is None else call_of(row, wanted.call)


def ask_again(course: Course) -> bool:
    """An operator wants what was given up, waits for its next try, or is not answered in time, to be tried now, with all its
    tries."""
    row = course.row
    stuck = [call for call in row.calls if call.given_up]
    if not stuck and row.status in ("running", "compensating"):
        stuck = [call for call in row.calls if call.error or call.due_at <= course.now]
    if stuck and not takes_in_time(row):
        course.row = replace(row, status="compensating")
    elif any(call.rests for call in stuck):
        course.row = replace(row, status="running")
    for call in stuck:
        course.ask(replace(call, tries=0, given_up=False, rests=False))
    return bool(stuck)


def settle_by_hand(course: Course) -> bool:
    """An operator knows what came of the calls that were given up, and has seen to it."""
    stuck = [call for call in course.row.calls if call.given_up]
    for call in stuck:
        course.row = without_call(course.row, call)
        if call.undoes is not None and takes_in_time(course.row):
            course.skip_undo()
    return bool(stuck)
