"""Course: one turn of one saga while it runs, from the locked row to the row that is saved."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import cast

import msgspec
from msgspec.structs import replace

from posthouse.errors import (
    CommitUnknown,
    ConfigurationError,
    DeadlineExceeded,
    StoreCollision,
    StoreFull,
    StoreUnavailable,
    TransactionClosed,
)
from posthouse.events import Event
from posthouse.processes.calendar import Working
from posthouse.processes.saga.calls import CALLS_OUT, CallWanted
from posthouse.processes.saga.deadlines import DeadlinePassed
from posthouse.processes.saga.declared import SagaType, Undo
from posthouse.processes.saga.recorded import event_of, said_in
from posthouse.processes.saga.saga import Saga
from posthouse.processes.saga.tasks import index_field, open_tasks
from posthouse.processes.saga.transition import (
    OWN_DEADLINES,
    RETRY_UNDO,
    UNDO_DEADLINES,
    UNDO_WITHIN,
    WAKE,
    all_undone,
    attempted,
    awaiting,
    call_of,
    came_late,
    completed,
    done_by,
    failed,
    forestalled,
    marked,
    marked_late,
    next_undo,
    put_off,
    rearmed,
    standing_at,
    takes_in_time,
    undoing_now,
    undone,
    with_call,
    with_step,
    without_unbegun,
    without_undo,
)
from posthouse.processes.saga.turn import Turn, Wait
from posthouse.processes.saga.waiting import changed, woken
from posthouse.receiving.handler import Answer
from posthouse.receiving.policy import Again, decide
from posthouse.seam import Failure
from posthouse.seam.masking import words_here
from posthouse.sending import Tx
from posthouse.sending.transaction import Mark as SaidBefore
from posthouse.store.sagas import STOP_WAITING, Armed, CallOut, Done, SagaInput, SagaRow, SagaTurn, Waiting, timer_name

NOT_ITS_OWN = (StoreUnavailable, StoreFull, CommitUnknown, TransactionClosed, DeadlineExceeded)
"""What no undo can be blamed for: the whole turn is rolled back and comes again."""

# An undo that fails takes back what it wrote, and nothing else.
SAVEPOINT = "SAVEPOINT posthouse_undo"
BACK = "ROLLBACK TO SAVEPOINT posthouse_undo"
RELEASE = "RELEASE SAVEPOINT posthouse_undo"


class Course:
    """One turn. Its steps are called in order, `finish` saves what came of them."""

    def __init__(
        self, of: SagaType, row: SagaRow, tx: Tx, now: float, given: SagaInput, *, fired: str | None = None
    ) -> None:
        self.of = of
        self.row = row
        self.note = ""
        self.late = False
        self.waits_for = ""
        self._saga: Saga | None = None
        self._tx = tx
        self.now = now
        self._given = given
        self._event: Event[object] | None = None
        self._answer: Answer = ()
        self._asking: dict[int, float] = {}
        """Calls to be made, by the turn that asked for them, after so many seconds."""
        self._history: Sequence[SagaTurn] | None = None
        self._fired = fired
        self._before = tx.mark()
        self._method = ""
        self._cleared: set[str] = set()
        self._set_for: dict[str, Wait] = {}
        self._steps: list[str] = []
        self._undone: list[str] = []
        self._requests: dict[str, Done] = {}
        """By the id of an event that an undo published: what it undoes."""
        self._undo_failed = ""

    @property
    def saga(self) -> Saga:
        """The state, read when a method needs it: one that nobody can read any more keeps nobody from noting what is late."""
        if self._saga is None:
            self._saga = self.of.decode(self.row.state, self.row.id)
        return self._saga

    async def run(self, method: str, event: Event[object] | None = None, answer: Answer = ()) -> None:
        """Call a method, note a step that it is, run the joins that waited for it, and do what was said about the saga. Of a
        step that asks the outside first, only note that: it is run when there is an answer."""
        if method in self.of.calls and not answer:
            self.ask(CallOut(step=method, turn=self.row.turn + 1))
            self.note = f"calls {self.of.calls[method].name}"
            return
        self._event, self._answer = event, answer
        await self._run(method, event, answer)
        while takes_in_time(self.row) and (join := self._next_join()) is not None:
            await self._run(join)
        if self.row.status == "compensating":
            await self.compensate()

    def ask(self, call: CallOut, after: float = 0.0) -> None:
        """A call is to be made, after so many seconds: the saga says so to itself when this turn is committed."""
        self.row = with_call(self.row, call)
        self._asking[call.turn] = after

    async def answered_late(self, step: str, event: Event[object], answer: Answer) -> None:
        """A step was done outside when the saga compensated already, or had ended: it is undone."""
        self.late, self._event, self._answer = True, event, answer
        if step in self.of.undone_late:
            self.row = came_late(self.row, Done(step, self.row.turn + 1, late=True, undoable=True))
        else:
            self.note = f"came late: the saga was {self.row.status}"
        await self.go_on_without_calls()

    async def go_on_without_calls(self) -> None:
        """A call that the compensation may have waited for is out of the way."""
        if self.row.status in ("compensating", "compensation_failed") and self.row.undoing is None:
            await self.compensate()

    async def _run(self, method: str, event: Event[object] | None = None, answer: Answer = ()) -> None:
        turn = await self._call(method, event, answer)
        if method in self.of.steps:
            before = self.row
            done = Done(method, before.turn + 1, undoable=method in self.of.undos)
            self.row = with_step(before, done)
            if self.row is not before:
                self._steps.append(method)
        self.row = marked(self.row, turn.mark, self.now)
        self._hear(turn)

    def _hear(self, turn: Turn) -> None:
        """What a method said about deadlines, after those before it."""
        self._cleared |= turn.cleared
        self._set_for = {n: s for n, s in self._set_for.items() if n not in turn.cleared} | turn.set_for

    def _next_join(self) -> str | None:
        done = self.row.standing
        return next((j for j in self.of.joins if j not in done and not self.of.missing(j, done)), None)

    async def run_late(self, method: str, event: Event[object] | None = None) -> None:
        """Call a method that takes what comes late."""
        self.late, self._event = True, event
        turn = await self._call(method, event)
        self._hear(turn)
        self.row = marked_late(self.row, turn.mark, self.now)
        await self._go_on_undoing()

    async def undo_late(self, step: str, event: Event[object]) -> None:
        """The event of a step came late: undo that step, now or behind the undo that is under way. One that was taken before
        is not undone again."""
        self.late = True
        if await self.was_taken(event):
            self.note = "came late, and again: it was taken before"
            return
        self._event = event
        self.row = came_late(self.row, Done(step, self.row.turn + 1, late=True, undoable=True))
        await self._go_on_undoing()

    async def started_again(self, event: Event[object]) -> None:
        """Another event that starts it came while it runs: nothing is started, and compensation will undo that one too."""
        self.note = "the saga was started before"
        if self.of.starts in self.of.undos and not await self.was_taken(event):
            self.note += ": its undo will be run for this one too"
            self._steps.append(self.of.starts)
            self.row = with_step(self.row, Done(self.of.starts, self.row.turn + 1, undoable=True))

    async def was_taken(self, event: Event[object]) -> bool:
        """Whether this very event had a turn before."""
        return any(_is_of(turn.input, event) and not turn.waits_for for turn in await self._turns())

    async def of_another(self, undo: Undo, of: Done, fact: Event[object]) -> str:
        """Why a fact is not about the undo that waits for one, in words; empty when it may be."""
        about, _ = await self.given_to(of) if undo.same else (None, ())
        differing = [] if about is None else [f for f in undo.same if getattr(about.data, f) != getattr(fact.data, f)]
        if differing:
            return f"it is about another: {differing[0]} is not that of the {undo.step} which {undo.method} undoes now"
        if await self.was_taken(fact):
            return "it came before"
        asked = (said for turn in await self._turns() for said in turn.published if said.event_id == fact.causation)
        others = (
            self.of.undos.get(said.undoes.step) for said in asked if said.undoes and _which(said.undoes) != _which(of)
        )
        if (over := next((one for one in others if one and one.is_answered_by(fact.type)), None)) is not None:
            return f"it answers what {over.method} asked for, which is over"
        return ""

    async def _go_on_undoing(self) -> None:
        """Unless it waits for a fact, for another try, or for an operator."""
        if self.row.status == "compensating" and self.row.undoing is None:
            await self.compensate()

    async def run_by_hand(self, method: str | None) -> None:
        """An operator did what was missing: the saga is completed, whatever the method that is told about it says."""
        if method is not None:
            await self._call(method, final=True)
        self.row = completed(self.row, self.now)

    def pass_over(self, note: str, *, late: bool) -> None:
        """What came is noted, and changes nothing."""
        self.late, self.note = late, note

    async def compensate(self) -> None:
        """Undo steps, last one first, until all are undone, one fails, or one waits for its fact. What is done outside at this
        moment may be the last of them: it is waited for, and what has not begun is not done."""
        self._cleared.update(UNDO_DEADLINES)
        self.row = without_unbegun(self.row)
        if self.row.calls:
            unknown = any(call.given_up for call in self.row.calls)
            self.row = replace(self.row, status="compensation_failed" if unknown else "compensating")
            return
        while (at := next_undo(self.row)) is not None:
            undo = self.of.undos.get(at.step)
            if undo is None and at.step not in self.of.steps:
                self._give_up(f"the step {at.step!r} was done by another release: it is not declared any more")
                return
            if undo is None and at.undoable:
                self._give_up(f"the step {at.step!r} was done by another release: its undo is not declared any more")
                return
            if undo is None:
                self.row = undone(self.row)
            elif self.row.undoing is not None and self.row.undoing.waiting:
                self._set_for[UNDO_WITHIN] = undo.within
                return
            elif not await self._undo(undo):
                return
        self.row = all_undone(self.row, self.now)

    def wait(self, one: Waiting, why: str) -> None:
        """The event came too early: it waits, in its place."""
        self.waits_for = why
        self.row = changed(self.row, one)
        self.wait_on()

    def wait_on(self) -> None:
        """Look again when the first of those that wait has waited long enough."""
        armed = self.row.deadlines.get(STOP_WAITING)
        soonest = min((one.until for one in self.row.waiting), default=None)
        stands = armed is not None and self._fired != STOP_WAITING
        if soonest is not None and not (stands and armed is not None and armed.due_at <= soonest):
            self._set_for[STOP_WAITING] = max(0.0, soonest - self.now)

    def skip_undo(self) -> None:
        """Go on as if the undo that it stands at had been done."""
        self.row = without_undo(self.row)

    async def undo_is_over(self) -> None:
        """The fact that the undo waited for has come."""
        self.row = undone(self.row)
        await self._go_on_undoing()

    def undo_forestalled(self, undo: Undo) -> None:
        """The fact has come, and the call of the undo is not answered: it counts when that is."""
        self.note = "came before the call was answered, for which it is kept"
        if self.row.undoing is not None and (undo.until is None or self.row.undoing.fact != undo.until.name):
            self.row = forestalled(self.row, self._given.type)

    def undo_took_too_long(self) -> None:
        """That fact did not come in time."""
        undo = self.of.undos[standing_at(self.row).step]
        fact = "its fact" if undo.until is None else undo.until.name
        self._give_up(f"{undo.method}: {fact} did not come within {undo.within:g} s", undo.method)

    def undo_was_refused(self, fact: str) -> None:
        """The fact came that says that it will not."""
        method = self.of.undos[standing_at(self.row).step].method
        self._give_up(f"{method}: {fact} came: it was refused", method)

    def check(self) -> None:
        """Raises what keeps the state from being stored."""
        self._state()

    async def finish(self, make: type[DeadlinePassed], make_call: type[CallWanted]) -> None:
        """Arm and cancel deadlines, say which calls are to be made, and save the row with the record of this turn."""
        if self._stands_still():
            await self.compensate()
        await self._tx.settled()
        self.row = done_by(put_off(self.row), self._given, self.of.given_events)
        said = tuple(
            said_in(row, after, self._requests, self._tx.seam) for row, after in self._tx.appended_since(self._before)
        )
        state = self._state()
        self._wake(make)
        row, waits, to_cancel = rearmed(
            self.row, fired=self._fired, cleared=self._cleared, set_for=self._set_for, late=self.late
        )
        to_set = {name: await self._reckoned(wait) for name, wait in waits.items()}
        names = {name: timer_name(row.ref, name) for name in (*to_set, *to_cancel)}
        armed = dict(row.deadlines)
        for name, wait in to_set.items():
            payload = make(saga=row.saga, id=row.id, deadline=name, attempt=row.attempt)
            late = self.late and name not in OWN_DEADLINES
            if isinstance(wait, datetime):
                event_id = await self._tx.schedule(payload, timer=names[name], at=wait)
                armed[name] = Armed(event_id, wait.timestamp(), late=late)
            else:
                event_id = await self._tx.schedule(payload, timer=names[name], after=wait)
                armed[name] = Armed(event_id, self.now + wait, late=late)
        row = await self._with_asked(row, make_call)
        row = self._indexed(replace(row, state=state, deadlines=armed, turn=row.turn + 1, changed_at=self.now))
        record = SagaTurn(
            turn=row.turn,
            at=self.now,
            input=self._given,
            status=row.status,
            method=self._method,
            published=said,
            deadlines_set=to_set,
            deadlines_cleared=tuple(to_cancel),
            steps_done=tuple(self._steps),
            undone=tuple(self._undone),
            undo_failed=self._undo_failed,
            late=self.late,
            waits_for=self.waits_for,
            note=self.note or (row.note if row.status == "completed" and not self.late else ""),
            state=msgspec.Raw(state),
        )
        timers = [names[name] for name in to_cancel]
        if not await self._tx.store.sagas.save(self._tx.transaction, row, record, cancel=timers):
            raise StoreCollision(f"{row.saga} {row.id} was changed by somebody else at this moment")
        self.row = row

    def _stands_still(self) -> bool:
        """Whether it compensates, and nothing would ever make it go on: no try of an undo, no fact that is due, no answer."""
        armed = {*self._set_for, *(name for name in self.row.deadlines if name not in (self._fired, *self._cleared))}
        goes_on = armed.intersection(UNDO_DEADLINES) or any(not call.given_up for call in self.row.calls)
        return self.row.status == "compensating" and not goes_on

    def is_indexed(self) -> bool:
        """Whether the row is found by all that it should be, as its state is read now."""
        self._saga = self.saga
        return self._indexed(self.row).index == self.row.index

    def _indexed(self, row: SagaRow) -> SagaRow:
        """The row with its open tasks, and with what it is found by: those, calls that are out, and the fields of its state."""
        known = {name: value for name, value in row.index.items() if name in self.of.index}
        fields = known if self._saga is None else self.of.index_of(self._saga)
        tasks = open_tasks(self.of, row, self.now)
        found_by = [*map(index_field, tasks), *([CALLS_OUT] if row.calls else [])]
        return replace(row, tasks=tasks, index={**fields, **dict.fromkeys(found_by, "")})

    async def _with_asked(self, row: SagaRow, make: type[CallWanted]) -> SagaRow:
        for turn, after in self._asking.items():
            if (call := call_of(row, turn)) is None:
                continue
            payload = make(saga=row.saga, id=row.id, attempt=row.attempt, call=turn)
            timer = timer_name(row.ref, f"call {turn}")
            event_id = (
                await self._tx.schedule(payload, timer=timer, after=after) if after else self._tx.publish(payload)
            )
            row = with_call(row, replace(call, event_id=event_id, due_at=self.now + after))
        return row

    async def _reckoned(self, wait: Wait) -> float | datetime:
        """Working time as a moment. It begins now by the store's clock, which says when the moment has come."""
        if not isinstance(wait, Working):
            return wait
        return wait.after(await self._tx.store.timers.now(self._tx.transaction))

    async def _call(
        self, method: str, event: Event[object] | None = None, answer: Answer = (), *, final: bool = False
    ) -> Turn:
        self._method = self._method or method
        turn = Turn(
            self._tx,
            method=f"{self.of.cls.__name__}.{method}",
            now=self.now,
            reason=self.row.reason or ("came late" if self.row.ended_as else ""),
            deadlines=self.of.deadlines,
            needs=self.of.needs,
            done={*self.row.standing, method},
            final=final,
        )
        function = cast("Callable[..., Awaitable[object] | object]", getattr(self.saga, method))
        with self._tx.in_turn_of(self.row.ref):
            result = function(turn) if event is None else function(event, turn, *answer)
            if inspect.isawaitable(result):
                await result
        return turn

    async def _undo(self, undo: Undo) -> bool:
        """Run one undo, or note that it calls outside first; True when the next one may follow."""
        if undo.method in self.of.calls:
            self.row = undoing_now(self.row)
            self.ask(CallOut(step=undo.method, turn=self.row.turn + 1, undoes=standing_at(self.row)))
            self.note = self.note or f"calls {self.of.calls[undo.method].name}"
            return False
        attempts = self.row.undoing.attempts if self.row.undoing is not None else 0
        while (error := await self._try(undo)) is not None:
            attempts += 1
            words = f"{undo.method}: {type(error).__name__}: {words_here(error)}"
            answer = decide(self.of.policy_of(undo.method), error, attempts)
            if not isinstance(answer, Again):
                self.row = attempted(self.row, attempts, words)
                self._give_up(words, undo.method, error, attempts)
                return False
            self.report(undo.method, error, words, attempts, again=self.now + answer.seconds)
            if answer.seconds > 0:
                self.row = attempted(self.row, attempts, words)
                self._undo_failed = words
                self._set_for[RETRY_UNDO] = answer.seconds
                return False
        return self._has_undone(undo)

    def _has_undone(self, undo: Undo) -> bool:
        self._undone.append(undo.method)
        fact = "" if self.row.undoing is None else self.row.undoing.fact
        if undo.unless is not None and fact == undo.unless.name:
            self.row = awaiting(self.row)
            self.undo_was_refused(fact)
            return False
        if undo.until is not None and fact != undo.until.name:
            self.row = awaiting(self.row)
            self._set_for[UNDO_WITHIN] = undo.within
            return False
        self.row = undone(self.row)
        return True

    async def undo_answered(self, undo: Undo, answer: Answer) -> bool:
        """The outside has answered the call of the undo that it stands at; True when the next one may follow."""
        if not takes_in_time(self.row):
            self.row = replace(self.row, status="compensating")
        before, of = self._tx.mark(), standing_at(self.row)
        event, _ = await self.given_to(of)
        await self._call(undo.method, event, answer, final=True)
        self._asked_since(before, of)
        return self._has_undone(undo) and not takes_in_time(self.row)

    def _asked_since(self, before: SaidBefore, of: Done) -> None:
        """Remember which events an undo has published."""
        self._requests |= dict.fromkeys((row.event_id for row, _ in self._tx.appended_since(before)), of)

    def undo_refused_outside(self, undo: Undo, words: str) -> None:
        """The outside will not undo it."""
        self._give_up(f"{undo.method}: {words}", undo.method)

    async def _try(self, undo: Undo) -> Exception | None:
        """One run of an undo; when it fails, nothing of it is left, and its error is returned."""
        said, state, of = self._tx.mark(), self._state(), standing_at(self.row)
        await self._tx.execute(SAVEPOINT)
        try:
            await self._call(undo.method, *await self.given_to(of), final=True)
            self._state()
        except NOT_ITS_OWN:
            raise
        except Exception as error:
            await self._tx.execute(BACK)
            await self._tx.execute(RELEASE)
            self._tx.rewind(said)
            self._saga = self.of.decode(state, self.row.id)
            return error
        await self._tx.execute(RELEASE)
        self._asked_since(said, of)
        return None

    async def given_to(self, done: Done) -> tuple[Event[object] | None, Answer]:
        """The event that did a step, and the answer to its call; none where there was none."""
        if done.step not in self.of.given_events:
            return None, ()
        if done.turn == self.row.turn + 1:
            return self._event, self._answer
        found = await self.turn_of(done.turn, done.step)
        outside = self.of.calls.get(done.step)
        kept = found.input.kind == "answer"
        answer = (outside.decode(found.input.answer),) if outside is not None and kept else ()
        return event_of(self.of, found.input, self.row.tenant, found.at), answer

    async def turn_of(self, number: int, step: str) -> SagaTurn:
        """A turn of its history, in which something came of a step."""
        found = next((turn for turn in await self._turns() if turn.turn == number), None)
        if found is None:
            raise ConfigurationError(
                f"the history of {self.row.saga} {self.row.id} has no turn {number}, which did {step}"
            )
        return found

    def _wake(self, make: type[DeadlinePassed]) -> None:
        """Say so when the turn of events that wait has come."""
        before, self.row = self.row, woken(self.of, self.row)
        if (row := self.row) is not before:
            self._tx.publish(make(saga=row.saga, id=row.id, deadline=WAKE, attempt=row.attempt))

    async def _turns(self) -> Sequence[SagaTurn]:
        if self._history is None:
            self._history = await self._tx.store.sagas.turns_in(self._tx.transaction, self.row)
        return self._history

    def _state(self) -> bytes:
        """The state as it is stored; as it was, when no method looked at it."""
        if self._saga is None:
            return self.row.state
        if (id := self.of.id_of(self._saga)) != self.row.id:
            raise ConfigurationError(
                f"{self.of.cls.__name__}.{self._method} changed {self.of.correlate} from {self.row.id!r} to {id!r}: a saga "
                "keeps the id that it was started with"
            )
        return self.of.encode(self._saga, self.row.state)

    def _give_up(self, words: str, method: str = "", error: Exception | None = None, attempts: int = 0) -> None:
        self.row = failed(self.row, words)
        self._undo_failed = words
        self.report(method or self._method, error, words, attempts)

    def report(
        self, method: str, error: Exception | None, words: str, attempts: int, again: float | None = None
    ) -> None:
        """Tell the log and the hook that something failed, for good or until then."""
        row, cls = self.row, self.of.cls
        self._tx.seam.failures.report(
            Failure(
                error=error,
                reason=words,
                outcome="dead" if again is None else "retry",
                consumer=self.of.consumer,
                handler=".".join(filter(None, (cls.__module__, cls.__qualname__, method))),
                event_type=self._given.type,
                event_id=self._given.event_id,
                tenant=row.tenant,
                key=row.id,
                correlation=row.correlation,
                attempt=attempts,
                max_attempts=self.of.policy_of(method).max_attempts,
                next_at=again,
                command=f"posthouse saga show TARGET {self.of.asked_as(row)}" if again is None else "",
            )
        )


def _which(done: Done) -> tuple[str, int]:
    return done.step, done.turn


def _is_of(given: SagaInput, event: Event[object]) -> bool:
    """Whether a turn was about this event: an id is unique with its source only."""
    return given.event_id == event.id and given.source == event.source
