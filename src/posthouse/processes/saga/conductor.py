"""Conductor: runs the turns of one kind of saga. Lock the row, call the method, save what came of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from posthouse.clock import new_id
from posthouse.contracts import EventType, event_type_of
from posthouse.errors import ConfigurationError, Reject, RetryLater, StoreCollision
from posthouse.events import Event
from posthouse.events.trace import same_trace
from posthouse.processes.saga.burying import after_waiting, bury
from posthouse.processes.saga.calls import CallWanted
from posthouse.processes.saga.course import Course
from posthouse.processes.saga.deadlines import DeadlinePassed
from posthouse.processes.saga.declared import SagaType, Taken, Undo
from posthouse.processes.saga.recorded import input_of
from posthouse.processes.saga.saga import Saga
from posthouse.processes.saga.start import SagaStart, not_started, started
from posthouse.processes.saga.transition import RETRY_UNDO, UNDO_WITHIN, WAKE, takes_in_time
from posthouse.processes.saga.waiting import MOST_WAITING, obstacle, obstacle_behind, without
from posthouse.seam import EventContext
from posthouse.seam.intent import Cause
from posthouse.sending import Tx
from posthouse.store import BLOCKING, HeldFilter
from posthouse.store.sagas import STOP_WAITING, SagaInput, SagaRow, Waiting


class Conductor:
    """Everything that happens to sagas of one type, each in the transaction that it is given."""

    def __init__(self, of: SagaType, deadline: EventType[DeadlinePassed], call: EventType[CallWanted]) -> None:
        self.of = of
        self._deadline = deadline
        self._call = call

    async def start(self, tx: Tx, saga: Saga) -> SagaStart:
        """Start one in the caller's transaction; nothing is done when there is one with its id, unless that ended so that
        it may begin again."""
        if tx.service != self.of.service:
            raise ConfigurationError(
                f"{self.of.consumer}: start it in a transaction of {self.of.service}, not of another service"
            )
        state = self.of.encode(saga)
        given = SagaInput(kind="start", type=self.of.starts, data=msgspec.Raw(state))
        with tx.working():
            return await self._start(tx, saga, given, None)

    async def take(self, event: Event[object], tx: Tx) -> None:
        """An event came for one of them."""
        event_type = event_type_of(type(event.data))
        id = self.of.id_in(event_type.name, event)
        if id is None:
            return
        given = input_of(event_type, event)
        if self._starts(event_type.name) and await self._start(tx, self.of.fresh(id), given, event):
            return
        row = await self._load(tx, id, correlation=event.correlation or event.id)
        if row is None or row.status == "awaited":
            await self._await_start(tx, row, id, given, event)
        elif row.tombstone:
            await self._take_late(tx, row, given)
        else:
            await self._take(tx, row, given, event)

    async def deadline_passed(self, event: Event[object], tx: Tx) -> None:
        """A timer fired. It counts if the saga still has this very deadline armed; otherwise it is stale, and nothing."""
        passed = event.data
        if not isinstance(passed, DeadlinePassed) or passed.saga != self.of.name:
            return
        row = await self._load(tx, passed.id, attempt=passed.attempt)
        if passed.deadline == WAKE:
            await self._wake(tx, row)
            return
        armed = None if row is None else row.deadlines.get(passed.deadline)
        if row is None or armed is None or armed.event_id != event.id:
            return
        given = SagaInput(kind="deadline", type=passed.deadline, event_id=event.id)
        course = self._course(tx, row, given, fired=passed.deadline)
        if passed.deadline == RETRY_UNDO:
            await course.compensate()
        elif passed.deadline == UNDO_WITHIN:
            course.undo_took_too_long()
        elif passed.deadline == STOP_WAITING:
            course.row = await self._stop_waiting(tx, row)
            if course.row.status == "awaited" and not course.row.waiting:
                await tx.store.sagas.drop(tx.transaction, course.row)
                return
            course.wait_on()
        elif passed.deadline in self.of.deadlines:
            await (course.run if takes_in_time(row) else course.run_late)(passed.deadline)
        else:
            raise ConfigurationError(
                f"{row.saga} {row.id}: the deadline {passed.deadline!r} was armed by another release, and "
                f"{self.of.cls.__name__} does not declare it any more: bring the method back until no saga waits for it"
            )
        await self.finish(course)

    def turn(self, tx: Tx, row: SagaRow, given: SagaInput) -> Course:
        """A turn about something that was given."""
        return self._course(tx, row, given)

    def course(self, tx: Tx, row: SagaRow, verb: str, data: Mapping[str, str]) -> Course:
        """A turn for an operator."""
        given = SagaInput(kind="operator", type=verb, data=msgspec.Raw(msgspec.json.encode(data)))
        return self._course(tx, row, given)

    async def finish(self, course: Course) -> SagaRow:
        """Save the turn; the row as it is now."""
        await course.finish(self._deadline.payload.cls, self._call.payload.cls)
        return course.row

    async def load(self, tx: Tx, id: str, *, attempt: int | None = None) -> SagaRow | None:
        """The row, locked; the newest attempt unless one is named."""
        return await self._load(tx, id, attempt=attempt)

    async def _start(self, tx: Tx, saga: Saga, given: SagaInput, event: Event[object] | None) -> SagaStart:
        now = tx.clock.now()
        row = SagaRow(
            saga=self.of.name,
            tenant=tx.tenant,
            id=self.of.id_of(saga),
            state=self.of.encode(saga),
            correlation=tx.context.correlation or new_id(),
            parent=tx.turn_of,
            started_at=now,
            changed_at=now,
        )
        if not row.id:
            raise ConfigurationError(f"{self.of.cls.__name__} has no {self.of.correlate}: every saga needs an id")
        if not await tx.store.sagas.add(tx.transaction, row):
            newest = await self._newest(tx, row)
            again = await (self._begin if newest.status == "awaited" else self._again)(tx, row, newest, event)
            if again is None:
                return not_started(newest)
            row = again
        outside = tx.context
        place = tx.begin_saga(row.saga, row.id, row.correlation or "")
        row = msgspec.structs.replace(row, traceparent=place)
        try:
            course = self._course(tx, row, given)
            await course.run(self.of.starts, event)
            return started(await self.finish(course))
        finally:
            tx.context = outside

    async def _newest(self, tx: Tx, row: SagaRow) -> SagaRow:
        found = await self._load(tx, row.id)
        if found is None:
            raise StoreCollision(f"{row.ref} was forgotten at this moment: start it again")
        return found

    async def _begin(self, tx: Tx, row: SagaRow, awaited: SagaRow, event: Event[object] | None) -> SagaRow:
        """Events came for it before: it is theirs from now on."""
        kept = {"number": awaited.number, "turn": awaited.turn, "waiting": awaited.waiting}
        row = msgspec.structs.replace(row, **kept, deadlines=awaited.deadlines, attempt=awaited.attempt)
        await tx.store.sagas.begin(tx.transaction, row)
        return row

    async def _again(self, tx: Tx, row: SagaRow, newest: SagaRow, event: Event[object] | None) -> SagaRow | None:
        """The next attempt, if it may begin. Events tell attempts apart by their correlation: one that carries that of an
        attempt belongs to it, and begins no other; and no two have the same."""
        known = await self._load(tx, row.id, correlation=row.correlation)
        is_known = known is not None and known.correlation == row.correlation
        if newest.status not in self.of.again or (event is not None and is_known):
            return None
        correlation = new_id() if is_known else row.correlation
        row = msgspec.structs.replace(row, attempt=newest.attempt + 1, correlation=correlation)
        if not await tx.store.sagas.add(tx.transaction, row):
            raise StoreCollision(f"{row.ref} was started by somebody else at this moment")
        return row

    async def _take_late(self, tx: Tx, row: SagaRow, given: SagaInput) -> None:
        """An event for a tombstone. Its state is gone: what would have to be undone is for a person; anything else is noted,
        without what it said."""
        step = self._undone_late(given.type)
        undo = None if step is None else self.of.undos[step]
        method = undo.method if undo is not None else getattr(self.of.too_late.get(given.type), "method", None)
        if method is not None:
            raise Reject(
                f"{row.ref} ended as {row.status} and was purged: {self.of.cls.__name__}.{method} would take {given.type} now, but "
                "the state that it needs is gone. Do by hand what it would do, then skip this event"
            )
        course = self._course(tx, row, msgspec.structs.replace(given, data=msgspec.Raw(b"null")))
        course.pass_over(f"came late: the saga was {row.status}, and purged", late=True)
        await self.finish(course)

    async def _take(self, tx: Tx, row: SagaRow, given: SagaInput, event: Event[object]) -> None:
        in_time, too_late = self.of.in_time.get(given.type), self.of.too_late.get(given.type)
        starting, taken = self._starts(given.type), in_time or too_late
        if taken is not None and (why := self._obstacle(tx, row, taken, event)):
            await self._park(tx, row, taken, given, event, why)
            return
        if taken is not None:
            row = without(row, self._waiting(tx, taken, event))
        course = self._course(tx, row, given)
        undo, not_its = self._answered_by(row, given.type), ""
        if undo is not None and row.undoing is not None:
            not_its = await course.of_another(undo, row.undoing.of, event)
        ends = undo if not not_its else None
        if ends is not None and row.undoing is not None and not row.undoing.waiting:
            course.undo_forestalled(ends)
        elif ends is not None and ends.until is not None and ends.until.name == given.type:
            await course.undo_is_over()
        elif ends is not None:
            course.undo_was_refused(given.type)
        elif takes_in_time(row) and starting:
            await course.started_again(event)
        elif takes_in_time(row) and in_time is not None:
            await course.run(in_time.method, event)
        elif not takes_in_time(row) and too_late is not None:
            await course.run_late(too_late.method, event)
        elif not takes_in_time(row) and (step := self._undone_late(given.type)) is not None:
            await course.undo_late(step, event)
        else:
            course.pass_over(not_its or _why_not(row), late=not takes_in_time(row))
        await self.finish(course)

    def _answered_by(self, row: SagaRow, subject: str) -> Undo | None:
        """The undo that may be ended by a fact of this kind: it was called and waits for one, or its call is out."""
        at = row.undoing
        undo = None if at is None else self.of.undos.get(at.step)
        if at is None or undo is None or not undo.is_answered_by(subject):
            return None
        called = any(call.undoes == at.of and call.begun_at is not None for call in row.calls)
        return undo if at.waiting or called else None

    def _starts(self, subject: str) -> bool:
        return self.of.started_by is not None and subject == self.of.started_by.event_type.name

    def _undone_late(self, subject: str) -> str | None:
        """The step that is undone when this comes late. Of one that calls outside, it has done nothing: nobody was called."""
        taken = self.of.started_by if self._starts(subject) else self.of.in_time.get(subject)
        undone = taken is not None and taken.method in self.of.undone_late and taken.method not in self.of.calls
        return taken.method if taken is not None and undone else None

    # Events that come too early.

    async def _await_start(self, tx: Tx, row: SagaRow | None, id: str, given: SagaInput, event: Event[object]) -> None:
        """There is no saga yet. Whoever starts it meets the row that stands for it until then."""
        taken = self.of.in_time.get(given.type)
        if taken is None or taken.early == "ignore":
            return
        if row is None:
            await tx.store.sagas.add(
                tx.transaction, SagaRow(saga=self.of.name, tenant=tx.tenant, id=id, status="awaited")
            )
            row = await self._load(tx, id, correlation=event.correlation or event.id)
        if row is None:
            raise StoreCollision(f"{self.of.name} {id} was dropped at this moment")
        await self._take(tx, row, given, event)

    def _obstacle(self, tx: Tx, row: SagaRow, taken: Taken, event: Event[object]) -> str:
        return obstacle(self.of, row, self._waiting(tx, taken, event))

    def _waiting(self, tx: Tx, taken: Taken, event: Event[object]) -> Waiting:
        now = tx.clock.now()
        return Waiting(
            event_id=event.id,
            source=event.source,
            type=taken.event_type.name,
            method=taken.method,
            since=now,
            until=now + taken.early_within,
            key="" if event.key is None else f"{taken.event_type.topic} {event.key}",
        )

    async def _park(self, tx: Tx, row: SagaRow, taken: Taken, given: SagaInput, event: Event[object], why: str) -> None:
        """Keep the event, whole, and let its delivery be over: it blocks nothing."""
        if tx.came is None or len(row.waiting) >= MOST_WAITING:
            raise RetryLater(f"{row.ref}: {given.type} waits for {why}")
        held = after_waiting(tx.came(), event, row)
        one = self._waiting(tx, taken, event)
        for known in row.waiting:
            if known.is_same(one):
                await tx.store.sagas.unpark(tx.transaction, row, known.held_as)
        await tx.store.sagas.park(tx.transaction, row, held)
        course = self._course(tx, row, given)
        course.wait(msgspec.structs.replace(one, held_as=held.entry.event_id), why)
        await self.finish(course)

    async def _wake(self, tx: Tx, row: SagaRow | None) -> None:
        """The turn of some that waited has come: each is run by itself, as events are that were held, and so it fails, is
        tried again and is a dead letter."""
        for one in () if row is None else row.waiting:
            if row is not None and one.woken:
                await self._hand_over(tx, row, one)

    async def _hand_over(self, tx: Tx, row: SagaRow, one: Waiting) -> bool:
        """From those that wait to those that are held, due now; False when it was handed over before."""
        held = await tx.store.sagas.unpark(tx.transaction, row, one.held_as)
        if held is None:
            return False
        if not await tx.store.held.hold(tx.transaction, held):
            raise StoreCollision(f"{row.ref}: another event is held as {held.entry.event_id}")
        await tx.store.inbox.recall(tx.transaction, held.consumer, held.entry.topic)
        tx.holds = True
        return True

    async def _stop_waiting(self, tx: Tx, row: SagaRow) -> SagaRow:
        """Those that waited long enough are dead letters, behind which their key waits. Those that were handed over are in the
        way for as long as they are held; what was given up is not."""
        now, waiting, firsts = tx.clock.now(), list[Waiting](), dict[str, Waiting]()
        for one in row.waiting:
            if one.woken and not (await self._hand_over(tx, row, one) or await self._is_held(tx, one)):
                continue
            first = firsts.get(one.key) if one.key else None
            kept = one if one.until > now else await self._outwaited(tx, row, one, first)
            if kept is not None:
                waiting.append(kept)
                firsts.setdefault(kept.key, kept)
        return msgspec.structs.replace(row, waiting=tuple(waiting))

    async def _outwaited(self, tx: Tx, row: SagaRow, one: Waiting, first: Waiting | None) -> Waiting | None:
        """What becomes of one that waited long enough behind the first of its key; None when nobody waits behind it. One that
        is held up only by what was handed over waits on: people know of that, if it does not run."""
        now, long = tx.clock.now(), one.until - one.since
        on = msgspec.structs.replace(one, since=now, until=now + long)
        first = None if first is not None and first.woken else first
        why = obstacle_behind(self.of, row, one, first)
        if one.woken or not why:
            return on
        held = await tx.store.sagas.unpark(tx.transaction, row, one.held_as)
        policy = self.of.policy_of(one.method)
        if held is not None:
            await bury(tx, held, f"{row.ref}: it waited {long:g} s for {why}", self.of, policy)
        return None if held is None or policy.on_dead == "skip" else msgspec.structs.replace(on, woken=True)

    async def _is_held(self, tx: Tx, one: Waiting) -> bool:
        wanted = HeldFilter(consumer=self.of.consumer, tenant=tx.tenant, event_id=one.held_as)
        return any(held.state in BLOCKING for held in await tx.store.held.find(wanted))

    async def _load(
        self, tx: Tx, id: str, *, attempt: int | None = None, correlation: str | None = None
    ) -> SagaRow | None:
        return await tx.store.sagas.load(
            tx.transaction, self.of.name, tx.tenant, id, attempt=attempt, correlation=correlation
        )

    def _course(self, tx: Tx, row: SagaRow, given: SagaInput, fired: str | None = None) -> Course:
        """A turn. What it says belongs to the correlation and the trace of the saga, whoever's request led to it."""
        if row.correlation is not None:
            tx.context = in_place_of(row, tx.context)
        if tx.context.cause is None:  # no event led to it: a call, or an operator
            cause = Cause(self.of.consumer, f"{row.id}/{row.attempt}@{row.turn}")
            tx.context = msgspec.structs.replace(tx.context, cause=cause)
        return Course(self.of, row, tx, tx.clock.now(), given, fired=fired)


def in_place_of(row: SagaRow, context: EventContext) -> EventContext:
    """The context of a turn: what led to it, in the story of its saga."""
    context = msgspec.structs.replace(context, correlation=row.correlation)
    if row.traceparent is None or same_trace(row.traceparent, context.traceparent):
        return context
    return msgspec.structs.replace(context, traceparent=row.traceparent, tracestate=None)


def _why_not(row: SagaRow) -> str:
    if takes_in_time(row):
        return "nothing waits for it: the saga was started before, or does not compensate"
    return f"came late: the saga was {row.status}"
