"""Executor: what happens to the events of one consumer, step by step.

| step | what | where |
|---|---|---|
| receive | frames from the broker into the queue of their keys | `consumer.py`, `key_queue.py` |
| decode | the envelope, within limits; what cannot be read goes on as such | `inbound.py`, `seam/inward.py` |
| order | where the event stands in its key, a pure decision | `order.py` |
| claim | recorded as applied, or held, quarantined, dropped | `claim.py` |
| run | payload, handler, what it publishes | `run.py`, `seam/handling.py` |
| settle | committed; or, after a failure, tried again, dead, quarantined | `settle.py`, `policy.py` |
| acknowledge | after the commit, never before | `consumer.py` |

Order, claim and run are one transaction. Events that share one, lists of events, and held events whose time has come go the
same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial

from posthouse.clock import Clock
from posthouse.errors import (
    CommitUnknown,
    ContractsUnavailable,
    RetryNow,
    SecretsUnavailable,
    StoreCollision,
    StoreFull,
    StoreUnavailable,
    TransactionClosed,
    ValueRefused,
)
from posthouse.pulse import alive
from posthouse.receiving.claim import Claimer
from posthouse.receiving.collisions import despite_collisions
from posthouse.receiving.handler import Answer, Handler
from posthouse.receiving.inbound import Decoder, InboundEvent
from posthouse.receiving.outcomes import Outcomes
from posthouse.receiving.policy import Again, Dead, Outcome, Quarantine, decide
from posthouse.receiving.run import Runner, by_tenant
from posthouse.receiving.settle import Settler
from posthouse.seam import EnvelopeBuilder, SchemaGuard, Seam, VersionUsage
from posthouse.seam.current import Current, during, handling
from posthouse.seam.schema_guard import SchemaUnknown
from posthouse.seam.spans import UNSEEN, Span
from posthouse.store import HeldEvent, Store

log = logging.getLogger("posthouse.consumer")

NOTHING_KNOWN = (StoreUnavailable, StoreFull, CommitUnknown)
"""The database's trouble, not the event's: no attempt is counted, the broker delivers again, the inbox decides."""

OUTCOMES: Mapping[type[Outcome], str] = {Again: "retry", Dead: "dead", Quarantine: "quarantined"}
"""What follows a failure, in a word."""

CALLS = 16
"""How many calls to the outside one consumer makes at once, unless the settings say otherwise."""

Learn = Callable[[SchemaUnknown, float], Awaitable[None]]
"""Has a guard know a schema, or know that there is none, after an event has waited for so many seconds; ContractsUnavailable while that
cannot be told."""


async def ask_nobody(unknown: SchemaUnknown, waited: float) -> None:
    unknown.guard.asked(unknown.place, unknown.content_hash)


@dataclasses.dataclass(frozen=True)
class Executor:
    """Executes events for one consumer. Returning means: committed, as applied or held or known already. What it raises
    is the database's trouble, and then nothing is known."""

    consumer: str
    handlers: Mapping[str, Handler]
    ordered: Mapping[str, bool]
    """Per topic: whether its events are applied in the order of their keys."""
    adopts: Mapping[str, bool]
    """Per topic: whether the first number seen of a key counts as its beginning."""
    store: Store
    builder: EnvelopeBuilder
    clock: Clock
    limit: int
    """Bytes of the largest body that is looked at."""
    guard: SchemaGuard = dataclasses.field(default_factory=SchemaGuard)
    """What is known about the schemas that events name."""
    version_usage: VersionUsage = dataclasses.field(default_factory=VersionUsage)
    """Where it is noted which versions were applied."""
    seam: Seam = dataclasses.field(default_factory=Seam)
    foreign: Callable[[str], bool] = lambda _: False
    """Whether a type without a handler here is one that another release has a handler for: it is never passed over, but left to
    a process that knows it."""
    calls: int = CALLS
    """How many calls to the outside are made at once."""
    replays: Callable[[], bool] = lambda: False
    """Whether what it runs was run before by others, and is read anew."""
    learn: Learn = ask_nobody
    """Asks where contracts are published for a schema that is not known here."""
    due: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """Set when a held event has become due, so that nobody has to look for it."""

    def __post_init__(self) -> None:
        self.outcomes  # noqa: B018  # its figures are there, as 0, before the first event

    @cached_property
    def decoder(self) -> Decoder:
        return Decoder(
            self.consumer, self.handlers, self.ordered, self.limit, self.seam, unreadable=self.outcomes.unreadable
        )

    @cached_property
    def claimer(self) -> Claimer:
        return Claimer(self.consumer, self.handlers, self.adopts, self.store, self.seam.failures)

    @cached_property
    def runner(self) -> Runner:
        return Runner(
            self.consumer, self.store, self.builder, self.clock, self.guard, self.version_usage, self.seam,
            unreadable=self.outcomes.unreadable,
        )  # fmt: skip

    @cached_property
    def settler(self) -> Settler:
        return Settler(self.claimer, self.clock, self.seam.failures)

    @cached_property
    def outcomes(self) -> Outcomes:
        return Outcomes(self.builder.service, self.consumer, self.ordered, self.seam, self.clock)

    @property
    def workers(self) -> int:
        """How many events are usefully in work at once: those that call outside wait for others, not for the store."""
        calls = any(handler.calling is not None for handler in self.handlers.values())
        return max(self.store.writers, self.calls) if calls else self.store.writers

    async def execute(self, events: Sequence[InboundEvent]) -> None:
        """Deal with events of one handler in one transaction without savepoints, those of one key in their order; one by one
        if anything fails. Where the store keeps tenants apart, in one transaction for each tenant."""
        apart = len(events) > 1 and self.store.isolated
        for group in by_tenant(events, lambda one: one.entry.tenant) if apart else [events]:
            alone = len(group) == 1 or any(map(self._is_foreign, group))
            if alone or not await self._execute_together(group):
                for inbound in group:
                    await self._execute_alone(inbound)

    async def retry(self, held: HeldEvent) -> None:
        """Run a held event whose turn has come; its attempt is counted already."""
        inbound = self.decoder.from_held(held)
        with during(self._handling(inbound, held.attempts)):
            await self._retry(inbound, held)

    def concerning(self, held: HeldEvent) -> Current:
        """What is current while a held event is dealt with."""
        return self._handling(self.decoder.from_held(held), held.attempts)

    async def refuse_stray(self, held: HeldEvent) -> None:
        """Look at a held event that is due and whose turn never comes: whether somebody has moved it."""
        inbound = self.decoder.from_held(held)
        if inbound.refused:
            with during(self._handling(inbound, held.attempts)):
                await self._refuse(inbound, held)

    async def _refuse(self, inbound: InboundEvent, held: HeldEvent) -> None:
        self.outcomes.failed(inbound, 0.0)
        await self.settler.refuse(inbound, held)
        self.due.set()

    async def _retry(self, inbound: InboundEvent, held: HeldEvent) -> None:
        if inbound.refused:
            await self._refuse(inbound, held)
            return
        if self._is_foreign(inbound):
            await self.settler.leave_to_others(inbound)
            return
        if await self.settler.spent(inbound, held):
            return
        if not held.type and inbound.event is not None:
            with contextlib.suppress(
                ValueRefused
            ):  # no store keeps it as what it says it is: it is run under its digest
                await self.settler.let_in(self.decoder.let_in(inbound, inbound.event), held)
                self.due.set()
                return
        await self._execute_alone(inbound)

    def _is_foreign(self, inbound: InboundEvent) -> bool:
        return inbound.handler is None and inbound.event is not None and self.foreign(inbound.event.type)

    async def _execute_together(self, events: Sequence[InboundEvent]) -> bool:
        """False: nothing was done, and each is to be tried by itself."""
        with self._span(events, 1) as span:
            try:
                await self._transact(await self.runner.opened(events), span)
            except Exception as error:
                if isinstance(error, NOTHING_KNOWN) and not isinstance(error, StoreCollision):
                    raise
                if isinstance(error, TransactionClosed) and await self.settler.ended_by_commit(events, error):
                    span.says("quarantined", error)
                    return True
                span.says("one by one", error)
                kind = type(error).__name__  # whose words these are is told when it fails by itself
                log.info("%s: a group of %d is redone one by one: %s", self.consumer, len(events), kind)
                return False
            return True

    def _span(self, events: Sequence[InboundEvent], attempt: int) -> Span:
        """Around a run; of what has no handler nobody wants to know."""
        handler = events[0].handler
        if handler is None:
            return UNSEEN
        now = math.inf if self.replays() else self.clock.now()  # what is read anew is old, whenever it was said
        return self.seam.processing(self.consumer, handler.name, events, attempt, now)

    async def _execute_alone(self, inbound: InboundEvent) -> None:
        """One event, in one transaction, or two when its handler fails."""
        attempts = 0 if inbound.held is None else inbound.held.attempts - 1
        if self._is_foreign(inbound):
            with during(self._handling(inbound, attempts + 1)):
                await self.settler.leave_to_others(inbound)
            return
        while True:
            attempts += 1
            alive()
            with during(self._handling(inbound, attempts)) as here, self._span([inbound], attempts) as span:
                if await self._run_alone(inbound, attempts, here, span):
                    return

    async def _run_alone(self, inbound: InboundEvent, attempts: int, here: during, span: Span) -> bool:
        """Run number `attempts` of one event; False when it is to be run again at once."""
        began = self.seam.timing.now()
        try:
            opened = await self.runner.opened([inbound])
            if opened[0] is not inbound:
                here.become(self._handling(opened[0], attempts))
            await self._transact(opened, span, await self._ask(opened[0]))
            return True
        except NOTHING_KNOWN:
            raise
        except SecretsUnavailable as error:
            span.says("retry", error)
            await self.settler.wait_for(inbound, error)
            self.due.set()
            return True
        except SchemaUnknown as error:
            span.says("retry", error)
            if await self._learned(inbound, error):
                return await self._run_alone(inbound, attempts, here, span)
            self.due.set()
            return True
        except Exception as error:
            outcome = decide(inbound.policy, error, attempts)
            if not (isinstance(error, RetryNow) and isinstance(outcome, Again)):  # which is no failure
                self.outcomes.failed(inbound, self.seam.timing.now() - began)
            new = inbound.held is None
            if new and isinstance(error, TransactionClosed) and await self.settler.ended_by_commit([inbound], error):
                span.says("quarantined", error)
                return True
            span.says(OUTCOMES[type(outcome)], error)
            if new and outcome == Again(0.0):  # what is held is run again by whoever runs held events
                self.settler.report(inbound, error, outcome, attempts)
                return False
            await self.settler.settle(inbound, error, outcome, attempts)
            self.due.set()
            return True

    async def _learned(self, inbound: InboundEvent, unknown: SchemaUnknown) -> bool:
        """Whether it can be told now what its schema is, with no transaction open; False: it waits."""
        waited = 0.0 if inbound.held is None else inbound.held.last_at - inbound.held.first_at
        try:
            await self.learn(unknown, waited)
        except ContractsUnavailable as error:
            await self.settler.wait_for(inbound, error)
            return False
        return True

    def _handling(self, inbound: InboundEvent, attempt: int) -> Current:
        event, handler = inbound.event, inbound.handler
        known = None if event is None or handler is None else handler.by_name.get(event.type)
        return handling(event, self.consumer, attempt, None if known is None else known.payload.cls)

    async def _ask(self, inbound: InboundEvent) -> Answer:
        """What the outside says to an event that is ours to run, as far as can be seen before it is claimed."""
        if inbound.handler is None or inbound.handler.calling is None or inbound.redelivered:
            return ()
        if inbound.held is None:
            async with self.store.begin(tenant=inbound.entry.tenant) as tx:
                if not await self.claimer.is_next(tx, inbound):
                    return ()
        return await self.runner.ask(inbound)

    async def _transact(self, events: Sequence[InboundEvent], span: Span, answer: Answer = ()) -> None:
        """One transaction, for the tenant of the events and in the shape that their handler wants."""
        if await despite_collisions(partial(self._claim_and_run, events, span, answer), self.consumer):
            self.due.set()  # committed: whoever runs held events may look now

    async def _claim_and_run(self, events: Sequence[InboundEvent], span: Span, answer: Answer) -> bool:
        """True when a held event has become due. What was begun outside is told whoever prepared it, also when somebody else
        has applied or skipped the event meanwhile."""
        handler, tenant = events[0].handler, events[0].entry.tenant
        began = self.seam.timing.now()
        begun = self.store.begin(None if handler is None else handler.view, tenant=tenant, lazily=True)
        async with self.seam.transaction(self.consumer, begun) as tx:
            claimed = await self.claimer.claim(tx, events)
            span.says("applied" if claimed.events else "not run")
            told = answer and handler is not None and handler.preparing is not None
            ran = await self.runner.run(tx, events if told else claimed.events, answer)
        self.outcomes.committed(events, claimed.but_for(ran.known), self.seam.timing.now() - began)
        return claimed.due or ran.holds
