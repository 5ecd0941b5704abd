"""Tail: the outbox as those follow it who lease nothing: what became visible since a position.

A row's id is drawn when it is added and seen when it is committed, so a position is a snapshot, as the relay's cursors are. Within a
window, which is what lies between two snapshots, rows stand in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from posthouse.store import Tail
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.snapshot import Snapshot
from posthouse.stores.rows import SEPARATOR, outbox_row, place_of

# What lies between two snapshots.
TAIL = "SELECT * FROM posthouse.tail($1::text::pg_snapshot, $2::text::pg_snapshot, $3, $4, $5, $6)"

LONGEST = 16_384
"""Characters of a position that is looked at: thousands of open transactions."""
HIGHEST = 2**63


class Position(msgspec.Struct, frozen=True):
    """Everything visible in `s1` was read; where a window is open, up to `s2`, its rows up to `last` too. `drawn` is an id up to
    which all were drawn then. It means something in one `place`: a store, its lineage and the run of its server."""

    place: str
    drawn: int
    s1: str
    s2: str = ""
    last: int = 0

    def __str__(self) -> str:
        parts = [self.place, f"{self.drawn:x}", _short(self.s1)]
        return SEPARATOR.join([*parts, _short(self.s2), f"{self.last:x}"] if self.s2 else parts)

    @classmethod
    def of(cls, text: str) -> Position | None:
        """The position that a text stands for; None for any other text, whoever sent it."""
        if len(text) > LONGEST:
            return None
        try:
            place, drawn, s1, *window = text.split(SEPARATOR)
            if not window:
                return cls(place, _number(drawn), _long(s1))
            s2, last = window
            return cls(place, _number(drawn), _long(s1), _long(s2), _number(last))
        except ValueError:
            return None


async def tail(
    database: Database,
    after: str,
    *,
    upto: str,
    topics: Collection[str],
    tenant: str | None,
    limit: int,
    reach: int,
) -> Tail:
    """As `OutboxTable.tail`."""
    given, stop = Position.of(after), Position.of(upto)
    wanted = given is not None and (not upto or stop is not None)
    s1, s2, last = (given.s1, given.s2, given.last) if wanted and given else (None, None, 0)
    s2 = s2 or (stop.s1 if stop is not None else None) or None
    rows: Any = await database.run_committed(TAIL, s1, s2, last, sorted(topics) or None, tenant, limit)
    *found, here = rows
    _, identity, lineage, run, drawn, _, now, purged, _ = here
    place = place_of(identity, lineage, run)
    end = Position(place, drawn, now)
    if not after:
        return Tail(position=str(end))
    if given is None or not wanted or _is_gone(given, end, int(purged), reach) or (stop and stop.place != place):
        return Tail(position=str(end), gone=True)
    closed = Position(place, given.drawn if given.s2 else (stop or end).drawn, s2 or now)
    return _page(given, closed, found, limit, bool(given.s2) and not (stop and closed.s1 == stop.s1))


def _page(given: Position, closed: Position, found: Sequence[Sequence[Any]], limit: int, goes_on: bool) -> Tail:
    """Rows of a window that ends at `closed`. `goes_on`: so does the world, since that window was opened."""
    whole = len(found) < limit
    opened = msgspec.structs.replace(given, s2=closed.s1)
    positions = [str(msgspec.structs.replace(opened, last=columns[0])) for columns in found]
    if whole and positions:
        positions[-1] = str(closed)
    return Tail(
        rows=[outbox_row(*columns) for columns in found],
        positions=positions,
        position=str(closed) if whole else positions[-1],
        more=not whole or goes_on,
    )


def _is_gone(given: Position, end: Position, purged: int, reach: int) -> bool:
    """Whether rows behind it may be gone, or are too many, or were never written here."""
    if given.place != end.place or end.drawn - given.drawn > reach:
        return True
    newest, first_open = Snapshot.of(given.s2 or given.s1).next, Snapshot.of(given.s1).first_open
    return newest > Snapshot.of(end.s1).next or purged >= first_open


def _short(snapshot: str) -> str:
    """A snapshot as it travels: numbers count from its first, and have 16 digits."""
    if not snapshot:
        return ""
    seen = Snapshot.of(snapshot)
    between = "_".join(f"{one - seen.first_open:x}" for one in sorted(seen.open))
    return f"{seen.first_open:x}-{seen.next - seen.first_open:x}-{between}"


def _long(text: str) -> str:
    """The same as PostgreSQL reads it. ValueError for what is none."""
    first, length, between = text.split("-")
    begin = _number(first)
    end = begin + _number(length)
    opened = [begin + _number(one) for one in between.split("_")] if between else []
    if not 0 < begin <= end < HIGHEST or opened != sorted(set(opened)) or any(one >= end for one in opened):
        raise ValueError(text)
    return f"{begin}:{end}:{','.join(map(str, opened))}"


def _number(text: str) -> int:
    if not 0 < len(text) <= 16 or not set(text) <= set("0123456789abcdef"):
        raise ValueError(text)
    return int(text, 16)
