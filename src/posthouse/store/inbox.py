"""PORT: what was applied: who has seen what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from posthouse.store.transaction import Transaction

_UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def drawn_at(event_id: str) -> int:
    """When a UUIDv7 was drawn, in milliseconds since 1970; 0 for any other id, which does not tell."""
    found = _UUID7.fullmatch(event_id)
    return 0 if found is None else int(found[1] + found[2], 16)


class InboxEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as a consumer's inbox sees it. With a `sequence` it is ordered by (topic, tenant, key), without one it
    stands alone. `digest` tells whether two events with one id are the same. `time` is when the broker stored it, or what
    its producer says where that is earlier: a producer may make its event older than it is, never younger. `said` is what
    the producer says; an event that is dated ahead is remembered for so much longer, up to `MOST_AHEAD`."""

    topic: str
    tenant: str
    event_id: str
    digest: bytes
    time: float
    key: str | None = None
    sequence: int | None = None
    lineage: int = 1
    said: float = 0.0

    @property
    def drawn(self) -> int:
        """When its id was drawn, as `drawn_at` tells."""
        return drawn_at(self.event_id)

    @property
    def alone(self) -> InboxEntry:
        """The same without its number, as it is known when an operator had it run out of order."""
        return msgspec.structs.replace(self, sequence=None)


MOST_AHEAD = 30 * 86_400.0
"""Seconds: a date further ahead is not believed, or whoever lies could fill the inbox for good."""


class KeyPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The last event applied of one key, and the lowest number that is held behind it (None when nothing is).

    `event_id` is empty when none was applied yet and the key's first is held: `sequence` is then the number before the
    first one expected, and belongs to no event.

    `newest` is when the newest id of all events that this key has passed was drawn (`drawn_at`; 0 when none tells). Every
    event at or below `sequence` is among them: an id that is newer still belongs to none of them.

    `lineages` are those that went before `lineage`, oldest first, each with the last number that was passed under it.

    `replay` says who applies events of the key again at the moment, empty when nobody does: what comes behind `sequence` waits,
    and nothing that is held of it runs.
    """

    sequence: int
    lineage: int
    event_id: str
    digest: bytes
    newest: int = 0
    lineages: Sequence[tuple[int, int]] = ()
    waiting: int | None = None
    waiting_id: str | None = None
    replay: str = ""

    def has_passed(self, lineage: int, number: int) -> bool:
        """Whether the key went past this number, and under this lineage: the same number of another is another event. Of the
        lineage with which the key was begun it is not known whether that was late: what is older still is passed over."""
        spans = (*self.lineages, (self.lineage, self.sequence))
        for place, (reigning, last) in enumerate(spans):
            if number <= last:
                return lineage == reigning or (place == 0 and lineage < reigning)
        return False


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """An unordered event that was applied before, or is held."""

    digest: bytes


class InboxTable(Protocol):
    """Who has seen what. The claim commits with the handler's writes or not at all."""

    async def register(self, consumer: str, topic: str, adopt: bool) -> bool:
        """Remember at a consumer's first start whether it adopts the first number it sees of a key (it joined late) or
        expects 1. Returns what is in force: the first answer stays."""
        ...

    async def claim(self, tx: Transaction, consumer: str, entries: Sequence[InboxEntry]) -> Sequence[bool]:
        """Record each event as applied if it is the next of its key and nothing is held for that key, or, unordered, if
        it is new, no copy of it is held, and it is not so old that it may be forgotten (`purged_until`); events of one key stand in the order of their numbers. One answer each.
        False changes nothing: ask `standing` why. It may be that the event is the next after all, behind one that was
        not claimed."""
        ...

    async def position_of(self, tx: Transaction, consumer: str, entry: InboxEntry) -> KeyPosition | Seen | None:
        """What is known about the event's key (ordered) or about the event (unordered)."""
        ...

    async def advance(
        self, tx: Transaction, consumer: str, entry: InboxEntry, *, skipped: bool = False, counted: bool = True
    ) -> bool:
        """Record the event as the last of its key, or as known, whatever is held: for held events in their turn. It
        counts as applied; with `skipped` as given up; and not at all unless `counted`, because it stays among the held.
        False, and nothing changed, when it is unordered and known already, perhaps since somebody was waited for."""
        ...

    async def recall(self, tx: Transaction, consumer: str, topic: str) -> None:
        """An event that counts as applied is held after all: it counts again when it is."""
        ...

    async def accept_loss(self, tx: Transaction, consumer: str, topic: str, *, seen: int, lost: int) -> bool:
        """Let so many events of a topic count as `lost` that the consumer never got. False, and nothing changed, when it is not
        `seen` any more that did so before: somebody else has accepted them."""
        ...

    async def purged_until(self, consumer: str) -> float | None:
        """An unordered event whose `time` is not later than this may have been applied and forgotten; None when none was."""
        ...

    async def purge(self, age: float, limit: int) -> int:
        """Forget unordered events that were received more than `age` seconds ago, by the store's clock."""
        ...
