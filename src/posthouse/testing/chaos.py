"""ChaosBroker: a broker that behaves like a bad day, for tests of what must hold all the same."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from posthouse.broker import Broker, Capabilities, Delivery, Frame, Progress, Start, Stream, Topology, Verdict
from posthouse.checks import Check
from posthouse.errors import BrokerUnavailable
from posthouse.options import Chance, Options


class Chaos(Options):
    """Chances from 0 to 1, drawn anew for every call or frame."""

    lose_answer: Chance = 0.0
    """A publish is stored, but the answer is lost: BrokerUnavailable."""
    unreachable: Chance = 0.0
    """A publish fails before anything is stored: BrokerUnavailable."""
    refuse: Chance = 0.0
    """A frame is refused, and those of its key behind it."""
    duplicate: Chance = 0.0
    """A frame is handed out a second time in the same batch."""
    shuffle: Chance = 0.0
    """A batch is handed out in any order."""
    lose_ack: Chance = 0.0
    """Acknowledgements never arrive: the frames come again after a restart."""


class ChaosBroker:
    """Wraps any broker. The same seed gives the same bad day."""

    def __init__(self, inner: Broker, chaos: Chaos, seed: int) -> None:
        self._inner = inner
        self._chaos = chaos
        self._dice = random.Random(seed)

    @property
    def sheet(self) -> Capabilities:
        return self._inner.sheet

    async def ensure(self, topology: Topology) -> None:
        await self._inner.ensure(topology)

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        if self._dice.random() < self._chaos.unreachable:
            raise BrokerUnavailable("chaos: unreachable")
        refused: set[tuple[str, str | None]] = set()
        for frame in frames:
            if self._dice.random() < self._chaos.refuse:
                refused.add((frame.topic, frame.key))
        sent = [frame for frame in frames if (frame.topic, frame.key) not in refused]
        answers = iter(await self._inner.publish(sent))
        if self._dice.random() < self._chaos.lose_answer:
            raise BrokerUnavailable("chaos: the answer was lost")
        no = Verdict(False, "chaos: refused")
        return [no if (frame.topic, frame.key) in refused else next(answers) for frame in frames]

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> Stream:
        return ChaosStream(
            await self._inner.subscribe(group, topics, start=start, window=window), self._chaos, self._dice
        )

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        await self._inner.seek(group, topic, position=position, time=time)

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        return await self._inner.progress(group, topics)

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        return await self._inner.checks(today=today)

    async def aclose(self) -> None:
        await self._inner.aclose()


class ChaosStream:
    """Hands out twice, and in any order."""

    def __init__(self, inner: Stream, chaos: Chaos, dice: random.Random) -> None:
        self._inner = inner
        self._chaos = chaos
        self._dice = dice

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        received = list(await self._inner.receive(limit, wait))
        received += [delivery for delivery in received if self._dice.random() < self._chaos.duplicate]
        if self._dice.random() < self._chaos.shuffle:
            self._dice.shuffle(received)
        return received

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        if self._dice.random() >= self._chaos.lose_ack:
            await self._inner.ack(list({id(delivery): delivery for delivery in deliveries}.values()))

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        await self._inner.nack(deliveries)

    async def aclose(self) -> None:
        await self._inner.aclose()
