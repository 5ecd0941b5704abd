"""Outbox: the way in for people who already have a transaction of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from posthouse.errors import EventError
from posthouse.events import UNNAMED, Actor
from posthouse.seam.context import EventContext
from posthouse.seam.current import context_here
from posthouse.seam.outward import EnvelopeBuilder
from posthouse.sending.synchronous import SyncTx, drive, join_now, on_a_loop
from posthouse.sending.transaction import Tx
from posthouse.store import OutboxRow, Store, Transaction

Rows = list[OutboxRow]


class Outbox:
    """Adds events to a connection or session that somebody else began and will commit. Adding never commits.

    What can be joined is up to the store; `posthouse.stores.sessions` lists it. `writes` says, at each use, in which store facts are
    kept and what writes their envelopes; `whose`, for which tenant, or raises EventError where none was named.
    """

    def __init__(self, writes: Callable[[], tuple[Store, EnvelopeBuilder]], whose: Callable[[str], str]) -> None:
        self._writes = writes
        self._whose = whose

    @on_a_loop
    async def add(
        self,
        theirs: object,
        *payloads: object,
        tenant: str = UNNAMED,
        correlation: str | None = None,
        causation: str | None = None,
        actor: Actor | None = None,
        idempotency_key: str | None = None,
    ) -> Sequence[str]:
        """Add facts to their open transaction; returns the event ids. An id that was there before comes back when the
        idempotency key was used already. What you do not say of correlation and actor is that of the request or the event in hand."""
        context = context_here(self._whose(tenant), correlation=correlation, causation=causation, actor=actor)
        store, builder = self._writes()
        return await _add(store, builder, store.join(theirs), payloads, context, idempotency_key)

    def add_now(
        self,
        theirs: object,
        *payloads: object,
        tenant: str = UNNAMED,
        correlation: str | None = None,
        causation: str | None = None,
        actor: Actor | None = None,
        idempotency_key: str | None = None,
    ) -> Sequence[str]:
        """`add` for code without an event loop: their connection or session must be a synchronous one."""
        context = context_here(self._whose(tenant), correlation=correlation, causation=causation, actor=actor)
        store, builder = self._writes()
        return drive(_add(store, builder, join_now(store, theirs), payloads, context, idempotency_key))

    @contextmanager
    def joined(
        self,
        theirs: object,
        tenant: str = UNNAMED,
        *,
        correlation: str | None = None,
        actor: Actor | None = None,
        traceparent: str | None = None,
    ) -> Iterator[SyncTx]:
        """`service.joined` for code without an event loop, on a synchronous connection or session: to publish, also later,
        to start sagas and decide on aggregates. What was said is written when the block ends; whether it stays is up to you."""
        context = context_here(self._whose(tenant), correlation=correlation, actor=actor, traceparent=traceparent)
        store, builder = self._writes()
        transaction = join_now(store, theirs)
        detach = drive(transaction.attend())
        tx = Tx(transaction, store, builder, context, builder.clock)
        bridge = SyncTx(tx)
        try:
            yield bridge
            drive(tx.finish())
            tx.ended("written")
        except BaseException as error:
            tx.ended("rolled back", error)
            raise
        finally:
            tx.close()
            bridge.close()
            detach()


async def _add(
    store: Store,
    builder: EnvelopeBuilder,
    transaction: Transaction,
    payloads: Sequence[object],
    context: EventContext,
    idempotency_key: str | None,
) -> Sequence[str]:
    if idempotency_key is not None and len(payloads) != 1:
        raise EventError("an idempotency key stands for one fact: add the others in a call of their own")
    facts = [builder.build(payload, context, idempotency_key=idempotency_key) for payload in payloads]
    spans, built = builder.seam.tracing.spans, [row for fact in facts for row in fact]
    try:
        ids = await builder.add(store.outbox, transaction, built)
    except BaseException as error:
        if spans is not None:
            spans.told([row.event_id for row in built], "rolled back", error)
        raise
    if spans is not None:
        spans.told([row.event_id for row in built], "written")
    return _firsts(ids, facts)


def _firsts(ids: Sequence[str], facts: Sequence[Rows]) -> Sequence[str]:
    """Of the ids of all rows, those of the facts as they were given: the first of its versions each."""
    found, place = [], 0
    for rows in facts:
        found.append(ids[place])
        place += len(rows)
    return found
