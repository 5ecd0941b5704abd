"""A bench for one kind of saga: the parts that a turn needs, in memory, and nothing that runs by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import NoReturn, TypeVar, cast

import msgspec

from posthouse.clock import ManualClock
from posthouse.events import STRUCTURED, Actor, Event, Producer, decode_any, timestamp
from posthouse.processes import SagaBook, SagaInstances, SagaType
from posthouse.processes.saga.answering import Answering
from posthouse.processes.saga.calls import Outcome
from posthouse.processes.saga.conductor import Conductor
from posthouse.seam import EnvelopeBuilder, EventContext
from posthouse.seam.context import context_of
from posthouse.sending import Tx
from posthouse.store import (
    Action,
    HeldEvent,
    HeldFilter,
    InboxEntry,
    OutboxRow,
    Parameters,
    Rows,
    Store,
    Timer,
    Transaction,
)
from posthouse.store.sagas import CallOut, SagaFilter, SagaRow, SagaStatus, SagaTurn
from posthouse.store.savepoints import Savepoints

Answers = Mapping[str, Sequence[tuple[object, ...]] | Exception]
"""What statements answer: rows, or an error to raise, by a text that the statement holds."""

K = TypeVar("K")
V = TypeVar("V")

LIMIT = 8 * 1024 * 1024

Key = tuple[str, str, str]
"""Saga, tenant and id; attempts of one id are in the order of their numbers."""


class BenchTransaction:
    """Runs no statement: it notes them, and answers as it was told. What is rolled back is not noted."""

    submit = None
    needs_loop = False

    def __init__(self, answers: Answers) -> None:
        self.statements: list[tuple[str, Parameters]] = []
        self.savepoints = Savepoints()
        self._answers = answers
        self._savepoint = 0

    @property
    def connection(self) -> NoReturn:
        raise NotImplementedError("there is no database here: test what needs a connection with the Harness")

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        if sql.startswith("SAVEPOINT "):
            self._savepoint = len(self.statements)
        elif sql.startswith("ROLLBACK TO "):
            del self.statements[self._savepoint :]
        elif not sql.startswith("RELEASE "):
            return self._answer(sql, parameters)
        self.savepoints.hear(sql)
        return Rows()

    async def attend(self) -> NoReturn:
        raise NotImplementedError("there is no database here to be joined")

    def _answer(self, sql: str, parameters: Parameters) -> Rows:
        self.statements.append((sql, parameters))
        answer = next((given for text, given in self._answers.items() if text in sql), None)
        if isinstance(answer, Exception):
            raise answer
        rows = Rows(answer or ())
        rows.rowcount = 1 if answer is None else len(answer)
        return rows


class BenchTable:
    """Sagas and their histories in two dicts; a `SagaTable`."""

    def __init__(self) -> None:
        self.attempts: dict[Key, tuple[SagaRow, ...]] = {}
        self.turns: dict[tuple[Key, int], tuple[SagaTurn, ...]] = {}
        self.parked: dict[str, HeldEvent] = {}
        self.cancelled: list[str] = []

    async def add(self, tx: Transaction, row: SagaRow) -> bool:
        known = self.attempts.get(_key(row), ())
        if any(one.attempt == row.attempt for one in known):
            return False
        number = sum(map(len, self.attempts.values())) + 1
        self.attempts[_key(row)] = (*known, msgspec.structs.replace(row, number=number))
        return True

    async def load(
        self,
        tx: Transaction,
        saga: str,
        tenant: str,
        id: str,
        *,
        attempt: int | None = None,
        correlation: str | None = None,
    ) -> SagaRow | None:
        known = [row for row in self.attempts.get((saga, tenant, id), ()) if attempt in (None, row.attempt)]
        return max(known, key=lambda row: (row.correlation == correlation, row.attempt), default=None)

    async def save(self, tx: Transaction, row: SagaRow, turn: SagaTurn, *, cancel: Sequence[str] = ()) -> bool:
        key = _key(row)
        self.attempts[key] = tuple(row if one.attempt == row.attempt else one for one in self.attempts[key])
        self.turns[key, row.attempt] = (*self.turns.get((key, row.attempt), ()), turn)
        self.cancelled += cancel
        return True

    async def find(self, wanted: SagaFilter, *, after: int = 0, limit: int = 100) -> Sequence[SagaRow]:
        return [row for rows in self.attempts.values() for row in rows if row.number > after][:limit]

    async def history(self, saga: str, tenant: str, id: str, *, attempt: int | None = None) -> Sequence[SagaTurn]:
        return self.turns_of(saga, tenant, id, attempt=attempt)

    def turns_of(self, saga: str, tenant: str, id: str, *, attempt: int | None = None) -> Sequence[SagaTurn]:
        """As `history`."""
        key = (saga, tenant, id)
        return self.turns.get((key, attempt or len(self.attempts.get(key, ()))), ())

    async def turns_in(self, tx: Transaction, row: SagaRow) -> Sequence[SagaTurn]:
        return self.turns.get((_key(row), row.attempt), ())

    async def begin(self, tx: Transaction, row: SagaRow) -> None:
        key = _key(row)
        self.attempts[key] = tuple(row if one.attempt == row.attempt else one for one in self.attempts[key])

    async def drop(self, tx: Transaction, row: SagaRow) -> None:
        left = tuple(one for one in self.attempts[_key(row)] if one.attempt != row.attempt)
        self.attempts = {**self.attempts, _key(row): left} if left else _without(self.attempts, _key(row))
        self.turns = _without(self.turns, (_key(row), row.attempt))

    async def park(self, tx: Transaction, row: SagaRow, event: HeldEvent) -> None:
        self.parked = {**self.parked, event.entry.event_id: event}

    async def unpark(self, tx: Transaction, row: SagaRow, event_id: str) -> HeldEvent | None:
        found = self.parked.get(event_id)
        self.parked = _without(self.parked, event_id)
        return found

    async def counts(self) -> Mapping[tuple[str, SagaStatus], int]:
        raise NotImplementedError("a bench holds one saga")

    async def purge(self, age: float, limit: int) -> int:
        raise NotImplementedError("a bench forgets nothing")

    async def forget(self, age: float, limit: int) -> int:
        raise NotImplementedError("a bench forgets nothing")


class BenchTimers(dict[str, Timer]):
    """Timers by name; as much of a `TimerTable` as a turn uses."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    async def now(self, tx: Transaction) -> float:
        return self._clock.now()

    async def set(self, tx: Transaction, timer: Timer) -> None:
        self[timer.name] = timer

    async def cancel(self, tx: Transaction, tenant: str, name: str) -> bool:
        return self.pop(name, None) is not None

    async def hasten(self, tx: Transaction, tenant: str, name: str) -> bool:
        if (timer := self.get(name)) is not None:
            self[name] = msgspec.structs.replace(timer, due_at=self._clock.now())
        return timer is not None


class BenchHeld:
    """Events whose turn has come after they waited, and dead letters; as much of a `HeldTable` as a turn uses."""

    def __init__(self) -> None:
        self.due: tuple[HeldEvent, ...] = ()
        self.dead: tuple[HeldEvent, ...] = ()

    async def hold(self, tx: Transaction, event: HeldEvent) -> bool:
        if event.state == "retrying":
            self.due = (*self.due, event)
        else:
            self.dead = (*self.dead, event)
        return True

    async def promote(self, tx: Transaction, consumer: str, entry: InboxEntry) -> bool:
        return False

    async def find(self, wanted: HeldFilter, *, after: int = 0, limit: int = 100) -> Sequence[HeldEvent]:
        return [held for held in (*self.due, *self.dead) if held.entry.event_id == wanted.event_id]

    async def position_of(self, tx: Transaction, consumer: str, entry: InboxEntry) -> None:
        """Nothing is known of any key."""

    async def recall(self, tx: Transaction, consumer: str, topic: str) -> None:
        """Nothing is counted."""

    async def append(self, tx: Transaction, rows: Sequence[OutboxRow]) -> None:
        """Copies of dead letters go nowhere."""


class BenchActions(list[Action]):
    """What operators did; as much of an `ActionTable` as their verbs use."""

    async def add(self, tx: Transaction, action: Action) -> None:
        self.append(action)


class Bench:
    """A saga's home without a store: turns are taken one at a time, on a clock that the test moves."""

    def __init__(self, of: SagaType, namespace: str | None) -> None:
        self.of = of
        self.clock = ManualClock()
        self.sagas = BenchTable()
        self.timers = BenchTimers(self.clock)
        self.actions = BenchActions()
        self.held = self.inbox = self.outbox = BenchHeld()
        self.wakes = True
        """Whether what waited is taken as soon as its turn has come."""
        self._events: dict[str, Event[object]] = {}
        self._woken: list[Event[bytes]] = []
        self._settling = False
        self.answers: Answers = {}
        self.statements: list[tuple[str, Parameters]] = []
        self.said: list[Event[bytes]] = []
        self._namespace = namespace
        source = f"/{namespace}/{of.service}" if namespace else f"/{of.service}"
        self._builder = EnvelopeBuilder(Producer(service=of.service), source, STRUCTURED, self.clock, LIMIT)
        self._book = self._declared(of)

    def use(self, of: SagaType) -> None:
        """Take the turns that follow with this class, which must read the same states."""
        if of.cls is not self.conductor.of.cls:
            self._book = self._declared(of)

    def row_of(self, saga: str, tenant: str, id: str) -> SagaRow:
        """A saga as it stands; one that was never started for one that is not there."""
        attempts = self.sagas.attempts.get((saga, tenant, id))
        return attempts[-1] if attempts else SagaRow(saga=saga, tenant=tenant, id=id)

    def _declared(self, of: SagaType) -> SagaBook:
        book = SagaBook(of.service, self._namespace)
        book.add(of)
        return book

    @property
    def store(self) -> Store:
        """As much of a store as a turn uses."""
        return cast("Store", self)

    @property
    def conductor(self) -> Conductor:
        """Who runs the turns."""
        return self._book[self.of.name]

    @property
    def desk(self) -> SagaInstances:
        """The operator's verbs."""
        return SagaInstances([self._book], self.store, self.begin)

    @property
    def own_subjects(self) -> tuple[str, ...]:
        """What a saga says to itself: that a deadline passed, that a call is to be made."""
        return self._book.deadline.name, self._book.call.name

    async def begin_call(self, row: SagaRow, call: CallOut) -> bool:
        """A call begins; False when there is nothing to call."""
        event = self._wanted(row, call)
        async with self.turn(context_of(event)) as tx:
            return await Answering(self.conductor).begin(event, tx) is not None

    async def answer_call(self, row: SagaRow, call: CallOut, outcome: Outcome) -> None:
        """A call that began was answered, refused, or failed."""
        event = self._wanted(row, call)
        async with self.turn(context_of(event)) as tx:
            await Answering(self.conductor).answered(event, tx, outcome)

    def _wanted(self, row: SagaRow, call: CallOut) -> Event[object]:
        make = self._book.call.payload.cls
        data = make(saga=row.saga, id=row.id, attempt=row.attempt, call=call.turn)
        time = timestamp(self.clock.now())
        return Event(
            id=call.event_id, type=self._book.call.name, source=f"/{row.saga}", data=data, time=time, tenant=row.tenant
        )

    def begin(self, service: str, tenant: str, *, actor: Actor | None = None) -> AbstractAsyncContextManager[Tx]:
        """One turn from outside."""
        return self.turn(EventContext(tenant=tenant, actor=actor))

    @asynccontextmanager
    async def turn(self, context: EventContext, event: Event[object] | None = None) -> AsyncIterator[Tx]:
        """A transaction, for an event if one came: what is said in it counts when the block ends, and nothing when it
        raises. After it the events are taken that waited for it."""
        attempts, turns = dict(self.sagas.attempts), dict(self.sagas.turns)
        parked, due, dead = self.sagas.parked, self.held.due, self.held.dead
        timers = dict(self.timers)
        inner = BenchTransaction(self.answers)
        tx = Tx(inner, self.store, self._builder, context, self.clock)
        if event is not None:
            self._events[_name(event)] = event
            tx.came = partial(_held, self.of.consumer, event)
        try:
            yield tx
            tx.close()
        except BaseException:
            self.sagas.attempts, self.sagas.turns, self.sagas.parked = attempts, turns, parked
            self.held.due, self.held.dead = due, dead
            self.timers.clear()
            self.timers.update(timers)
            raise
        self.statements += inner.statements
        self._keep(tx)
        if self.wakes and not self._settling:
            self._settling = True
            try:
                await self._take_what_waited(context)
            finally:
                self._settling = False

    async def take(self, event: Event[object]) -> None:
        """An event came."""
        async with self.turn(context_of(event), event) as tx:
            await self.conductor.take(event, tx)

    async def _take_what_waited(self, context: EventContext) -> None:
        while self._woken or self.held.due:
            if self._woken:
                async with self.turn(context) as tx:
                    await self._passed(self._woken.pop(0), tx)
            else:
                held, self.held.due = self.held.due[0], self.held.due[1:]
                try:
                    await self.take(self._events[held.body.decode()])
                except BaseException:
                    self.held.due = (held, *self.held.due)
                    raise

    def _keep(self, tx: Tx) -> None:
        said = tx.mark()
        for name in (*self.sagas.cancelled, *said.dropped):
            self.timers.pop(name, None)
        self.sagas.cancelled.clear()
        events = [event for event in map(event_of, said.rows) if event.type != self._book.call.name]
        self.said += [event for event in events if event.type != self._book.deadline.name]
        self._woken += [event for event in events if event.type == self._book.deadline.name]
        self.timers.update({timer.name: timer for timer in said.timers})

    def due(self, until: float) -> Timer | None:
        """The next timer that is due by then, taken out."""
        soon = min(self.timers.values(), key=lambda timer: timer.due_at, default=None)
        if soon is None or soon.due_at > until:
            return None
        return self.timers.pop(soon.name)

    async def passed(self, timer: Timer, context: EventContext) -> None:
        """A deadline has passed; or a fact is said that was to be said later."""
        event = event_of(timer.row)
        if event.type == self._book.call.name:
            return
        if event.type != self._book.deadline.name:
            self.said.append(event)
            return
        async with self.turn(context) as tx:
            await self._passed(event, tx)

    async def _passed(self, event: Event[bytes], tx: Tx) -> None:
        payload = self._book.deadline.payload.decode(event.data)
        await self.conductor.deadline_passed(event.with_data(payload), tx)


def event_of(row: OutboxRow) -> Event[bytes]:
    """What a row says."""
    return decode_any(row.headers, row.body)


def _held(consumer: str, event: Event[object]) -> HeldEvent:
    """An event as it would be held; its body is the name by which the bench knows it."""
    entry = InboxEntry(topic=event.source, tenant=event.tenant, event_id=event.id, digest=b"", time=0.0, key=event.key)
    return HeldEvent(consumer=consumer, entry=entry, state="retrying", body=_name(event).encode(), type=event.type)


def _name(event: Event[object]) -> str:
    return f"{event.source} {event.id}"


def _without(known: Mapping[K, V], key: K) -> dict[K, V]:
    return {other: value for other, value in known.items() if other != key}


def _key(row: SagaRow) -> Key:
    return row.saga, row.tenant, row.id
