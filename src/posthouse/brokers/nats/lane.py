"""One partition in the hands of one member: what arrived, what was handed out, what comes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

import msgspec
from nats.aio.msg import Msg

from posthouse.broker import Delivery
from posthouse.brokers.handing import handed
from posthouse.brokers.nats.ledger import Claim
from posthouse.brokers.nats.letters import Place, frame_of
from posthouse.brokers.window import Window

ROOM = 8 * 1024 * 1024
"""Bytes that may wait here to be handed out; then no more are asked for."""


class Lane:
    """Frames are numbered 1, 2, 3 … from the cursor at which this member took over. A seek, or a loss of the partition,
    ends it: acknowledgements of an old lane find nobody."""

    def __init__(self, topic: str, partition: int, claim: Claim, version: int, size: int) -> None:
        self.topic = topic
        self.partition = partition
        self.claim = claim
        self.version = version
        self.window = Window(acked=0, touched=claim.handed, size=size, unsure=claim.unsure)
        self.end = claim.end
        """Nothing behind this sequence was handed out before; None until somebody has looked."""
        self.arrived = 0
        self.last, self.last_at = claim.cursor, claim.at
        """The sequence of the last frame that arrived, and when it was stored; 0 where that is not known."""
        self.leaving_since: float | None = None
        self._waiting: dict[int, Delivery] = {}
        self._sequences: deque[int] = deque()
        self._times: deque[float] = deque()
        """Of the frames behind the saved cursor."""
        self._bytes = 0
        self._done = set(claim.done)

    @property
    def room(self) -> int:
        """How many more frames may arrive."""
        window = self.window
        return 0 if self._bytes > ROOM else window.committed + window.size - self.arrived

    def arrive(self, place: Place, message: Msg) -> None:
        self.arrived += 1
        self.last, self.last_at = place.sequence, place.at
        self._sequences.append(place.sequence)
        self._times.append(place.at)
        touched = self.arrived <= self.window.touched and (self.end is None or place.sequence <= self.end)
        self._waiting[self.arrived] = handed(
            partial(frame_of, self.topic, place.sequence, message.headers, message.data),
            topic=self.topic,
            body=message.data,
            position=place.sequence,
            stored_at=place.at,
            redelivered=touched or place.sequence <= self.claim.until,
            token=(self, self.arrived),
        )
        self._bytes += len(message.data)

    def take(self, limit: int) -> Iterator[Delivery]:
        """What an earlier owner had acknowledged is passed over, and others take its place."""
        while limit > 0 and (runs := self.window.take(limit, self.arrived)):
            for first, last, again in runs:
                for number in range(first, last + 1):
                    delivery = self._waiting[number]
                    if delivery.position in self._done:
                        self.ack(number)
                        continue
                    limit -= 1
                    yield _again(delivery) if again else delivery

    def ack(self, number: int) -> None:
        self.window.ack(number)
        delivery = self._waiting.pop(number, None)
        if delivery is not None:
            self._bytes -= len(delivery.frame.body)

    def progressed(self, owner: str | None, *, closed: bool = False) -> Claim:
        """The claim as it should be written now. One that is given back says exactly what was handed out, and with a `closed`
        stream that the rest was not dealt with."""
        window = self.window
        passed = window.advance() - window.committed
        cursor = self._sequences[passed - 1] if passed else self.claim.cursor
        read = window.read if owner is None else window.prefix + window.size
        return Claim(
            born=self.claim.born,
            owner=owner,
            epoch=self.claim.epoch,
            cursor=cursor,
            at=self._times[passed - 1] if passed else self.claim.at,
            started=self.claim.started,
            handed=max(window.touched, read) - window.prefix,
            end=self._furthest() if owner is None else None,
            until=self.claim.until,
            done=tuple(sorted(s for s in self._done | self._acknowledged(owner) if s > cursor)),
            unsure=max(0, window.doubted(closed=closed) - window.prefix) if owner is None else 0,
        )

    def _furthest(self) -> int | None:
        """The last sequence that anybody may have handed out."""
        out = self.window.read - self.window.committed
        return self.end if self.end is None or not out else max(self.end, self._sequences[out - 1])

    def _acknowledged(self, owner: str | None) -> set[int]:
        """Behind the cursor; too many to write down each time, and worth it when somebody else goes on."""
        if owner is not None:
            return set()
        first = self.window.committed + 1
        handed_out = zip(range(first, self.window.read + 1), self._sequences, strict=False)
        return {sequence for number, sequence in handed_out if number not in self._waiting}

    @property
    def unsaved(self) -> bool:
        return self.window.advance() > self.window.committed

    def saved(self, claim: Claim, version: int) -> None:
        while self._sequences and self._sequences[0] <= claim.cursor:
            self._sequences.popleft()
            self._times.popleft()
            self.window.committed += 1
        self.claim, self.version = claim, version


def _again(delivery: Delivery) -> Delivery:
    return msgspec.structs.replace(delivery, redelivered=True)
