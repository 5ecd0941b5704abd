"""Feeding: from the events of a consumer group to the tables of one generation."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import cast

from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.events import Event
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.effects import Effects
from posthouse.processes.projection.model import Model
from posthouse.processes.stream import STREAM_VERSION
from posthouse.receiving import Handler
from posthouse.seam.current import current, during, handling_all
from posthouse.sending import Tx
from posthouse.store import Store, Transaction
from posthouse.store.projections import Generation, StreamKey

MOST_KNOWN = 100_000
"""Streams that a process remembers the covered version of."""

Aggregates = Mapping[str, str]
"""Event types that stand in streams of this service, each with its aggregate."""


class Face:
    """What is known of a generation while it is being fed, here and now: others change it."""

    def __init__(
        self, projection: Projection, generation: Generation, aggregates: Aggregates, effects: Effects | None = None
    ) -> None:
        self.effects = effects
        """Who says what its handlers say; None where they say nothing."""
        self.projection = projection
        self.number = generation.number
        self.tables = tuple(generation.tables)
        self.live = generation.state == "live"
        self.overlaps = generation.source == "streams"
        """Events that were read in bulk may come again through its group."""
        self.aggregates = aggregates
        self.covered: dict[StreamKey, int] = {}
        """Up to which version streams were read in bulk, as far as it was asked: that is settled once and for all."""
        self.event_at = 0.0
        self.applied_at = 0.0


def handlers_of(handlers: Mapping[str, Handler], face: Face, store: Store, clock: Clock) -> dict[str, Handler]:
    """The handlers of a projection, by subject, feeding one generation. A handler of several events stays one."""
    made = {
        id(handler): dataclasses.replace(handler, function=Feed(handler, face, store, clock))
        for handler in handlers.values()
    }
    return {subject: made[id(handler)] for subject, handler in handlers.items()}


class Feed:
    """A handler with its generation: what the consumer calls."""

    def __init__(self, handler: Handler, face: Face, store: Store, clock: Clock) -> None:
        self._function = cast("Callable[[object, Model], Awaitable[object]]", handler.function)
        self.name = handler.name
        self._many = handler.many
        self._face = face
        self._store = store
        self._clock = clock

    async def __call__(self, argument: object, tx: Tx) -> None:
        face = self._face
        events = cast("Sequence[Event[object]]", argument if self._many else [argument])
        fresh = await self._not_read_in_bulk(tx.transaction, events) if face.overlaps else events
        await self.feed(fresh, tx.transaction, tx)
        face.event_at = max(face.event_at, events[-1].occurred_at.timestamp())
        face.applied_at = self._clock.now()

    async def feed(self, events: Sequence[Event[object]], transaction: Transaction, tx: Tx | None = None) -> None:
        """Run the handler on events, stripped of what it may not see. What it says of each is said by `tx`, or, where there is
        none because the generation is being built, at the swap, or by the live one."""
        if not events:
            return
        face, writing = self._face, tx or transaction
        if (stripper := face.projection.stripper) is not None:
            events = [stripper.stripped(event) for event in events]
        if self._many or face.effects is None:
            model = Model(face.projection.name, face.number, writing, tables=face.tables, live=face.live)
            for argument in [events] if self._many else events:
                await self._run(argument, model, bulk=tx is None)
            return
        saying = face.effects.saying(transaction, tx if face.live else None)
        for event in events:
            publish = await saying.of(event)
            live = face.live and saying.aloud
            await self._run(
                event,
                Model(face.projection.name, face.number, writing, tables=face.tables, publish=publish, live=live),
                bulk=tx is None,
            )
        await saying.end(tx)

    async def _run(self, argument: object, model: Model, *, bulk: bool) -> None:
        """`bulk`: nobody above has said which event it is about."""
        events = cast("Sequence[Event[object]]", argument if self._many else [argument])
        with during(handling_all(events, self._face.projection.consumer) if bulk else current()):
            answer = await self._function(argument, model)
        if answer is not None:
            raise ConfigurationError(f"{self.name} returned something: a projection says facts by model.publish")

    async def _not_read_in_bulk(self, tx: Transaction, events: Sequence[Event[object]]) -> Sequence[Event[object]]:
        keys = {place: key for place, event in enumerate(events) if (key := self._stream(event)) is not None}
        if not keys:
            return events
        covered = await self._covered(tx, set(keys.values()))
        return [
            event
            for place, event in enumerate(events)
            if place not in keys or int(event.extensions[STREAM_VERSION]) > covered[keys[place]]
        ]

    async def _covered(self, tx: Transaction, streams: Set[StreamKey]) -> Mapping[StreamKey, int]:
        """For the life of a generation: what was published before its group was made may be published again, after a
        restore say, and the group has never seen it."""
        face = self._face
        known = {stream: face.covered[stream] for stream in streams if stream in face.covered}
        if asked := sorted(streams - known.keys()):
            found = await self._store.projections.covered(tx, face.projection.consumer, face.number, asked)
            known |= {stream: found.get(stream, 0) for stream in asked}
            if len(face.covered) > MOST_KNOWN:
                face.covered.clear()
            face.covered.update(known)
        return known

    def _stream(self, event: Event[object]) -> StreamKey | None:
        """The stream that an event stands in; None when it was said outside of any."""
        aggregate = self._face.aggregates.get(event.type)
        if aggregate is None or event.key is None or STREAM_VERSION not in event.extensions:
            return None
        return event.tenant, aggregate, event.key
