"""Wiring: what projections need of the App that runs them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Protocol

from posthouse.broker import Broker, Start
from posthouse.clock import Clock
from posthouse.outage import Outages
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.effects import Effects, Speaks
from posthouse.processes.projection.feeding import Aggregates, Face, handlers_of
from posthouse.pulse import Pulse
from posthouse.receiving import Consumer, Executor, Handler, Retrier
from posthouse.seam import Seam
from posthouse.store import Store
from posthouse.store.projections import Generation


class Ports(Protocol):
    """A store and a broker, each opened at first use."""

    @property
    def store(self) -> Store: ...

    @property
    def broker(self) -> Broker: ...


class Declared(Protocol):
    """What a service declares, as far as it is needed here. It may grow until it runs."""

    @property
    def projections(self) -> Mapping[str, Projection]:
        """By the name of their consumer."""
        ...

    @property
    def consumers(self) -> Mapping[str, Mapping[str, Handler]]:
        """Handlers by consumer and subject."""
        ...

    @property
    def streamed(self) -> Aggregates:
        """Its events that stand in streams, each with its aggregate."""
        ...


@dataclasses.dataclass(frozen=True)
class Wiring:
    """Services, by their names, on the store that they share. `start` is where consumers begin unless a generation says
    otherwise."""

    services: Mapping[str, Declared]
    ports: Ports
    clock: Clock
    start: Start
    in_flight: int
    seam: Seam
    outages: Outages
    executor: Callable[[str, str, Mapping[str, Handler], Start], Awaitable[Executor]]
    """For a service and a consumer group."""
    speaks: Speaks

    @property
    def store(self) -> Store:
        return self.ports.store

    @property
    def broker(self) -> Broker:
        return self.ports.broker

    @property
    def projections(self) -> Mapping[str, Projection]:
        """All that are declared, by the names of their consumers."""
        return {name: found for declared in self.services.values() for name, found in declared.projections.items()}

    def handlers(self, projection: Projection) -> Mapping[str, Handler]:
        """By subject, those of older versions that are lifted for it included."""
        return self.services[projection.service].consumers.get(projection.consumer, {})

    def aggregates(self, projection: Projection) -> Aggregates:
        """Events of its service that stand in streams, each with its aggregate."""
        return self.services[projection.service].streamed

    def topics(self, projection: Projection) -> list[str]:
        """What feeds a projection."""
        handlers = self.handlers(projection).values()
        return sorted({known.topic for handler in handlers for known in handler.event_types})

    def streams(self, projection: Projection) -> list[str]:
        """The aggregates of its service that feed a projection."""
        read = self.handlers(projection)
        return sorted({aggregate for name, aggregate in self.aggregates(projection).items() if name in read})

    def face(self, projection: Projection, generation: Generation, live: Generation | None = None) -> Face:
        """A generation as it is fed; `live` is the one that it is built beside."""
        effects = None
        if projection.says:
            inherits = frozenset(() if live is None else live.effects)
            effects = Effects(projection, generation.number, self.store, self.clock, self.speaks, inherits)
        return Face(projection, generation, self.aggregates(projection), effects)

    async def member(self, projection: Projection, generation: Generation, live: Generation | None = None) -> Member:
        """A member of the generation's consumer group, not yet running; `live` is the one that it is built beside."""
        face = self.face(projection, generation, live)
        handlers = handlers_of(self.handlers(projection), face, self.store, self.clock)
        start = self._start(generation)
        executor = await self.executor(projection.service, projection.group(generation.number), handlers, start)
        executor = dataclasses.replace(executor, replays=lambda: not face.live)
        consumer = Consumer(
            executor, self.broker, self.clock, start=start, in_flight=self.in_flight, outages=self.outages
        )
        return Member(face, consumer, Retrier(executor, self.clock, self.outages))

    def _start(self, generation: Generation) -> Start:
        match generation.source:
            case "log":
                return "earliest"
            case "streams":
                return "latest"
            case "first":
                return self.start


Keep = Callable[
    [str, Callable[[asyncio.Event], Coroutine[object, object, None]], asyncio.Event, Pulse], Awaitable[None]
]
"""Runs a loop until it is told to stop, and again when it fails or hangs."""


class Member:
    """One generation being fed in this process: its consumer and the retries of what it holds."""

    def __init__(self, face: Face, consumer: Consumer, retrier: Retrier) -> None:
        self.face = face
        self.consumer = consumer
        self.retrier = retrier
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def idle(self) -> bool:
        """Nothing is in hand."""
        return self.consumer.idle and self.retrier.idle

    def begin(self, keep: Keep) -> None:
        """Feed it from now on."""
        name = self.consumer.name
        for words, loop in ((name, self.consumer), (f"{name}, held", self.retrier)):
            self._tasks.append(asyncio.ensure_future(keep(words, loop.run, self._stop, loop.pulse)))

    def refuse_failed(self) -> None:
        """Raises what ended it before it was told to end."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def end(self) -> None:
        """Finish what is in hand; the rest goes back to the broker."""
        self._stop.set()
        if self._tasks:
            await asyncio.gather(*self._tasks)
