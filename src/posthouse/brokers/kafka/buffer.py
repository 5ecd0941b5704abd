"""One partition in the hands of one member: what arrived, what was handed out, what comes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from confluent_kafka import Message

from posthouse.broker import Delivery
from posthouse.brokers.group.window import Window
from posthouse.brokers.kafka.committed_offsets import Claim, Note, Spot, acknowledged
from posthouse.brokers.kafka.records import delivery_of

ROOM = 4 * 1024 * 1024
"""Bytes that may wait here to be handed out; then the partition is paused."""
WINDOWS = 4
"""So many windows of frames may wait: a pause throws away what the client has fetched, so it should be rare."""


class PartitionBuffer:
    """Frames are numbered 1, 2, 3 … from the cursor at which this member took over. A move of the group, or a loss of the
    partition, ends it: acknowledgements of an old lane find nobody."""

    def __init__(self, spot: Spot, claim: Claim, size: int) -> None:
        self.spot = spot
        self.claim = claim
        self.window = Window(acked=0, touched=claim.note.handed, size=size)
        self.end = claim.note.end
        """Nothing from this offset on was handed out before; None where nobody has looked."""
        self.arrived = 0
        self.paused = False
        self.leaving = False
        self._next = claim.cursor
        self._epoch: int | None = None
        self._waiting: dict[int, Message] = {}
        self._offsets: deque[int] = deque()
        """Of the frames behind the saved cursor."""
        self._bytes = 0
        self._done = claim.done
        self._unsure = claim.cursor + claim.note.unsure

    @property
    def full(self) -> bool:
        """Whether nothing more should arrive."""
        return self.arrived - self.window.read > WINDOWS * self.window.size or self._bytes > ROOM

    @property
    def roomy(self) -> bool:
        """Whether a paused one should go on."""
        return self.arrived - self.window.read <= self.window.size and self._bytes <= ROOM // 2

    @property
    def epoch(self) -> int | None:
        """The leader's, as of the last frame: a server whose log was cut short since then notices by it."""
        return self._epoch

    def fits(self, message: Message) -> bool:
        """False for a frame from before this place: the log begins anew, and so must the lane."""
        return (message.offset() or 0) >= self._next

    def anew(self, message: Message) -> PartitionBuffer:
        """The log was made again, or its end was lost: go on where it is now. What was below may be a repeat."""
        note = self.claim.note
        first = message.offset() or 0
        below = Note(move=note.move, until=self._next, topic_id=note.topic_id)
        fresh = PartitionBuffer(self.spot, Claim(first, below), self.window.size)
        fresh.paused = self.paused
        return fresh

    def arrive(self, message: Message) -> None:
        """Frames are made of messages when they are handed out: what only waits costs little."""
        offset = message.offset() or 0
        self.arrived += 1
        self._next = offset + 1
        self._epoch = message.leader_epoch()
        self._offsets.append(offset)
        self._waiting[self.arrived] = message
        self._bytes += len(message)

    def take(self, limit: int) -> Iterator[Delivery]:
        """What an earlier owner had acknowledged is passed over, and others take its place."""
        while limit > 0 and (runs := self.window.take(limit, self.arrived)):
            for first, last, again in runs:
                for number in range(first, last + 1):
                    offset = self._waiting[number].offset() or 0
                    if self._done and offset in self._done:
                        self.ack(number)
                        continue
                    limit -= 1
                    yield self._delivery(number, offset, again)

    def _delivery(self, number: int, offset: int, again: bool) -> Delivery:
        touched = number <= self.window.touched and (self.end is None or offset < self.end)
        moved = offset < self.claim.note.until
        return delivery_of(self._waiting[number], again or touched or moved, (self, number))

    def ack(self, number: int) -> None:
        self.window.ack(number)
        message = self._waiting.pop(number, None)
        if message is not None:
            self._bytes -= len(message)

    @property
    def unsaved(self) -> bool:
        return self.window.advance() > self.window.committed

    def progressed(self, *, leaving: bool = False, closed: bool = False) -> Claim:
        """The claim as it should be written now. Whoever leaves says exactly what was handed out and acknowledged, and with a
        `closed` stream that the rest was not dealt with."""
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
                end=self._furthest() if leaving else None,
                until=note.until if note.until > cursor else 0,
                done=acknowledged(cursor, done),
                topic_id=note.topic_id,
                unsure=max(0, self._doubted(closed) - cursor) if leaving else 0,
            ),
        )

    def _doubted(self, closed: bool) -> int:
        """Behind the last offset that may have been dealt with though nobody said so."""
        doubt = self.window.doubted(closed=closed) - self.window.committed
        return max(self._unsure, self._offsets[doubt - 1] + 1 if doubt > 0 else 0)

    def _furthest(self) -> int | None:
        """Behind the last offset that anybody may have handed out."""
        out = self.window.read - self.window.committed
        return self.end if self.end is None or not out else max(self.end, self._offsets[out - 1] + 1)

    def saved(self, claim: Claim) -> None:
        while self._offsets and self._offsets[0] < claim.cursor:
            self._offsets.popleft()
            self.window.committed += 1
        self.claim = claim
