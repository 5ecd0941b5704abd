"""A bench for one kind of saga: the parts that a turn needs, in memory, and nothing that runs by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn, cast

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
from posthouse.store import Action, OutboxRow, Parameters, Rows, Store, Timer, Transaction
from posthouse.store.sagas import CallOut, SagaFilter, SagaRow, SagaStatus, SagaTurn
from posthouse.store.savepoints import Savepoints

Answers = Mapping[str, Sequence[tuple[object, ...]] | Exception]
"""What statements answer: rows, or an error to raise, by a text that the statement holds."""

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
        self.answers: Answers = {}
        self.statements: list[tuple[str, Parameters]] = []
        self.said: list[Event[bytes]] = []
        self._namespace = namespace
        self._builder = EnvelopeBuilder(Producer(service=of.service), f"/{of.service}", STRUCTURED, self.clock, LIMIT)
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
    async def turn(self, context: EventContext) -> AsyncIterator[Tx]:
        """A transaction: what is said in it counts when the block ends, and nothing when it raises."""
        attempts, turns = dict(self.sagas.attempts), dict(self.sagas.turns)
        timers = dict(self.timers)
        inner = BenchTransaction(self.answers)
        tx = Tx(inner, self.store, self._builder, context, self.clock)
        try:
            yield tx
            tx.close()
        except BaseException:
            self.sagas.attempts, self.sagas.turns = attempts, turns
            self.timers.clear()
            self.timers.update(timers)
            raise
        self.statements += inner.statements
        self._keep(tx)

    def _keep(self, tx: Tx) -> None:
        said = tx.mark()
        for name in (*self.sagas.cancelled, *said.dropped):
            self.timers.pop(name, None)
        self.sagas.cancelled.clear()
        self.said += [event for event in map(event_of, said.rows) if event.type != self._book.call.name]
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
        payload = self._book.deadline.payload.decode(event.data)
        async with self.turn(context) as tx:
            await self.conductor.deadline_passed(event.with_data(payload), tx)


def event_of(row: OutboxRow) -> Event[bytes]:
    """What a row says."""
    return decode_any(row.headers, row.body)


def _key(row: SagaRow) -> Key:
    return row.saga, row.tenant, row.id
