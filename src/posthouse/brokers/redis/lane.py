"""One lane in the hands of one member: what arrived, what was handed out, what comes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from posthouse.broker import Delivery
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
AHEAD = 250
"""Entries that wait to be handed out; then no more are read."""


class Lane:
    """From the moment at which a member took it over. A seek, or the loss of the lane, ends it: acknowledgements of an
    old lane find nobody."""

    def __init__(self, topic: str, number: int, key: str, holding: Holding, size: int) -> None:
        self.topic = topic
        self.number = number
        self.key = key
        """Of the stream."""
        self.holding = holding
        self.size = size
        self.last = "0-0"
        """The id of the last entry that arrived."""
        self.unsure = False
        """An answer was lost, and the question may still be under way: it must be fenced off."""
        self.pending = True
        """Whether to ask for entries that were read before: by an earlier owner, or in an answer that was lost."""
        self.dry = False
        """Everything stored when we last looked has arrived."""
        self.leaving_since: float | None = None
        self._until = place_of(holding.until)
        self._fresh: deque[tuple[int, Delivery]] = deque()
        self._held: dict[int, Delivery] = {}
        self._again: set[int] = set()
        self._returned: set[int] = set()
        self._sure = holding.sure
        self._done: list[str] = []
        self._count = 0
        self.bytes = 0
        """Of the bodies that are here."""

    def fence(self, holding: Holding) -> None:
        """Go on with a new epoch: a question of the old one finds nobody, and what it got is asked for again."""
        self.holding = holding
        self.pending, self.unsure, self.dry = True, False, False

    @property
    def heard(self) -> str:
        """Entries behind this one are news, once the lane is dry."""
        return max(self.last, self.holding.top, key=place_of)

    @property
    def idle(self) -> bool:
        """Nothing is in anybody's hands."""
        return len(self._held) == len(self._again)

    @property
    def wants(self) -> bool:
        """Whether more may arrive."""
        return len(self._fresh) < AHEAD and self.bytes <= ROOM

    @property
    def waiting(self) -> int:
        """How many frames were read and not handed out."""
        return len(self._fresh)

    def arrive(self, entries: Sequence[Entry], more: bool) -> None:
        """The answer to a question: entries as the server sends them, and whether there may be more."""
        for entry, fields in entries:
            self.last = position = entry.decode()
            if fields is None:
                self._done.append(position)
                continue
            self._count += 1
            delivery = handed(
                partial(frame_of, self.topic, entry, fields),
                topic=self.topic,
                body=None,
                position=position,
                stored_at=stored_at(entry),
                redelivered=self.pending or (self._until > (0, 0) and place_of(entry) <= self._until),
                token=(self, self._count),
            )
            self.bytes += len(delivery.frame.body)
            self._fresh.append((self._count, delivery))
        self.dry = not more and not self.pending
        self.pending = self.pending and more

    def take(self, limit: int) -> list[Delivery]:
        """Up to `limit` to hand out now, and never more than the window in hand; those handed back come first, and before
        anything that follows them."""
        again = sorted(self._again)[:limit]
        self._again.difference_update(again)
        taken = [self._held[number] for number in again]
        while self._fresh and len(taken) < limit and len(self._held) < self.size and not self._again:
            number, delivery = self._fresh.popleft()
            self._held[number] = delivery
            taken.append(delivery)
        return taken

    def ack(self, number: int) -> None:
        delivery = self._held.pop(number, None)
        if delivery is not None:
            self._again.discard(number)
            self._returned.discard(number)
            self.bytes -= len(delivery.frame.body)
            self._done.append(str(delivery.position))

    def nack(self, number: int) -> None:
        delivery = self._held.get(number)
        if delivery is not None:
            self._again.add(number)
            self._returned.add(number)
            self._held[number] = msgspec.structs.replace(delivery, redelivered=True)

    def is_sure(self, *, closed: bool) -> bool:
        """Whether nothing that is here was dealt with but what was acknowledged. As long as the stream is not `closed`, handlers
        may be at it."""
        return self._sure and not self._returned and (closed or not self._held)

    @property
    def done(self) -> list[str]:
        """Ids that were acknowledged here and not yet on the server."""
        return self._done

    def saved(self, ids: Sequence[str]) -> None:
        """The server has them: they were the first ones."""
        del self._done[: len(ids)]

    def unread(self) -> tuple[str, list[str]]:
        """What arrived and was never handed out by anybody, and the place before it: the next owner gets it as new."""
        ids = [str(delivery.position) for _, delivery in self._fresh if not delivery.redelivered]
        return (entry_at(before(place_of(ids[0]))) if ids else "0-0"), ids
