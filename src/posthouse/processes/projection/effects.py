"""Effects: what a read model says of an event, once, whichever of its generations apply that event, and when.

The effect of an event belongs to the projection, not to a generation. A live one notes it as said in the transaction in which
it says it, so that nobody says it again. One that is being built says nothing: what its handlers say of an event that no live
one has applied yet is left to the swap, where it is said, unless the live one was faster. Of events that it has only read
again the live one has said everything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager

import msgspec

from posthouse.clock import Clock
from posthouse.contracts import EventType, event_type_for
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.events import PLATFORM, Event
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.model import Publish
from posthouse.seam import context_of
from posthouse.seam.context import EventContext
from posthouse.seam.intent import Cause
from posthouse.sending import Tx
from posthouse.store import OutboxRow, Store, Transaction
from posthouse.store.projections import Effect

KEPT = 30 * 86_400.0
"""Seconds for which it is noted what was said. What is older and not noted was said: a live generation that is so far behind
is no longer one to read from."""

Speaks = Callable[[str, Transaction, EventContext], Tx]
"""A Tx for a service, on a transaction."""

_rows = msgspec.json.Decoder(tuple[OutboxRow, ...])


@dataclasses.dataclass(frozen=True)
class Effects:
    """Those of one generation. `inherits` are the events of which the live one notes what was said: of others nothing was ever
    said, and nothing is before the swap."""

    projection: Projection
    number: int
    store: Store
    clock: Clock
    speaks: Speaks
    inherits: Collection[str] = ()

    def saying(self, transaction: Transaction, tx: Tx | None) -> Saying:
        """For the events of one transaction; aloud by `tx`, or not."""
        return Saying(self, transaction, tx)

    async def say_left(self, tx: Transaction) -> None:
        """In the transaction of the swap: what was left to it."""
        left = await self.store.projections.left(self.projection.consumer, self.number)
        for tenant in dict.fromkeys(effect.tenant for effect in left):
            await self.store.projections.turn_to(tx, tenant)
            speaking = self.speaks(self.projection.service, tx, EventContext(tenant=tenant))
            for effect in left:
                if effect.tenant == tenant and await self._is_first(tx, tenant, effect.event_id):
                    speaking.append(_rows.decode(effect.facts))
            await speaking.finish()
        if left:
            await self.store.projections.turn_to(tx, PLATFORM)

    async def _is_first(self, tx: Transaction, tenant: str, event_id: str) -> bool:
        return await self.store.projections.say(tx, self.projection.consumer, tenant, event_id)


class Saying:
    """What is said of the events of one transaction. `aloud`: of the event in hand."""

    def __init__(self, effects: Effects, transaction: Transaction, tx: Tx | None) -> None:
        self._effects = effects
        self._transaction = transaction
        self._tx = tx
        self._unsaid: list[tuple[Event[object], list[object]]] = []
        self.aloud = False

    async def of(self, event: Event[object]) -> Publish:
        """Where a handler says what it has to say of an event."""
        effects, self.aloud = self._effects, False
        if self._tx is not None:
            self.aloud = await effects._is_first(self._transaction, event.tenant, event.id)
            if not self.aloud:
                return declared_alone(effects.projection, _nobody)
            cause = Cause(effects.projection.consumer, event.id)  # whichever generation says it
            self._tx.context = msgspec.structs.replace(self._tx.context, cause=cause)
            return declared_alone(effects.projection, self._tx.publish)
        said: list[object] = []
        self._unsaid.append((event, said))
        return declared_alone(effects.projection, said.append)

    async def end(self, tx: Tx | None) -> None:
        """Leave to the swap what no live generation has said. It may have been a moment ago: then it is said by `tx`. What is new
        to say in this version begins with the swap: of what is read before it counts as said."""
        effects, horizon = self._effects, self._effects.clock.now() - KEPT
        recent = [(event, said) for event, said in self._unsaid if said and event.occurred_at.timestamp() > horizon]
        for tenant in dict.fromkeys(event.tenant for event, _ in recent):
            of_tenant = [(event, said) for event, said in recent if event.tenant == tenant]
            async with self._turned_to(tenant, tx):
                await self._pass_over(tenant, [event for event, _ in of_tenant if event.type not in effects.inherits])
                await self._leave(tenant, [one for one in of_tenant if one[0].type in effects.inherits], tx)

    @asynccontextmanager
    async def _turned_to(self, tenant: str, tx: Tx | None) -> AsyncIterator[None]:
        table, crosses = self._effects.store.projections, tx is None and self._effects.projection.terms.cross_tenant
        if crosses:
            await table.turn_to(self._transaction, tenant)
        yield
        if crosses:
            await table.turn_to(self._transaction, PLATFORM)

    async def _pass_over(self, tenant: str, events: Sequence[Event[object]]) -> None:
        for event in events:
            await self._effects._is_first(self._transaction, tenant, event.id)

    async def _leave(
        self, tenant: str, candidates: Sequence[tuple[Event[object], list[object]]], tx: Tx | None
    ) -> None:
        if not candidates:
            return
        effects, table, transaction = self._effects, self._effects.store.projections, self._transaction
        name = effects.projection.consumer
        unsaid = await table.unsaid(transaction, name, tenant, [event.id for event, _ in candidates])
        left = [(event, said) for event, said in candidates if event.id in unsaid]
        live = bool(left) and await table.confirmed(transaction, name, effects.number) == "live"
        for event, said in left:
            if live and tx is not None:
                if await effects._is_first(transaction, tenant, event.id):
                    tx.context = msgspec.structs.replace(tx.context, cause=Cause(name, event.id))
                    tx.publish_all(said)
                continue
            speaking = effects.speaks(effects.projection.service, transaction, context_of(event, Cause(name, event.id)))
            rows = [row for payload in said for row in await speaking.build(payload, {})]
            await table.leave(
                transaction, name, effects.number, Effect(tenant, event.id, msgspec.json.encode(rows).decode())
            )
            speaking.close()


def declared_alone(projection: Projection, publish: Publish) -> Publish:
    """Says what the projection declares, and refuses anything else."""
    known: dict[str, EventType[object]] = {said.name: said for said in projection.says}

    def checked(payload: object) -> None:
        name = event_type_for(payload).name
        if name not in known:
            raise ConfigurationError(
                f"the projection {projection.name!r} says {name} and does not declare it: add it to publishes=[…]."
                f"{did_you_mean(name, known)}"
            )
        publish(payload)

    return checked


def _nobody(payload: object) -> None:
    """It was said."""
