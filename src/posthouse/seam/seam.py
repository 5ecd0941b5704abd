"""Seam: what happens to an event wherever it crosses from one world into another. All five crossings are on this page.

| crossing | steps, in their order | where |
|---|---|---|
| a fact on its way out | rights, validate, rules, quota, encrypt, claim check, sign, number, seal, row | `outward.py` |
| a frame on its way in | limit, verify, decode, prove; gather, fetch, decrypt; guard, decode, lift | `inward.py` |
| a call of a handler | time, deadline | `call`, `handling.py` |
| the broker's publish and receive | | `publish`, `receive` |
| a transaction of the store | | `transaction` |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from types import TracebackType

from posthouse.broker import Broker, Delivery, Frame, Stream, Verdict
from posthouse.contracts import EventType
from posthouse.errors import CommitUnknown
from posthouse.events import Event
from posthouse.options import Options
from posthouse.seam.counting import Counting
from posthouse.seam.failures import Failures
from posthouse.seam.rules import Rules
from posthouse.seam.seals import Seals
from posthouse.seam.spans import UNSEEN, Processed, Span, Tracing
from posthouse.seam.timing import OK, Measured, Timing, outcome_of
from posthouse.store import Transaction
from posthouse.store.savepoints import Fate

OutwardStep = Callable[[Transaction, Sequence[Event[bytes]]], Awaitable[Sequence[Event[bytes]]]]
"""Run when a transaction is flushed, over the facts that go out with it: returns them, as many and in the same order, perhaps with
other data or extensions. Whatever it raises ends the transaction before its commit: a named error of `posthouse.errors`."""

Allows = Callable[[str, EventType[object], str], None]
"""Asked for each fact as it is published: the service, its type, its tenant. It raises RuleBroken for one that this service may not
say, and is no coroutine function."""

Verify = Callable[[Frame], None]
"""Run on every frame that is received, before it is decoded. It raises FrameRefused for one that may not come in."""

InwardStep = Callable[[Event[bytes]], Awaitable[Event[bytes]]]
"""Run before the transaction of an event's handler: returns it, perhaps with other data. FrameRefused quarantines the event; any
other error is a failure of its handler."""


class Seam(Options):
    """What a process does at each crossing. A step that is None is not there, and costs nothing."""

    rules: Rules = dataclasses.field(default_factory=Rules)
    """What may be published: see `Rules`."""
    rights: Allows | None = None
    """Who may publish it: `App(…, rights=Rights(…))` puts it here."""
    quota: OutwardStep | None = None
    encrypt: OutwardStep | None = None
    claim_check: OutwardStep | None = None
    sign: OutwardStep | None = None
    verify: Verify | None = None
    fetch: InwardStep | None = None
    decrypt: InwardStep | None = None
    gather: Callable[[Sequence[Event[bytes]]], Awaitable[None]] | None = None
    """Told of several events that are about to be opened together, to ask once for what all of them need."""
    conceal: Callable[[Event[bytes]], Event[bytes]] | None = None
    """What may be kept in a history of a fact before it is encrypted; None: all of it."""
    seals: Seals | None = None
    """What proves facts: asked of each that comes in, and given to each that goes out where this process `signs`."""
    signs: bool = False
    timing: Timing = dataclasses.field(default_factory=Timing)
    """How long each crossing took, and how it ended."""
    counting: Counting = dataclasses.field(default_factory=Counting)
    """What was done, as numbers; `App(…, tenant_class=…)` tells it the classes of tenants."""
    failures: Failures = dataclasses.field(default_factory=Failures)
    """Where failures are told; `App(…, on_failure=…)` gives it a hook."""
    tracing: Tracing = dataclasses.field(default_factory=Tracing)
    """Who begins spans, if anybody does."""

    @cached_property
    def at_flush(self) -> Sequence[OutwardStep]:
        """The outward steps that wait for the flush, in their order."""
        steps = (self.quota, self.encrypt, self.claim_check, self.sign)
        return tuple(step for step in steps if step is not None)

    @property
    def sealing(self) -> Seals | None:
        """What facts on their way out are sealed with, if they are."""
        return self.seals if self.signs else None

    @cached_property
    def before_handler(self) -> Sequence[InwardStep]:
        """The inward steps that may wait for others: no transaction is open then."""
        return tuple(step for step in (self.fetch, self.decrypt) if step is not None)

    def call(self, handler: str) -> Measured:
        """Around a call of a handler."""
        return self.timing.measure("handler", handler)

    async def publish(self, broker: Broker, by: str, frames: Sequence[Frame]) -> Sequence[Verdict]:
        """`Broker.publish`, for the service `by`."""
        spans = self.tracing.spans
        with (
            UNSEEN if spans is None else spans.send(by, frames) as span,
            self.timing.measure("publish", by) as crossing,
        ):
            verdicts = await broker.publish(frames)
            if not all(verdict.accepted for verdict in verdicts):
                crossing.outcome = "refused"
                span.says("refused")
        return verdicts

    def processing(self, consumer: str, handler: str, events: Sequence[Processed], attempt: int, now: float) -> Span:
        """Around a run of a handler with its transaction, for events of one consumer."""
        spans = self.tracing.spans
        return UNSEEN if spans is None else spans.process(consumer, handler, events, attempt, now)

    async def receive(self, stream: Stream, consumer: str, limit: int, wait: float) -> Sequence[Delivery]:
        """`Stream.receive`, for a consumer. `empty`: it waited, and nothing came."""
        with self.timing.measure("receive", consumer) as crossing:
            received = await stream.receive(limit, wait)
            if not received:
                crossing.outcome = "empty"
        return received

    def transaction(self, by: str, block: AbstractAsyncContextManager[Transaction]) -> TransactionCrossing:
        """Around a transaction of a store, from its beginning to its commit."""
        return TransactionCrossing(self, by, block)


class TransactionCrossing:
    """`async with`: the block inside, measured. What it is left with is its outcome."""

    __slots__ = ("_began", "_block", "_by", "_timing", "_tracing", "_transaction")

    def __init__(self, seam: Seam, by: str, block: AbstractAsyncContextManager[Transaction]) -> None:
        self._timing = seam.timing
        self._tracing = seam.tracing
        self._by = by
        self._block = block

    async def __aenter__(self) -> Transaction:
        self._began = self._timing.now()
        try:
            self._transaction = await self._block.__aenter__()
        except BaseException as error:
            self._timing.note("transaction", self._by, self._began, outcome_of(error))
            raise
        return self._transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fate: Fate = "committed" if error is None else "rolled back"
        try:
            await self._block.__aexit__(kind, error, trace)
        except BaseException as failed:
            if failed is not error:
                error, fate = failed, fate_of(failed) if kind is None else fate
            raise
        finally:
            self._timing.note("transaction", self._by, self._began, OK if error is None else outcome_of(error))
            if self._tracing.spans is not None:
                self._transaction.savepoints.end(fate, error)


def fate_of(error: BaseException) -> Fate:
    """What became of the facts of a transaction whose commit ended so. Whoever was cancelled in it did not see it rolled back."""
    return "rolled back" if isinstance(error, Exception) and not isinstance(error, CommitUnknown) else "unknown"
