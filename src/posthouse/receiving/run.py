"""Run: the call of a handler, of one event, of several of different keys, or of a list; and what it publishes."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from posthouse.clock import Clock
from posthouse.errors import ContractError, RetryNow
from posthouse.events import Event
from posthouse.pulse import alive
from posthouse.receiving.collisions import despite_collisions
from posthouse.receiving.fact import Fact
from posthouse.receiving.handler import Answer, Call, Handler
from posthouse.receiving.inbound import InboundEvent
from posthouse.seam import EnvelopeBuilder, SchemaGuard, Seam, VersionUsage, context_of
from posthouse.seam.current import current, handling_all
from posthouse.seam.intent import Cause
from posthouse.seam.inward import open_data, open_payload
from posthouse.sending import Tx
from posthouse.store import Store, Transaction

T = TypeVar("T")


class Ran(NamedTuple):
    """What came of a run. `holds`: an event is held since then that is due once this is committed. `known`: another version of
    their fact was applied before, and their handler was not called."""

    holds: bool = False
    known: Sequence[InboundEvent] = ()


@dataclasses.dataclass(frozen=True)
class Runner:
    """Runs the handlers of one consumer."""

    consumer: str
    store: Store
    builder: EnvelopeBuilder
    clock: Clock
    guard: SchemaGuard
    version_usage: VersionUsage
    seam: Seam
    unreadable: Callable[[str], None] = lambda _: None
    """Told, in a short word, why a payload could not be read."""

    async def ask(self, inbound: InboundEvent) -> Answer:
        """Call outside, with no transaction open; empty where the handler asks nobody."""
        if inbound.event is None or inbound.handler is None or inbound.handler.calling is None:
            return ()
        handler, event = inbound.handler, self._typed(inbound.handler, inbound.event)
        about: object = event
        if handler.preparing is not None:
            about = await despite_collisions(partial(self._prepare, handler.preparing, event), self.consumer)
            if about is None:
                return (None,)
        answer = await handler.ask(self.seam, about)
        alive()
        return answer

    async def _prepare(self, prepare: Callable[[Event[object], Tx], Awaitable[object]], event: Event[object]) -> object:
        """What is to be called about; committed before anybody is."""
        async with self.seam.transaction(self.consumer, self.store.begin(None, tenant=event.tenant)) as transaction:
            tx = self._tx(transaction, event)
            try:
                about = await prepare(event, tx)
                await tx.finish()
                return about
            finally:
                tx.close()

    async def opened(self, events: Sequence[InboundEvent]) -> Sequence[InboundEvent]:
        """The events with the data that their producers meant, with no transaction open."""
        if not self.seam.before_handler:
            return events
        if self.seam.gather is not None and len(events) > 1:
            await self.seam.gather([one.event for one in events if one.event is not None and one.handler is not None])
        return [
            one
            if one.event is None or one.handler is None
            else msgspec.structs.replace(one, event=await open_data(self.seam, one.event))
            for one in events
        ]

    async def run(self, tx: Transaction, events: Sequence[InboundEvent], answer: Answer = ()) -> Ran:
        """Call the one handler of these events, and write what it publishes."""
        handler = events[0].handler if events else None
        if handler is None:
            return Ran()
        if handler.calling is not None and not answer:
            raise RetryNow("its turn came only after nobody had been asked")
        known: Sequence[InboundEvent] = ()
        if any(one.fact is not None for one in events):
            known = [one for one in events if one.fact is not None and not await self._is_first(tx, one.fact)]
            events = [one for one in events if one not in known] if known else events
            if not events:
                return Ran(known=known)
        self._note(events)
        typed = [self._typed(handler, one.event) for one in events if one.event is not None]
        groups = by_tenant(typed, lambda event: event.tenant) if handler.many else [[event] for event in typed]
        run = current().attempt or 1
        calls = [
            Call(
                self._tx(tx, group[0], alone=not handler.many),
                group if handler.many else group[0],
                answer,
                handling_all(group, self.consumer, run),
            )
            for group in groups
        ]
        if not handler.many:
            for call, inbound in zip(calls, (one for one in events if one.event is not None), strict=True):
                call.tx.came = partial(inbound.to_held, self.consumer, "retrying", "")
        try:
            results = await handler.run(self.seam, self.store, tx, calls)
            for call, result in zip(calls, results, strict=True):
                call.tx.publish_all(result)
            first, *others = [call.tx for call in calls]
            await first.finish(*others)
            return Ran(any(call.tx.holds for call in calls), known)
        finally:
            for call in calls:
                call.tx.close()  # for whatever the handler has left behind

    def _tx(self, tx: Transaction, event: Event[object], *, alone: bool = True) -> Tx:
        """`alone`: what it says follows from this event. Which others are in a list with it is another matter each time."""
        cause = Cause(self.consumer, event.id, again=event.replayed) if alone else None
        return Tx(tx, self.store, self.builder, context_of(event, cause), self.clock)

    def _typed(self, handler: Handler, event: Event[bytes]) -> Event[object]:
        try:
            return open_payload(self.guard, handler.by_name[event.type], handler.lifts.get(event.type, ()), event)
        except ContractError:
            self.unreadable("contract")
            raise

    def _note(self, events: Sequence[InboundEvent]) -> None:
        now = self.clock.now()
        for name in {one.event.type for one in events if one.event is not None}:
            self.version_usage.note("applied", self.consumer, name, now)

    async def _is_first(self, tx: Transaction, fact: Fact) -> bool:
        """Whether no other version of the fact was applied; from here on, one was."""
        return all(await self.store.inbox.claim(tx, self.consumer, [fact.entry]))


def by_tenant(these: Sequence[T], tenant_of: Callable[[T], str]) -> list[list[T]]:
    """One list per tenant. A handler that takes a list gets these, because what it publishes belongs to one tenant."""
    lists: dict[str, list[T]] = {}
    for one in these:
        lists.setdefault(tenant_of(one), []).append(one)
    return list(lists.values())
