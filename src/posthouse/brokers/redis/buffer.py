"""One partition in the hands of one member: what arrived, what was handed out, what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from posthouse.broker import Delivery
from posthouse.brokers.group.log import Answer, Partition, Want
from posthouse.brokers.group.window import Window
from posthouse.brokers.handing import handed
from posthouse.brokers.redis.entries import Entry, before, entry_at, frame_of, place_of, stored_at


class Holding(NamedTuple):
    """What the ledger says of a lane that a member has, and in which run of the server. `until` and `top` are ids: up to
    the one, entries may have been handed out before; up to the other, they were stored when the member took it."""

    epoch: int
    run: str
    until: str
    top: str
    sure: bool = False
    """Nothing that was in hand then had been dealt with."""


ROOM = 8 * 1024 * 1024
"""Bytes that may be here; then no more are read."""
NOWHERE = (0, 0)
AHEAD = 250
"""Entries that wait to be handed out; then no more are read."""


class PartitionBuffer(Partition):
    """Entries are numbered 1, 2, 3 … as they arrive. The server keeps what was not acknowledged, so the cursor is in no need
    of writing."""

    hopes = False

    def __init__(self, topic: str, number: int, key: str, holding: Holding, size: int) -> None:
        super().__init__(topic, number, holding.epoch, Window(acked=0, touched=0, size=size))
        self.stored = 0
        self.key = key
        """Of the stream."""
        self.holding = holding
        self.last = "0-0"
        """The id of the last entry that arrived."""
        self.unsure = False
        """An answer was lost, and the question may still be under way: it must be fenced off."""
        self.pending = True
        """Whether to ask for entries that were read before: by an earlier owner, or in an answer that was lost."""
        self.dry = False
        """Everything stored when we last looked has arrived."""
        self.done: list[str] = []
        """Ids that were acknowledged here and not yet on the server."""
        self.bytes = 0
        """Of the bodies that are here."""
        self._until = place_of(holding.until)
        self._sure = holding.sure
        self._here: dict[int, Delivery] = {}

    def fence(self, holding: Holding) -> None:
        """Go on with a new epoch: a question of the old one finds nobody, and what it got is asked for again."""
        self.holding, self.epoch = holding, holding.epoch
        self.pending, self.unsure, self.dry, self.doubtful = True, False, False, False

    @property
    def newest(self) -> str:
        """Entries behind this one are news, once the lane is dry."""
        return max(self.last, self.holding.top, key=place_of)

    @property
    def arrived(self) -> int:
        return self.stored or 0

    @property
    def wants(self) -> bool:
        """Whether more may arrive. Not before what a lost answer held was fenced off: it is older than anything new."""
        return not self.unsure and self.arrived - self.window.read < AHEAD and self.bytes <= ROOM

    def heard(self, stored: int) -> None:
        """It is known here first."""

    def arrive(self, entries: Sequence[Entry], more: bool) -> None:
        """The answer to a question: entries as the server sends them, and whether there may be more."""
        number, here, again, until = self.arrived, self._here, self.pending, self._until
        for entry, fields in entries:
            self.last = position = entry.decode()
            if fields is None:
                self.done.append(position)
                continue
            self.stored = number = number + 1
            delivery = here[number] = handed(
                partial(frame_of, self.topic, entry, fields),
                topic=self.topic,
                body=None,
                position=position,
                stored_at=stored_at(entry),
                redelivered=again or (until > NOWHERE and place_of(entry) <= until),
                token=(self, number),
            )
            self.bytes += len(delivery.frame.body)
        self.dry = not more and not self.pending
        self.pending = self.pending and more

    def answer(self, want: Want[PartitionBuffer]) -> Answer:
        if want.hopeful or want.last < want.first:
            return Answer(self.arrived)
        deliveries = [self._here[number] for number in range(want.first, want.last + 1)]
        if want.again:
            deliveries = [msgspec.structs.replace(delivery, redelivered=True) for delivery in deliveries]
        return Answer(self.arrived, deliveries)

    def ack(self, number: int) -> None:
        delivery = self._here.pop(number, None)
        if delivery is not None:
            self.window.ack(number)
            self.window.committed += 1  # the window counts what is in hand
            self.bytes -= len(delivery.frame.body)
            self.done.append(str(delivery.position))

    def is_sure(self, *, closed: bool) -> bool:
        """Whether nothing that is here was dealt with but what was acknowledged. As long as the stream is not `closed`, handlers
        may be at it."""
        return self._sure and self.window.doubted(closed=closed) == 0

    def saved(self, ids: Sequence[str]) -> None:
        """The server has them: they were the first ones."""
        del self.done[: len(ids)]

    def unread(self) -> tuple[str, list[str]]:
        """What arrived and was never handed out by anybody, and the place before it: the next owner gets it as new."""
        waiting = [self._here[number] for number in range(self.window.read + 1, self.arrived + 1)]
        ids = [str(delivery.position) for delivery in waiting if not delivery.redelivered]
        return (entry_at(before(place_of(ids[0]))) if ids else "0-0"), ids
