"""A consumer on a store in memory, whose steps can be taken one at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec
import pytest

from posthouse import Payload, Policy, Service
from posthouse.broker import Delivery
from posthouse.clock import ManualClock
from posthouse.contracts import EventType, event_type_of
from posthouse.events import STRUCTURED, Producer
from posthouse.receiving import Executor, Handler, Uses, handler_of
from posthouse.receiving.inbound import InboundEvent
from posthouse.seam import EnvelopeBuilder, EventContext, Seam
from posthouse.seam.frames import frame_of
from posthouse.store import HeldEvent, HeldFilter, OutboxRow, Store
from posthouse.stores import open_store

grid = Service("grid")


@grid.event("meter.read.v1", key="meter")
class MeterRead(Payload):
    meter: str
    value: int


@grid.event("note.taken.v1")
class NoteTaken(Payload):
    text: str


TOPIC, NOTES = event_type_of(MeterRead).topic, event_type_of(NoteTaken).topic


def handled_by(function: Callable[..., object], policy: Policy | None = None, **more: object) -> dict[str, Handler]:
    """One handler of both events, by subject."""
    types: list[EventType[object]] = [event_type_of(MeterRead), event_type_of(NoteTaken)]
    handler = handler_of(function, types, policy or Policy(), Uses(), **more)  # type: ignore[arg-type]
    return {event_type.name: handler for event_type in types}


@dataclasses.dataclass(frozen=True)
class Bench:
    store: Store
    clock: ManualClock
    builder: EnvelopeBuilder

    def executor(self, handlers: Mapping[str, Handler], *, adopts: bool = False, seam: Seam | None = None) -> Executor:
        topics = {event_type.topic for handler in handlers.values() for event_type in handler.event_types}
        return Executor(
            consumer="books",
            handlers=handlers,
            ordered=dict.fromkeys(topics, True),
            adopts=dict.fromkeys(topics, adopts),
            store=self.store,
            builder=self.builder,
            clock=self.clock,
            limit=100_000,
            seam=seam or Seam(),
        )

    def delivery(
        self, payload: object, number: int | None = None, *, tenant: str = "t1", redelivered: bool = False
    ) -> Delivery:
        """A fact as the broker brings it, under the number that its producer's store gave it."""
        row = self.builder.build_one(payload, EventContext(tenant=tenant))
        frame = frame_of(msgspec.structs.replace(row, sequence=number))
        return Delivery(frame=frame, position=0, stored_at=self.clock.now(), redelivered=redelivered)

    def readings(self, executor: Executor, numbers: Sequence[int], meter: str = "m1") -> list[InboundEvent]:
        """Readings of one meter, decoded."""
        made = [self.delivery(MeterRead(meter=meter, value=number), number) for number in numbers]
        return [executor.decoder.from_delivery(delivery) for delivery in made]

    async def held(self) -> list[HeldEvent]:
        return list(await self.store.held.find(HeldFilter()))

    async def states(self) -> list[tuple[int | None, str, int]]:
        """Number, state and attempts of each that is held."""
        return [(held.entry.sequence, held.state, held.attempts) for held in await self.held()]

    async def outbox(self) -> list[OutboxRow]:
        return list(await self.store.outbox.kept(0, 100))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock = ManualClock()
    store = open_store("sqlite://", clock=clock)
    await store.upgrade()
    builder = EnvelopeBuilder(Producer(service="grid"), "/grid", STRUCTURED, clock, 100_000)
    yield Bench(store, clock, builder)
    await store.aclose()
