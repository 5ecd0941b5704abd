"""LogMember: the port `Stream` for a broker that is a log without groups of its own.

The adapter gives three calls, `Log`. The member does the rest of what a group needs: it shares the partitions with the
others, keeps its lease, hands out in order within the window, and moves the cursor behind a fence.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from posthouse.broker import Delivery
from posthouse.brokers.ledger import Ledger, Place, Signs, partition_of
from posthouse.brokers.supervision import raise_if_ended
from posthouse.brokers.window import Window
from posthouse.clock import Clock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable

LEAVING = 5.0
"""Seconds that a good-bye may take; then the lease runs out instead."""


class Log(Protocol):
    """Topics whose frames have the positions 1, 2, 3 … without gaps. Every method may raise BrokerUnavailable."""

    async def end(self, topic: str) -> int:
        """The position behind the last frame."""
        ...

    async def read(self, topic: str, position: int) -> Sequence[Delivery]:
        """Frames in a row that begin at a position in front of the end; as many as come in one answer. Each partition
        asks for itself: keep the last few answers."""
        ...

    async def edit(self, group: str, topic: str, edit: Callable[[Ledger], None]) -> Ledger:
        """The group's ledger after the edit, stored by compare and set. The edit runs again on the newer version when
        somebody was faster."""
        ...


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. A member that gave no sign for a `lease` is replaced; every `poll` it looks whether the log is longer."""

    lease: float = 10.0
    poll: float = 0.25
    window: int = 1000


class Held(NamedTuple):
    """The token of a delivery."""

    part: Part
    number: int


class Part:
    """One partition in a member's hands. `ready` holds its frames from the cursor on, by their number."""

    def __init__(self, topic: str, number: int, place: Place, window: int) -> None:
        self.topic = topic
        self.number = number
        self.epoch = place.epoch
        self.leaving = False
        self.window = Window(acked=place.acked, touched=place.touched, size=window)
        self.scanned = place.at
        self._last = place.acked
        self._ready: dict[int, Delivery] = {}
        self._done = set(place.done)
        self._end: int | None = None

    @property
    def hungry(self) -> bool:
        return self._last <= self.window.committed + self.window.size

    def hear(self, end: int) -> None:
        """Where the log ends. Nothing from there on, as it is when this member first looks, was handed out before: a window
        may have been wider than what there was to hand out."""
        if self._end is None:
            self._end = end
            self._confine()

    def _confine(self) -> None:
        if self._end is not None and self.scanned >= self._end - 1:
            self.window.touched = min(self.window.touched, self._last)

    def scan(self, deliveries: Sequence[Delivery], partitions: int) -> None:
        """Keep what belongs here of frames that follow in the log."""
        for delivery in deliveries:
            position = int(delivery.position)
            if position <= self.scanned:
                continue
            self._confine()
            self.scanned = position
            if partition_of(delivery.frame, partitions) == self.number:
                self._last += 1
                self._ready[self._last] = msgspec.structs.replace(delivery, token=Held(self, self._last))
        self._confine()

    def take(self, limit: int) -> list[Delivery]:
        taken: list[Delivery] = []
        while not self.leaving and len(taken) < limit and self.window.waiting(self._last):
            for first, last, again in self.window.take(limit - len(taken), self._last):
                for number in range(first, last + 1):
                    if number in self._done:
                        self.window.ack(number)
                        continue
                    redelivered = again or number <= self.window.touched
                    taken.append(msgspec.structs.replace(self._ready[number], redelivered=redelivered))
            self.window.advance()
        return taken

    def ack(self, number: int) -> None:
        if number > self.window.prefix:
            self.window.ack(number)
            self._done.add(number)
            self.window.advance()

    def write(self, place: Place) -> None:
        """Put the cursor into the ledger as it is now."""
        prefix = self.window.prefix
        if prefix > place.acked:
            place.acked, place.at = prefix, int(self._ready[prefix].position)
        place.done = sorted(number for number in self._done if number > prefix)
        place.touched = self.window.touched

    def give_back(self, place: Place) -> None:
        """Say exactly what was handed out: whoever falls silent leaves a whole window in doubt."""
        place.owner, place.handed = None, self.window.read - self.window.prefix

    def written(self, place: Place) -> None:
        """The ledger has it: the window moves on."""
        for number in range(self.window.committed + 1, place.acked + 1):
            self._ready.pop(number, None)
            self._done.discard(number)
        self.window.committed = place.acked


class LogMember:
    """Call `join` first, and `aclose` also when that failed."""

    def __init__(self, log: Log, group: str, topics: Sequence[str], *, clock: Clock, settings: Settings) -> None:
        self._log = log
        self._group = group
        self._clock = clock
        self._settings = settings
        self._me = new_id()
        self._signs = {topic: Signs(self._me, settings.lease) for topic in topics}
        self._parts: dict[tuple[str, int], Part] = {}
        self._partitions: dict[str, int] = {}
        self._turn = 0
        self._renewed = clock.monotonic()
        self._lock = asyncio.Lock()
        self._closed = asyncio.Event()
        self._closing = asyncio.Lock()
        self._left = False
        self._beating: asyncio.Task[None] | None = None

    async def join(self) -> None:
        await self._renew()
        self._beating = asyncio.create_task(self._beat(), name=f"posthouse member of {self._group}")

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        raise_if_ended(self._beating)
        deadline = self._clock.monotonic() + wait
        while not self._closed.is_set():
            if self._clock.monotonic() - self._renewed > self._settings.lease / 2:
                await self._renew()
            for topic in self._signs:
                await self._read(topic)
            taken = self._take(limit)
            left = deadline - self._clock.monotonic()
            if taken or left <= 0:
                return taken
            await self._clock.wait(self._closed, min(left, self._settings.poll))
        raise BrokerError("this stream was closed")

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        raise_if_ended(self._beating)
        for part, number in self._mine(deliveries):
            part.ack(number)
        for topic in {delivery.frame.topic for delivery in deliveries}:
            await self._write(topic, lambda ledger: None)

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        for part, number in self._mine(deliveries):
            part.window.nack(number)

    async def aclose(self) -> None:
        self._closed.set()
        async with self._closing:  # whoever closes it a second time comes back no earlier
            if self._left:
                return
            self._left = True
            if self._beating is not None:
                self._beating.cancel()
                await asyncio.wait([self._beating])
            with contextlib.suppress(BrokerError, TimeoutError):
                async with asyncio.timeout(LEAVING):
                    for topic in self._signs:
                        await self._write(topic, self._leaving(topic))

    def _leaving(self, topic: str) -> Callable[[Ledger], None]:
        def leave(ledger: Ledger) -> None:
            for part in self._held(topic, ledger):
                part.give_back(ledger.places[part.number])
            ledger.forget(self._me)

        return leave

    async def _beat(self) -> None:
        while not await self._clock.wait(self._closed, self._settings.lease / 4):
            with contextlib.suppress(BrokerUnavailable):
                await self._renew()

    async def _renew(self) -> None:
        now = self._clock.monotonic()
        for topic in self._signs:
            await self._write(topic, self._sharing(topic, now))
        self._renewed = now

    def _sharing(self, topic: str, now: float) -> Callable[[Ledger], None]:
        """Give a sign of life, take what is this member's share, and leave what is not as soon as none of it is in hand."""

        def share(ledger: Ledger) -> None:
            self._signs[topic].renew(ledger, now)
            leave = ledger.share(self._me, self._settings.window)
            for part in self._of(topic):
                part.leaving = part.number in leave  # from here on nothing of it is handed out
                if part.leaving and part.window.idle:
                    part.give_back(ledger.places[part.number])

        return share

    async def _read(self, topic: str) -> None:
        end = await self._log.end(topic)
        for part in self._of(topic):
            if part.scanned >= end:
                raise BrokerError(
                    f"the log of {topic!r} ends in front of {end}, and {self._group!r} has read up to {part.scanned}: it was"
                    " put back from a copy, so what is new there has positions that were read; seek the group"
                )
            part.hear(end)
            while part.scanned < end - 1 and part.hungry:
                part.scan(await self._log.read(topic, part.scanned + 1), self._partitions[topic])

    def _take(self, limit: int) -> list[Delivery]:
        """Nothing once the lease may be over: another member may have taken over. Partitions take turns, or a long one
        keeps the others waiting to its end."""
        taken: list[Delivery] = []
        if self._clock.monotonic() - self._renewed < self._settings.lease:
            parts, self._turn = [*self._parts.values()], self._turn + 1
            for turn in range(len(parts)):
                taken += parts[(self._turn + turn) % len(parts)].take(limit - len(taken))
        return taken

    async def _write(self, topic: str, edit: Callable[[Ledger], None]) -> None:
        """Edit the ledger, with the cursors of what is still this member's; then see what is its own now."""

        def together(ledger: Ledger) -> None:
            for part in self._held(topic, ledger):
                part.write(ledger.places[part.number])
            edit(ledger)

        async with self._lock:
            ledger = await self._log.edit(self._group, topic, together)
            for part in self._held(topic, ledger):
                part.written(ledger.places[part.number])
            self._adopt(topic, ledger)

    def _adopt(self, topic: str, ledger: Ledger) -> None:
        self._partitions[topic] = len(ledger.places)
        for number, place in enumerate(ledger.places):
            part = self._parts.get((topic, number))
            if place.owner != self._me:
                self._parts.pop((topic, number), None)
            elif part is None or part.epoch != place.epoch:
                self._parts[topic, number] = Part(topic, number, place, self._settings.window)

    def _of(self, topic: str) -> list[Part]:
        return [part for part in self._parts.values() if part.topic == topic]

    def _held(self, topic: str, ledger: Ledger) -> list[Part]:
        """Those that no other member and no seek has taken away."""
        places = ledger.places
        return [
            part
            for part in self._of(topic)
            if (places[part.number].owner, places[part.number].epoch) == (self._me, part.epoch)
        ]

    def _mine(self, deliveries: Sequence[Delivery]) -> list[Held]:
        """Those whose partition is this member's, as it was when they were handed out."""
        tokens = [delivery.token for delivery in deliveries]
        return [
            token
            for token in tokens
            if isinstance(token, Held) and self._parts.get((token.part.topic, token.part.number)) is token.part
        ]
