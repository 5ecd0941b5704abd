"""Wiring: what projections need of their service once it is open."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager

from posthouse.broker import Broker, Start
from posthouse.clock import Clock
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.feeding import Aggregates, Face, handlers_of
from posthouse.pulse import Pulse
from posthouse.receiving import Consumer, Executor, Handler, Retrier
from posthouse.sending import Tx
from posthouse.store import Store
from posthouse.store.projections import Generation


@dataclasses.dataclass(frozen=True)
class Wiring:
    """The parts of one service. `start` is where its consumers begin unless a generation says otherwise."""

    store: Store
    broker: Broker
    clock: Clock
    start: Start
    in_flight: int
    aggregates: Aggregates
    handlers: Callable[[str], Mapping[str, Handler]]
    """Of a consumer, by subject."""
    executor: Callable[[str, Mapping[str, Handler], Start], Awaitable[Executor]]
    transaction: Callable[[str], AbstractAsyncContextManager[Tx]]

    def topics(self, projection: Projection) -> list[str]:
        """What feeds a projection, older versions that are lifted for it included."""
        handlers = self.handlers(projection.consumer).values()
        return sorted({known.topic for handler in handlers for known in handler.event_types})

    def streams(self, projection: Projection) -> list[str]:
        """The aggregates of this service that feed a projection."""
        read = self.handlers(projection.consumer)
        return sorted({aggregate for name, aggregate in self.aggregates.items() if name in read})

    async def member(self, projection: Projection, generation: Generation) -> Member:
        """A member of the generation's consumer group, not yet running."""
        face = Face(projection, generation, self.aggregates)
        handlers = handlers_of(self.handlers(projection.consumer), face, self.store, self.clock)
        start = self._start(generation)
        executor = await self.executor(projection.group(generation.number), handlers, start)
        consumer = Consumer(executor, self.broker, self.clock, start=start, in_flight=self.in_flight)
        return Member(face, consumer, Retrier(executor, self.clock))

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
