"""One partition in the hands of one member: what arrived, what was handed out, what comes next."""

from __future__ import annotations

from collections import deque
from functools import partial

import msgspec
from nats.aio.msg import Msg

from posthouse.broker import Delivery
from posthouse.brokers.group.log import Answer, Partition, Want
from posthouse.brokers.group.window import Window
from posthouse.brokers.handing import handed
from posthouse.brokers.nats.ledger import Assignment
from posthouse.brokers.nats.messages import Place, frame_of

ROOM = 8 * 1024 * 1024
"""Bytes that may wait here to be handed out; then no more are asked for."""


class PartitionBuffer(Partition):
    """Frames are numbered 1, 2, 3 … from the cursor at which this member took over."""

    hopes = False

    def __init__(self, topic: str, number: int, assignment: Assignment, version: int, size: int) -> None:
        window = Window(acked=0, touched=assignment.handed, size=size, unsure=assignment.unsure)
        super().__init__(topic, number, assignment.epoch, window)
        self.stored = 0
        """The number of the last frame that arrived."""
        self.assignment = assignment
        self.version = version
        self.end = assignment.end
        """Nothing behind this sequence was handed out before; None until somebody has looked."""
        self.last, self.last_at = assignment.cursor, assignment.at
        """The sequence of the last frame that arrived, and when it was stored; 0 where that is not known."""
        self._waiting: dict[int, Delivery] = {}
        self._sequences: deque[int] = deque()
        self._times: deque[float] = deque()
        """Of the frames behind the saved cursor."""
        self._bytes = 0
        self._done = set(assignment.done)

    @property
    def arrived(self) -> int:
        return self.stored or 0

    @property
    def room(self) -> int:
        """How many more frames may arrive."""
        window = self.window
        return 0 if self._bytes > ROOM else window.committed + window.size - self.arrived

    def heard(self, stored: int) -> None:
        """It is known here first."""

    def arrive(self, place: Place, message: Msg) -> None:
        self.stored = number = self.arrived + 1
        self.last, self.last_at = place.sequence, place.at
        self._sequences.append(place.sequence)
        self._times.append(place.at)
        if place.sequence in self._done:
            self.window.done.add(number)
        touched = number <= self.window.touched and (self.end is None or place.sequence <= self.end)
        self._waiting[number] = handed(
            partial(frame_of, self.topic, place.sequence, message.headers, message.data),
            topic=self.topic,
            body=message.data,
            position=place.sequence,
            stored_at=place.at,
            redelivered=touched or place.sequence <= self.assignment.until,
            token=(self, number),
        )
        self._bytes += len(message.data)

    def answer(self, want: Want[PartitionBuffer]) -> Answer:
        if want.hopeful or want.last < want.first:
            return Answer(self.arrived)
        deliveries = [self._waiting[number] for number in range(want.first, want.last + 1)]
        if want.again:
            deliveries = [msgspec.structs.replace(delivery, redelivered=True) for delivery in deliveries]
        return Answer(self.arrived, deliveries)

    def ack(self, number: int) -> None:
        self.window.ack(number)
        delivery = self._waiting.pop(number, None)
        if delivery is not None:
            self._bytes -= len(delivery.frame.body)

    def progressed(self, owner: str | None, *, closed: bool = False) -> Assignment:
        """The assignment as it should be written now. One that is given back says exactly what was handed out, and with a
        `closed` stream that the rest was not dealt with."""
        window = self.window
        passed = window.advance() - window.committed
        cursor = self._sequences[passed - 1] if passed else self.assignment.cursor
        read = window.read if owner is None else window.prefix + window.size
        done = tuple(sorted(s for s in self._done | self._acknowledged(owner) if s > cursor))
        return Assignment(
            born=self.assignment.born,
            owner=owner,
            epoch=self.assignment.epoch,
            cursor=cursor,
            at=self._times[passed - 1] if passed else self.assignment.at,
            started=self.assignment.started,
            handed=max(window.touched, read) - window.prefix,
            end=self._furthest() if owner is None else None,
            until=self.assignment.until,
            done=done,
            done_at=self._stored_at(done[-1]) if done else 0.0,
            unsure=max(0, window.doubted(closed=closed) - window.prefix) if owner is None else 0,
        )

    def _stored_at(self, sequence: int) -> float:
        """Of a frame behind the saved cursor that was acknowledged, here or by an earlier owner."""
        if sequence in self._sequences:
            return self._times[self._sequences.index(sequence)]
        return self.assignment.done_at

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

    def saved(self, assignment: Assignment, version: int) -> None:
        while self._sequences and self._sequences[0] <= assignment.cursor:
            self._sequences.popleft()
            self._times.popleft()
            self.window.committed += 1
        self.assignment, self.version = assignment, version
