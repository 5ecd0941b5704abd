"""Standing: what became of events at the consumers of some services, as their stores tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from posthouse.app import app_of
from posthouse.errors import BrokerUnavailable
from posthouse.receiving import Handler
from posthouse.service import Service
from posthouse.store import HeldEvent, HeldState, InboxEntry, KeyPosition, Seen, Store, Transaction
from posthouse.tracing.spot import Spot

State = HeldState | Literal["applied", "passed", "waiting", "unknown"]
"""Beside the states of held events. applied: its handler's transaction has committed. passed: its key is past it: applied, or
said before the consumer joined. waiting: it did not come to the consumer yet. unknown: the inbox has forgotten it."""

AT_ONCE = 200
"""Questions in one transaction: an embedded store has one writer."""


class SagaStep(msgspec.Struct, frozen=True, kw_only=True):
    """The turn of a saga that an event was: its number, the method that was called (empty when none was), the status
    afterwards, and whether it came late. What the saga says belongs to its `correlation`."""

    saga: str
    id: str
    turn: int
    attempt: int = 1
    correlation: str | None = None
    method: str
    status: str
    late: bool = False
    note: str = ""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What one consumer did with one event. `held` is the number for `posthouse held`, `note` why it is held; `saga` the
    turn, where the consumer is a saga that took one."""

    consumer: str
    service: str
    handler: str
    state: State
    held: int | None = None
    note: str = ""
    saga: SagaStep | None = None


class _Line(NamedTuple):
    """What the inbox is asked about: a key, or an event that stands alone."""

    topic: str
    tenant: str
    key: str | None
    event_id: str


async def standings(
    services: Sequence[Service], spots: Mapping[str, Spot], held: Sequence[HeldEvent]
) -> dict[str, list[Heard]]:
    """For each event, each consumer of these services that has a handler for it. Those of timers were not said yet."""
    said = [spot for spot in spots.values() if spot.place != "timer"]
    answers = {(spot.event.causation, spot.service) for spot in said if spot.event.causation}
    found: dict[str, list[Heard]] = {}
    for service in services:
        for consumer, handlers in app_of(service).opened.groups(service).items():
            mine = [spot for spot in said if spot.event.type in handlers]
            if mine:
                group = _Group(service, consumer, handlers, held, answers)
                for spot, heard in await group.standings(mine):
                    found.setdefault(spot.event.id, []).append(heard)
    return found


class _Group:
    def __init__(
        self,
        service: Service,
        consumer: str,
        handlers: Mapping[str, Handler],
        held: Iterable[HeldEvent],
        answers: set[tuple[str, str]],
    ) -> None:
        self._service = service
        self._consumer = consumer
        self._handlers = handlers
        self._held = {(one.entry.tenant, one.entry.event_id): one for one in held if one.consumer == consumer}
        self._answers = answers
        self._unordered = {
            known.topic
            for handler in handlers.values()
            for known in handler.event_types
            if handler.policy.order != "key"
        }

    async def standings(self, spots: Sequence[Spot]) -> list[tuple[Spot, Heard]]:
        late = await self._late({spot.topic for spot in spots})
        forgotten = await app_of(self._service).store.inbox.purged_until(self._consumer)
        free = [spot for spot in spots if (spot.event.tenant, spot.event.id) not in self._held]
        known = await self._known({self._line(spot): spot for spot in free})
        forks = [spot for spot in free if _is_fork(spot, known[self._line(spot)])]
        forced = await self._known({_alone(spot): spot for spot in forks})
        return [
            (spot, self._heard(spot, forced.get(_alone(spot)) or known.get(self._line(spot)), late, forgotten))
            for spot in spots
        ]

    async def _known(self, lines: Mapping[_Line, Spot]) -> dict[_Line, KeyPosition | Seen | None]:
        store: Store = app_of(self._service).store
        found: dict[_Line, KeyPosition | Seen | None] = {}
        asked = list(lines.items())
        for first in range(0, len(asked), AT_ONCE):
            async with store.begin() as tx:
                for line, spot in asked[first : first + AT_ONCE]:
                    found[line] = await self._ask(tx, store, spot, ordered=line.key is not None)
        return found

    async def _ask(self, tx: Transaction, store: Store, spot: Spot, *, ordered: bool) -> KeyPosition | Seen | None:
        event = spot.event
        entry = InboxEntry(
            topic=spot.topic,
            tenant=event.tenant,
            event_id=event.id,
            digest=b"",
            time=spot.at,
            key=event.key,
            sequence=event.sequence if ordered else None,
            lineage=event.lineage,
        )
        return await store.inbox.position_of(tx, self._consumer, entry)

    def _heard(
        self, spot: Spot, known: KeyPosition | Seen | None, late: Mapping[str, bool], forgotten: float | None
    ) -> Heard:
        event = spot.event
        handler = self._handlers[event.type].name
        if (held := self._held.get((event.tenant, event.id))) is not None:
            return Heard(
                consumer=self._consumer,
                service=self._service.name,
                handler=handler,
                state=held.state,
                held=held.id,
                note=held.error or held.reason,
            )
        state = self._state(spot, known, forgotten)
        if state == "applied" and isinstance(known, KeyPosition) and late[spot.topic] and not self._has_answered(spot):
            state = "passed"
        return Heard(consumer=self._consumer, service=self._service.name, handler=handler, state=state)

    def _state(self, spot: Spot, known: KeyPosition | Seen | None, forgotten: float | None) -> State:
        event = spot.event
        if isinstance(known, KeyPosition):
            return "applied" if known.has_passed(event.lineage, event.sequence or 0) else "waiting"
        if known is not None:
            return "applied"
        if not self._ordered(spot) and forgotten is not None and spot.at <= forgotten:
            return "applied" if self._has_answered(spot) else "unknown"
        return "waiting"

    def _has_answered(self, spot: Spot) -> bool:
        """Something that this service said because of it, and no other consumer of it can have."""
        others = [
            name
            for name, handlers in app_of(self._service).opened.groups(self._service).items()
            if spot.event.type in handlers
        ]
        return (spot.event.id, self._service.name) in self._answers and others == [self._consumer]

    def _ordered(self, spot: Spot) -> bool:
        event = spot.event
        return event.key is not None and event.sequence is not None and spot.topic not in self._unordered

    def _line(self, spot: Spot) -> _Line:
        event = spot.event
        if self._ordered(spot):
            return _Line(spot.topic, event.tenant, event.key, "")
        return _alone(spot)

    async def _late(self, topics: set[str]) -> Mapping[str, bool]:
        """Where the group may have joined after the event; a broker that is away leaves it open."""
        try:
            progress = await app_of(self._service).broker.progress(self._consumer, sorted(topics))
        except BrokerUnavailable:
            return dict.fromkeys(topics, True)
        return {topic: progress[topic].truncated for topic in topics}


def _alone(spot: Spot) -> _Line:
    return _Line(spot.topic, spot.event.tenant, None, spot.event.id)


def _is_fork(spot: Spot, known: KeyPosition | Seen | None) -> bool:
    """Whether its key went past its number with another event; it may have been run out of order."""
    number = spot.event.sequence or 0
    return (
        isinstance(known, KeyPosition) and number <= known.sequence and not known.has_passed(spot.event.lineage, number)
    )
