"""One partition in the hands of one member: what arrived, what was handed out, what comes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from confluent_kafka import Message

from posthouse.broker import Delivery
from posthouse.brokers.kafka.places import Claim, Note, Spot, acknowledged
from posthouse.brokers.kafka.records import delivery_of
from posthouse.brokers.window import Window

ROOM = 8 * 1024 * 1024
"""Bytes that may wait here to be handed out; then the partition is paused."""


class Lane:
    """Frames are numbered 1, 2, 3 … from the cursor at which this member took over. A move of the group, or a loss of the
    partition, ends it: acknowledgements of an old lane find nobody."""

    def __init__(self, spot: Spot, claim: Claim, size: int) -> None:
        self.spot = spot
        self.claim = claim
        self.window = Window(acked=0, touched=claim.note.handed, size=size)
        self.arrived = 0
        self.paused = False
        self.leaving = False
        self._next = claim.cursor
        self._epoch: int | None = None
        self._waiting: dict[int, Delivery] = {}
        self._offsets: deque[int] = deque()
        """Of the frames behind the saved cursor."""
        self._bytes = 0
        self._done = claim.done

    @property
    def full(self) -> bool:
        """Whether nothing more should arrive: as much waits as may be handed out next."""
        return self.arrived - self.window.read > self.window.size or self._bytes > ROOM

    @property
    def roomy(self) -> bool:
        return self.arrived - self.window.read <= self.window.size // 2 and self._bytes <= ROOM // 2

    @property
    def epoch(self) -> int | None:
        """The leader's, as of the last frame: a server whose log was cut short since then notices by it."""
        return self._epoch

    def fits(self, message: Message) -> bool:
        """False for a frame from before this place: the log begins anew, and so must the lane."""
        return (message.offset() or 0) >= self._next

    def anew(self, message: Message) -> Lane:
        """The log was made again, or its end was lost: go on where it is now. What was below may be a repeat."""
        note = self.claim.note
        first = message.offset() or 0
        fresh = Lane(self.spot, Claim(first, Note(move=note.move, until=self._next)), self.window.size)
        fresh.paused = self.paused
        return fresh

    def arrive(self, message: Message) -> None:
        offset = message.offset() or 0
        self.arrived += 1
        self._next = offset + 1
        self._epoch = message.leader_epoch()
        self._offsets.append(offset)
        again = self.arrived <= self.window.touched or offset < self.claim.note.until
        delivery = delivery_of(message, again, (self, self.arrived, offset))
        self._waiting[self.arrived] = delivery
        self._bytes += len(delivery.frame.body)

    def take(self, limit: int) -> Iterator[Delivery]:
        for first, last, again in self.window.take(limit, self.arrived):
            for number in range(first, last + 1):
                delivery = self._waiting[number]
                if self._done and offset_of(delivery) in self._done:
                    self.ack(number)
                elif again and not delivery.redelivered:
                    yield Delivery(
                        frame=delivery.frame,
                        position=delivery.position,
                        stored_at=delivery.stored_at,
                        redelivered=True,
                        token=delivery.token,
                    )
                else:
                    yield delivery

    def ack(self, number: int) -> None:
        self.window.ack(number)
        delivery = self._waiting.pop(number, None)
        if delivery is not None:
            self._bytes -= len(delivery.frame.body)

    @property
    def unsaved(self) -> bool:
        return self.window.advance() > self.window.committed

    def progressed(self, *, leaving: bool = False) -> Claim:
        """The claim as it should be written now. Whoever leaves says exactly what was handed out and acknowledged."""
        window, note = self.window, self.claim.note
        passed = window.advance() - window.committed
        cursor = self._offsets[passed - 1] + 1 if passed else self.claim.cursor
        read = window.read if leaving else window.prefix + window.size
        done = {offset for offset in self._done if offset >= cursor}
        if leaving:
            handed_out = zip(range(window.committed + 1, window.read + 1), self._offsets, strict=False)
            done |= {offset for number, offset in handed_out if offset >= cursor and number not in self._waiting}
        return Claim(
            cursor,
            Note(
                move=note.move,
                began=note.began,
                handed=max(window.touched, read) - window.prefix,
                until=note.until if note.until > cursor else 0,
                done=acknowledged(cursor, done),
            ),
        )

    def saved(self, claim: Claim) -> None:
        while self._offsets and self._offsets[0] < claim.cursor:
            self._offsets.popleft()
            self.window.committed += 1
        self.claim = claim


def offset_of(delivery: Delivery) -> int:
    token = delivery.token
    assert isinstance(token, tuple)
    return int(token[2])
