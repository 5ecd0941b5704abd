"""Whether anything is in flight, and what comes next: read from the files, because the work may be in other processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from melmastoon.demo.heirs import NEARLY, PATIENCE

# Rows that no relay has sent yet; those that the broker refused are told apart below.
UNSENT = """
SELECT EXISTS (SELECT 1 FROM posthouse_outbox o CROSS JOIN posthouse_shard l ON l.number = o.shard
    WHERE o.id > (SELECT min(cursor) FROM posthouse_shard) AND o.id > l.cursor)"""

# The next timer.
TIMER = "SELECT min(due_at) FROM posthouse_timer"

# The next row to be sent again.
STUCK = "SELECT min(next_at) FROM posthouse_stuck WHERE NOT quarantined"

# Held events whose turn it is, and when they were last touched.
HELD = """
SELECT e.consumer, e.next_at, e.last_at FROM posthouse_held e LEFT JOIN posthouse_head h
    ON h.consumer = e.consumer AND h.topic = e.topic AND h.tenant = e.tenant AND h.key = e.key
WHERE e.state = 'retrying' AND (e.sequence IS NULL OR e.sequence = h.sequence + 1)"""

# Groups that have not acknowledged everything.
UNREAD = """
SELECT DISTINCT c.grp FROM cursors c JOIN heads h ON h.topic = c.topic AND h.partition = c.partition
WHERE c.acked < h.stored"""


DEFAULT = 35.0
"""Seconds for which a held event is hidden where nothing else is said."""


class Stillness(msgspec.Struct, frozen=True):
    """One look. `moving` says what is in flight; `next` is when something becomes due, None when nothing will."""

    moving: str
    next: float | None


class Watcher:
    """Looks at all stores, and at whoever knows which groups have something to read. A look that somebody committed into is no
    look: it is taken again."""

    def __init__(
        self, stores: Mapping[str, Path], hidden: Mapping[str, float], reading: Callable[[], Iterable[str]]
    ) -> None:
        self._stores = {name: _reader(path) for name, path in stores.items()}
        self._hidden = hidden
        """For how long each consumer hides what it runs."""
        self._reading = reading

    def look(self, now: float, away: Collection[str] = ()) -> Stillness:
        """What is in flight at this moment of the platform's clock; nobody waits for services that are away."""
        before = None
        while True:
            reading = [group for group in self._reading() if group.partition(".")[0] not in away]
            if reading:  # as it is most of the time
                return Stillness(f"frames are not acknowledged by {', '.join(reading)}", None)
            seen = self._look(now, away)
            versions = self._versions()
            if seen.moving or versions == before:
                return seen
            before = versions

    def close(self) -> None:
        for connection in self._stores.values():
            connection.close()

    def _look(self, now: float, away: Collection[str]) -> Stillness:
        upcoming: list[float] = []
        for name, store in self._stores.items():
            if name in away:
                continue
            if _first(store, UNSENT):
                return Stillness(f"{name} has rows to send", None)
            dues = [due for sql in (TIMER, STUCK) if (due := _first(store, sql)) is not None]
            for consumer, next_at, last_at in store.execute(HELD).fetchall():
                if abs(next_at - last_at - self._hidden.get(consumer, DEFAULT)) < NEARLY:
                    return Stillness(f"{consumer} runs a held event", None)
                dues.append(next_at)
            if dues and min(dues) <= now:
                return Stillness(f"something of {name} is due", None)
            upcoming += dues
        return Stillness("", min(upcoming, default=None))

    def _versions(self) -> list[object]:
        """One number per store, which changes when anybody else commits."""
        return [_first(store, "PRAGMA data_version") for store in self._stores.values()]


class LogReading:
    """Which groups of a log in a file have not acknowledged everything."""

    def __init__(self, log: Path) -> None:
        self._log = _reader(log)

    def __call__(self) -> Iterable[str]:
        return [group for (group,) in self._log.execute(UNREAD)]

    def close(self) -> None:
        self._log.close()


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=PATIENCE, isolation_level=None)


def _first(connection: sqlite3.Connection, sql: str) -> float | None:
    found = connection.execute(sql).fetchone()[0]
    return None if found is None else float(found)
