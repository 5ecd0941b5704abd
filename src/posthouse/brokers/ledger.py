"""The ledger of a group in a topic: who is alive, who owns which partition, and how far each was read. Pure values.

For a broker that is a log without groups of its own. Wherever the ledger is kept, it is changed by compare and set: a
change is made from the version that was read, and is made again when somebody was faster. So two members never own a
partition together, and whoever was replaced changes nothing any more.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from posthouse.broker import Frame
from posthouse.brokers.shares import Claim, plan


class Place(msgspec.Struct):
    """One partition as the group has it.

    Its first `acked` frames are acknowledged, the last of them is in front of or at position `at`, and the numbers in
    `done` behind them are too. Numbers up to `touched`, and the `handed` ones behind the cursor, may have been handed
    out. `epoch` changes with the owner and with every seek: whoever has another one holds nothing here.
    """

    owner: str | None = None
    epoch: int = 0
    acked: int = 0
    at: int = 0
    done: list[int] = []
    touched: int = 0
    handed: int = 0


class Ledger(msgspec.Struct):
    """`signs` counts the signs of life of each member. `fresh`: declared, and nobody has read yet."""

    places: list[Place]
    signs: dict[str, int] = {}
    fresh: bool = True
    truncated: bool = False

    @classmethod
    def of(cls, partitions: int) -> Ledger:
        return cls([Place() for _ in range(partitions)])

    @property
    def acknowledged(self) -> int:
        """How many frames of the topic need not come again."""
        return sum(place.acked + len(place.done) for place in self.places)

    def begin(self, first: int, counts: Sequence[int]) -> None:
        """The first member says where the group starts; for all others it has started."""
        if self.fresh:
            self.fresh, self.truncated = False, first > 1
            self._move(first, counts)

    def seek(self, first: int, counts: Sequence[int], stored: Sequence[int]) -> None:
        """Go to a position. `counts`: the frames of each partition in front of it; `stored`: all that may be known."""
        self.fresh = False
        self._move(first, counts)
        for place, touched in zip(self.places, stored, strict=True):
            place.touched = touched

    def forget(self, member: str) -> None:
        """It leaves, and what it owned is free."""
        self.signs.pop(member, None)
        for place in self.places:
            if place.owner == member:
                place.owner = None

    def share(self, member: str, window: int) -> list[int]:
        """Take what is the member's share and free; answer which of its partitions it has too many of."""
        claims = [Claim(0, number, place.owner) for number, place in enumerate(self.places)]
        take, leave = plan(member, {0: list(self.signs)}, claims)
        for claim in take:
            place = self.places[claim.partition]
            place.touched = max(place.touched, place.acked + place.handed)
            place.owner, place.epoch, place.handed = member, place.epoch + 1, window
        return [claim.partition for claim in leave]

    def _move(self, first: int, counts: Sequence[int]) -> None:
        for place, count in zip(self.places, counts, strict=True):
            place.epoch, place.at, place.acked, place.done = place.epoch + 1, first - 1, count, []


class Signs:
    """Who is alive, as one member sees it: whoever gave a sign within a lease of this member's own clock. No two clocks
    are compared."""

    def __init__(self, me: str, lease: float) -> None:
        self._me = me
        self._lease = lease
        self._seen: dict[str, tuple[int, float]] = {}

    def renew(self, ledger: Ledger, now: float) -> None:
        """Give a sign, and strike out whoever gave none for a lease."""
        ledger.signs[self._me] = ledger.signs.get(self._me, 0) + 1
        for member, sign in list(ledger.signs.items()):
            seen, since = self._seen.get(member, (None, now))
            if seen != sign:
                self._seen[member] = (sign, now)
            elif member != self._me and now - since > self._lease:
                ledger.forget(member)


def partition_of(frame: Frame, partitions: int) -> int:
    """Where a frame belongs, for ever: by its key, or by its id when it has none."""
    return zlib.crc32((frame.id if frame.key is None else frame.key).encode()) % partitions


def count_by_partition(frames: Sequence[Frame], partitions: int, before: Sequence[int] = ()) -> list[int]:
    """How many frames of each partition there are, on top of those `before`."""
    counts = list(before) or [0] * partitions
    for frame in frames:
        counts[partition_of(frame, partitions)] += 1
    return counts
