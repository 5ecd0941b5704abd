"""VersionUsage: which versions were published and applied, when last. Kept in memory, written once in a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from posthouse.errors import DecodeError
from posthouse.events import decode_any
from posthouse.store import OutboxRow, UsageRole, VersionUsageTable, VersionUse

HOUR = 3600.0

Place = tuple[UsageRole, str, str]


class VersionUsage:
    """A note is one entry in a dictionary. What is new is written with the next housekeeping, what is known already once
    an hour: what stands in the store is never more than that behind, as long as processes end in order."""

    def __init__(self) -> None:
        self._seen: dict[Place, float] = {}
        self._written: dict[Place, tuple[float, float]] = {}

    def note(self, role: UsageRole, party: str, subject: str, now: float) -> None:
        """`party` published or applied an event of this subject, or was running."""
        self._seen[role, party, subject] = now

    def note_sent(self, watched: Mapping[str, str], now: Callable[[], float], rows: Sequence[OutboxRow]) -> None:
        """Which of the watched subjects, each with its topic, are among the rows that a broker accepted."""
        topics = set(watched.values())
        for row in rows:
            if row.topic in topics:
                with suppress(DecodeError):
                    event = decode_any(row.headers, row.body)
                    if event.type in watched and event.producer is not None:
                        self.note("published", event.producer.service, event.type, now())

    async def write(self, table: VersionUsageTable, now: float, *, every: float = HOUR) -> int:
        """Write what is due; returns how many. With `every` 0: all that was seen since it was last written."""
        due = [place for place, seen in self._seen.items() if self._is_due(place, seen, now, every)]
        if due:
            seen = [VersionUse(*place, first_at=self._seen[place], last_at=self._seen[place]) for place in due]
            await table.note(seen, now)
            self._written.update({place: (self._seen[place], now) for place in due})
        return len(due)

    def _is_due(self, place: Place, seen: float, now: float, every: float) -> bool:
        written = self._written.get(place)
        return written is None or (seen > written[0] and not 0 <= now - written[1] < every)
