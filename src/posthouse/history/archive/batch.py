"""Batch: what a member of the archive has in hand, until it is enough for files or has waited long enough. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from posthouse.broker import Delivery
from posthouse.history.archive.rows import Row
from posthouse.history.archive.settings import ArchiveSettings

FEW = 50
"""So many deliveries are taken at least, however large they are."""


class Pending(NamedTuple):
    """An event, and every delivery that brought it."""

    row: Row
    deliveries: list[Delivery]


class Batch:
    """Bounded in bytes and in number. One that came twice is kept once, and acknowledged twice."""

    def __init__(self, settings: ArchiveSettings) -> None:
        self._settings = settings
        self._held: dict[bytes, Pending] = {}
        self._bytes = 0
        self._count = 0
        self._usual = settings.bytes // FEW
        """Bytes of one, of late."""
        self._since: float | None = None
        """When the first of them came, by a clock that nobody sets."""

    @property
    def pending(self) -> bool:
        """Whether there is anything."""
        return bool(self._held)

    @property
    def room(self) -> int:
        """So many deliveries more may be taken: of the size of those that came before, as many as there is room for."""
        left = self._settings.bytes - self._bytes
        return min(self._settings.window - self._count, max(FEW, left * 5 // (4 * self._usual)))

    def add(self, pending: Pending, now: float, *, again: bool = False) -> None:
        """Take one; one that waits for somebody else's plan comes `again`, and is looked at soon."""
        known = self._held.get(pending.row.digest)
        self._count += len(pending.deliveries)
        if known is not None:
            known.deliveries.extend(pending.deliveries)
            return
        self._held[pending.row.digest] = pending
        weight = pending.row.weight
        self._bytes += weight
        self._usual += (weight - self._usual) // 16
        due = now - max(0.0, self._settings.every - self._settings.look) if again else now
        self._since = due if self._since is None else min(self._since, due)

    def due(self, now: float) -> bool:
        """Whether files are to be made of it."""
        full = self._bytes >= self._settings.bytes or self.room <= 0
        return self.pending and (full or self.ripe_in(now) <= 0)

    def ripe_in(self, now: float) -> float:
        """Seconds until it has waited long enough."""
        return self._settings.every if self._since is None else self._since + self._settings.every - now

    def take(self) -> Sequence[Pending]:
        """All of it."""
        held = list(self._held.values())
        self._held, self._bytes, self._count, self._since = {}, 0, 0, None
        return held
