"""Tx: one database transaction, and what it will have said when it commits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, date, datetime
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import msgspec

from posthouse.clock import Clock, day_of
from posthouse.contracts import is_event
from posthouse.errors import ConfigurationError, StoreError, TransactionClosed
from posthouse.events.limits import wrong_text
from posthouse.options import Wait, misfit, moment_of
from posthouse.seam.context import EventContext
from posthouse.seam.current import current, during
from posthouse.seam.outward import EnvelopeBuilder
from posthouse.seam.seam import Seam
from posthouse.store import HeldEvent, OutboxRow, Parameters, Rows, Store, Timer, Transaction
from posthouse.store.sagas import SagaRef
from posthouse.store.savepoints import Fate

Begun = tuple[AbstractAsyncContextManager[object], "Tx"]
"""A transaction of a store, and a Tx around it."""
Begin = Callable[[EventContext], Awaitable[Begun]]

_numbers = itertools.count(1)

BLOCK = "this is a block, not a transaction yet: write `async with orders.transaction() as tx:` and use tx inside"


class Mark(NamedTuple):
    """What a Tx had to say at some moment."""

    rows: tuple[OutboxRow, ...] = ()
    timers: tuple[Timer, ...] = ()
    dropped: tuple[str, ...] = ()
    traced: int = 0
    """Of how many it is traced what becomes of them."""


class Tx:
    """What a handler, or `service.transaction()`, works with. Statements and events commit together or not at all."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_begun",
        "_builder",
        "_clock",
        "_closed",
        "_dropped",
        "_rows",
        "_savepoints",
        "_store",
        "_timers",
        "_traced",
        "_transaction",
        "_working",
        "came",
        "context",
        "holds",
        "turn_of",
    )

    def __init__(
        self, transaction: Transaction, store: Store, builder: EnvelopeBuilder, context: EventContext, clock: Clock
    ) -> None:
        self._transaction = transaction
        self._store = store
        self._builder = builder
        self._clock = clock
        self._rows: list[OutboxRow] = []
        self._timers: list[Timer] = []
        self._dropped: list[str] = []
        self._traced: list[str] = []
        """Ids of all that was said, where somebody traces what becomes of it."""
        self._savepoints = transaction.savepoints
        self._savepoints.follow(self)
        self._closed = False
        self._asked = self._begun = 0
        """Statements that were asked for, and those that were begun: whoever forgets an await does not begin his."""
        self._working = 0
        """What has begun and not ended."""
        self.context = context
        self.came: Callable[[], HeldEvent] | None = None
        """The event whose handler this is for, as it is held; None where there is none, or are several."""
        self.holds = False
        """Whether an event is held since then that is due when it commits."""
        self.turn_of: SagaRef | None = None
        """The saga whose turn this is, while one of its methods runs: what is started meanwhile is its child."""

    @property
    def tenant(self) -> str:
        """The tenant for whom this transaction works."""
        return self.context.tenant

    @property
    def replayed(self) -> bool:
        """Whether a handler runs here once more for an event that it was given before (`posthouse replay`): what it published
        then is not published again."""
        return self.context.cause is not None and self.context.cause.again

    @property
    def service(self) -> str:
        """The service that says what is published here."""
        return self._builder.service

    @property
    def closed(self) -> bool:
        """Whether its block was left."""
        return self._closed

    @property
    def store(self) -> Store:
        """The store whose transaction this is."""
        return self._store

    @property
    def clock(self) -> Clock:
        """The clock that it follows."""
        return self._clock

    @property
    def seam(self) -> Seam:
        """What is done with events here."""
        return self._builder.seam

    @property
    def today(self) -> date:
        """The day by that clock, in UTC."""
        return day_of(self._clock.now())

    @property
    def transaction(self) -> Transaction:
        """The store's transaction, for the tables that take part in it."""
        return self._transaction

    @property
    def connection(self) -> object:
        """The driver's own connection, for what `execute` cannot do. Never commit it."""
        return self._transaction.connection

    def execute(self, sql: str, parameters: Parameters = ()) -> Coroutine[Any, Any, Rows]:
        """Run one statement of yours in this transaction: `:name` and a mapping, or the driver's own style and a sequence.
        It has to be awaited: a transaction with a statement that was not is refused."""
        self._refuse_closed()
        if not isinstance(sql, str):
            raise StoreError(
                f"execute runs a statement that is text, not {sql!r:.60}; for objects of a library use its session"
            )
        self._asked += 1
        return self._execute(sql, parameters)

    async def _execute(self, sql: str, parameters: Parameters) -> Rows:
        self._refuse_closed()
        self._begun += 1
        self._working += 1
        try:
            return await self._transaction.execute(sql, parameters)
        finally:
            self._working -= 1

    def publish(
        self,
        payload: object,
        *,
        idempotency_key: str | None = None,
        after: float | None = None,
        at: datetime | None = None,
        timer: str | None = None,
    ) -> str:
        """Say a fact when this transaction commits; returns the event's id.

        `after` seconds later, if that is above 0, or `at` a moment with a time zone, by the store's clock, at once when it is
        past: then it is a timer, which `cancel` can stop by the name `timer` (the event's id unless given); a fact with a key
        draws its id anew when it fires, newer than all that its key said meanwhile. The same `idempotency_key` for the same
        tenant and topic is the same fact, said once; the id that stands is then the first one's, which is not known before
        the commit.
        """
        self._refuse_closed()
        later = None if after is None and at is None and timer is None else _wait("publish", after, at, timer)
        if timer is None and at is None and (later is None or later <= 0):
            rows = self._builder.build(payload, self.context, idempotency_key=idempotency_key)
            self.append(rows)
            return rows[0].event_id
        due_at, later = self._due(later, at)
        rows = self._builder.build(
            payload, self.context, at=max(due_at, self._clock.now()), idempotency_key=idempotency_key
        )
        self._trace(rows)
        names = self._names(timer or rows[0].event_id)
        timers = [Timer(name=name, due_at=due_at, after=later, row=row) for name, row in zip(names, rows, strict=False)]
        self._in_line(partial(self._set, names, timers))
        return rows[0].event_id

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """A part that may fail by itself: when the block raises, its statements are rolled back and what was said in it is
        unsaid, and the transaction can be used further. Savepoints that you set yourself, by a statement or with your
        library's nested transactions, are followed too."""
        name = f"posthouse_{next(_numbers)}"
        with self.working():
            await self.execute(f"SAVEPOINT {name}")
            try:
                yield
            except BaseException:
                await self.execute(f"ROLLBACK TO SAVEPOINT {name}")
                await self.execute(f"RELEASE SAVEPOINT {name}")
                raise
            await self.execute(f"RELEASE SAVEPOINT {name}")

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around what takes several steps, of which none may be committed without the others: a transaction whose block ends
        before this does is refused."""
        self._refuse_closed()
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1

    @contextmanager
    def in_turn_of(self, saga: SagaRef) -> Iterator[None]:
        """While a method of this saga runs."""
        before, self.turn_of = self.turn_of, saga
        try:
            with during(msgspec.structs.replace(current(), correlation=self.context.correlation)):
                yield
        finally:
            self.turn_of = before

    async def build(
        self, payload: object, extensions: Mapping[str, str], *, intent: str | None = None
    ) -> Sequence[OutboxRow]:
        """The rows that would say a fact, its own first; for whoever also keeps it elsewhere, and then gives them to `append`.
        `intent` is as for `EnvelopeBuilder.build`."""
        self._refuse_closed()
        rows = self._builder.build(payload, self.context, extensions=extensions, intent=intent)
        return await self._builder.finish(self._transaction, rows)

    def append(self, rows: Iterable[OutboxRow]) -> None:
        """Say what `build` has written when this transaction commits."""
        self._refuse_closed()
        rows = list(rows)
        self._trace(rows)
        if self._savepoints.late:
            asyncio.get_running_loop().call_soon(self._add, rows)
        else:
            self._rows += rows

    def publish_all(self, payloads: object) -> None:
        """What a handler returned: nothing, one payload, or several."""
        if payloads is None:
            return
        if is_event(payloads) or not isinstance(payloads, Iterable):
            payloads = (payloads,)
        for payload in payloads:
            self.publish(payload)

    async def schedule(
        self, payload: object, *, timer: str, after: float | None = None, at: datetime | None = None
    ) -> str:
        """Set a timer of the library's own at once rather than with the flush, so that whoever shares the transaction can
        cancel it, and the rows that go out stay the last thing before the commit; returns the event's id."""
        with self.working():
            due_at, after = self._due(after, at)
            row = self._builder.build_one(payload, self.context, at=max(due_at, self._clock.now()))
            self._trace([row])
            row = await self._builder.finish_timer(self._transaction, row)
            await self._store.timers.set(self._transaction, Timer(name=timer, due_at=due_at, after=after, row=row))
            return row.event_id

    async def cancel(self, timer: str) -> bool:
        """Stop a timer of this tenant, in every setting: what was stored before, and what this transaction has set since;
        False when it has fired or never was."""
        with self.working():
            _named(timer)
            await self.settled()
            first, *beside = self._names(timer)
            self._drop(beside)
            others = [waiting for waiting in self._timers if waiting.name != first]
            was_set_here, self._timers = len(others) < len(self._timers), others
            was_stored = await self._store.timers.cancel(self._transaction, self.tenant, first)
            return was_set_here or was_stored

    def _due(self, after: float | None, at: datetime | None) -> tuple[float, float | None]:
        """When a timer is due, and after how many seconds; None for a moment: the store's clock decides alone when that has
        come, whatever this one says."""
        if at is not None:
            return at.timestamp(), None
        later = max(after or 0.0, 0.0)
        return self._clock.now() + later, later

    def _names(self, timer: str) -> list[str]:
        """The names under which a timer and the older versions beside it are set."""
        return [timer, *(f"{timer} (older version {number})" for number, _ in enumerate(self._builder.older, 1))]

    def _drop(self, names: Sequence[str]) -> None:
        """Stop the timers of older versions: here at once, in the store with the next flush."""
        if names:
            self._timers = [waiting for waiting in self._timers if waiting.name not in names]
            self._dropped += names

    def _set(self, names: Sequence[str], timers: Sequence[Timer]) -> None:
        self._drop(names[1:])  # what had this name before may have had more versions
        self._timers += timers

    def _add(self, rows: Sequence[OutboxRow]) -> None:
        self._rows += rows

    def _in_line(self, change: Callable[[], None]) -> None:
        """Say it when everything was heard that was done before."""
        if self._savepoints.late:
            asyncio.get_running_loop().call_soon(change)
        else:
            change()

    async def settled(self) -> None:
        """Wait until everything was heard, and said, that was done so far."""
        if self._savepoints.late:
            await asyncio.sleep(0)

    def mark(self) -> Mark:
        """What was said so far, to look back or to go back to."""
        return Mark(tuple(self._rows), tuple(self._timers), tuple(self._dropped), len(self._traced))

    def appended_since(self, mark: Mark) -> list[tuple[OutboxRow, float | datetime]]:
        """What was said since a mark, each with the seconds after which it will be, or the moment."""
        timers = [timer for timer in self._timers if timer not in mark.timers]
        return [
            *((row, 0.0) for row in self._rows[len(mark.rows) :]),
            *((t.row, datetime.fromtimestamp(t.due_at, UTC) if t.after is None else t.after) for t in timers),
        ]

    def rewind(self, mark: Mark | None) -> None:
        """Unsay what was said since a mark, None: everything: whoever does so has rolled back the statements since then."""
        mark = mark or Mark()
        self._rows, self._timers, self._dropped = list(mark.rows), list(mark.timers), list(mark.dropped)
        if spans := self.seam.tracing.spans:
            spans.told(self._traced[mark.traced :], "rolled back")
            del self._traced[mark.traced :]

    def ended(self, fate: Fate, error: BaseException | None = None) -> None:
        """Whoever began the transaction tells what became of all that was said here."""
        if self._traced and (spans := self.seam.tracing.spans):
            spans.told(self._traced, fate, error)
            self._traced.clear()

    def begin_saga(self, saga: str, id: str, correlation: str) -> str | None:
        """The place in the trace of a saga that is started here: a traceparent."""
        if (spans := self.seam.tracing.spans) is None:
            return self.context.traceparent
        place = spans.begin(saga, id, correlation, self.context)
        if place is not None:
            self._traced.append(place)
        return place

    def _trace(self, rows: Iterable[OutboxRow]) -> None:
        spans = self._builder.seam.tracing.spans
        if spans is not None and (waiting := spans.waiting):
            self._traced += [row.event_id for row in rows if row.event_id in waiting]

    async def finish(self, *others: Tx) -> None:
        """The block ends, here and of others around the same transaction: from now on nothing is taken in, and then what was
        said is written. Whoever began the transaction calls it before the commit."""
        every = (self, *others)
        for tx in every:
            tx.close()  # before anything is counted: what came later would be counted by nobody
        for tx in every:
            tx._refuse_what_is_under_way()
        await self.flush(*others)

    async def flush(self, *others: Tx) -> None:
        """Write what was said so far, here and in others around the same transaction: the rows in one statement. What is said
        meanwhile stays for the next time."""
        await self.settled()
        for tx in (self, *others):
            tx._refuse_what_was_not_awaited()
        said = [(tx, tx._take()) for tx in (self, *others) if tx._rows or tx._timers or tx._dropped]
        if not said:
            return
        try:
            self._refuse_what_was_lost()
            await self._write_timers(said)
            if rows := [row for _, mark in said for row in mark.rows]:
                await self._builder.add(self._store.outbox, self._transaction, rows, with_commit=True)
        except BaseException:
            for tx, mark in said:
                tx._give_back(mark)
            raise

    async def flush_timers(self) -> None:
        """Write the timers alone, so that the next Tx around the same transaction can cancel them; rows stay for `flush`."""
        await self.settled()
        if self._timers or self._dropped:
            self._refuse_what_was_lost()
            timers = Mark(timers=tuple(self._timers), dropped=tuple(self._dropped))
            self._timers, self._dropped = [], []
            try:
                await self._write_timers([(self, timers)])
            except BaseException:
                self._give_back(timers)
                raise

    def _take(self) -> Mark:
        taken = self.mark()
        self._rows, self._timers, self._dropped = [], [], []
        return taken

    def _give_back(self, taken: Mark) -> None:
        self._rows[:0], self._timers[:0], self._dropped[:0] = taken.rows, taken.timers, taken.dropped

    def close(self) -> None:
        """The block was left: what is said or done from now on would be lost, and is refused."""
        self._closed = True

    def _refuse_closed(self) -> None:
        if self._closed:
            raise TransactionClosed(
                "the block of this transaction was left: what is said here now would never be sent. Do it inside the block, or "
                "begin another transaction"
            )

    def _refuse_what_was_not_awaited(self) -> None:
        if self._asked != self._begun:
            raise StoreError(
                f"{self._asked - self._begun} of the statements of this transaction never ran, so that it is rolled back: write "
                "`await tx.execute(…)`"
            )

    def _refuse_what_is_under_way(self) -> None:
        if self._working:
            raise StoreError(
                "the block of this transaction was left while another task still worked in it, so that it is rolled back: await "
                "inside of the block whatever you give the transaction to"
            )

    def _refuse_what_was_lost(self) -> None:
        if lost := self._savepoints.lost:
            raise StoreError(
                f"{lost}: what was said since cannot be told from what was rolled back. Use `async with tx.savepoint():`"
            )

    async def _write_timers(self, said: Sequence[tuple[Tx, Mark]]) -> None:
        """Timers before rows, as those that are set and cancelled at once are, and sorted: whoever locks in another order
        could wait for us while we wait for him."""
        steps: list[tuple[str, str, Timer | None]] = [
            (tx.tenant, name, None) for tx, mark in said for name in mark.dropped
        ]
        steps += [(tx.tenant, timer.name, timer) for tx, mark in said for timer in mark.timers]
        for tenant, name, timer in sorted(
            steps, key=lambda step: step[:2]
        ):  # of one name in the order in which they came
            if timer is None:
                await self._store.timers.cancel(self._transaction, tenant, name)
            else:
                row = await self._builder.finish_timer(self._transaction, timer.row)
                await self._store.timers.set(self._transaction, msgspec.structs.replace(timer, row=row))


def _named(timer: str | None) -> None:
    """ConfigurationError for a name that is none."""
    if timer == "":
        raise ConfigurationError("a timer's name may not be empty: leave it out, or give it one")
    if wrong := wrong_text((("timer", timer),)):
        raise ConfigurationError(wrong)


def _wait(owner: str, after: float | None, at: datetime | None, timer: str | None) -> float | None:
    """How many seconds a timer waits; None when it has a moment. ConfigurationError for one that has no time, or two."""
    _named(timer)
    if at is not None:
        moment_of(owner, at)
        if after is not None:
            raise ConfigurationError(f"{owner}(after={after!r}, at=…) says two times: leave one out")
        return None
    if after is None:
        raise ConfigurationError(
            f"timer={timer!r} names a timer that has no time: give after=… too, in seconds, or at=…"
        )
    if problem := misfit(owner, "after", after, Wait):
        raise ConfigurationError(problem)
    return after


class TransactionScope:
    """`async with`: a transaction whose facts are written just before it commits. Written out, because a generator
    would cost every publish more than all of this."""

    __slots__ = ("_begin", "_context", "_transaction", "_tx")

    def __init__(self, begin: Begin, context: EventContext) -> None:
        self._begin = begin
        self._context = context

    async def __aenter__(self) -> Tx:
        self._transaction, self._tx = await self._begin(self._context)
        return self._tx

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                await self._tx.finish()
            except BaseException as failed:
                await self._transaction.__aexit__(type(failed), failed, failed.__traceback__)
                raise
        self._tx.close()
        await self._transaction.__aexit__(kind, error, trace)

    def __enter__(self) -> NoReturn:
        raise ConfigurationError(
            "a transaction is begun with `async with`; code without an event loop begins its own, and publishes with "
            "`outbox.add_now(…)` or `with outbox.joined(…)`"
        )

    def __exit__(self, *_: object) -> None: ...

    def __await__(self) -> NoReturn:
        raise ConfigurationError(BLOCK)

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("cancel", "execute", "publish", "savepoint"):
            raise ConfigurationError(BLOCK)
        raise AttributeError(f"a transaction that was not begun has no {name!r}: {BLOCK}")
