"""A glance at the platform while it lives: how many bookings are in which state, and how many facts there are by now. Any
number of glances cost next to nothing: one look at an index and a few last lines."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import msgspec

BOOKINGS = "SELECT status, count(*) FROM bookings GROUP BY status"
FACTS = "SELECT coalesce(max(line), 0) FROM witness_said"


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen at one moment. `doing` says what happens on the stage."""

    day: date
    days: int
    """How many days have passed."""
    hour: float
    doing: str
    bookings: Mapping[str, int]
    facts: int
    kills: int


class Window:
    """Open files to look through."""

    def __init__(self, folder: Path, services: Sequence[str]) -> None:
        self._stores = {name: _reader(folder / f"{name}.db") for name in services}

    def bookings(self) -> Mapping[str, int]:
        return dict(self._stores["reservation"].execute(BOOKINGS).fetchall())

    def facts(self) -> int:
        return sum(int(store.execute(FACTS).fetchone()[0]) for store in self._stores.values())

    def close(self) -> None:
        for store in self._stores.values():
            store.close()


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
