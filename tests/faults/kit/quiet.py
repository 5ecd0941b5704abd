"""Quiet: whether anything is left to move, read from the files without the code under test."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.faults.kit.failpoint import plain_connect

TIMERS = "SELECT count(*) FROM posthouse_timer"

UNSENT = """
SELECT (SELECT coalesce(max(id), 0) > (SELECT min(cursor) FROM posthouse_lane) FROM posthouse_outbox)
    + (SELECT count(*) FROM posthouse_stuck)
"""

PENDING = """
SELECT coalesce(sum(h.stored - c.acked), 0) FROM heads h JOIN cursors c ON c.topic = h.topic AND c.partition = h.partition
WHERE c.grp = ?
"""

# What waits behind a dead event waits for an operator.
UNRUN = """
SELECT count(*) FROM posthouse_held h WHERE state IN ('retrying', 'gap') OR (state = 'blocked' AND NOT EXISTS (
    SELECT 1 FROM posthouse_held d WHERE d.state = 'dead' AND d.tenant = h.tenant AND d.topic = h.topic AND d.key = h.key))
"""


# Service, part, file and question, along the way of an event: what was found empty stays empty while nobody produces.
QUESTIONS = (
    ("orders", "timers", "orders", TIMERS, ()),
    ("orders", "relay", "orders", UNSENT, ()),
    ("billing", "consumers", "log", PENDING, ("billing",)),
    ("billing", "consumers", "billing", UNRUN, ()),
    ("billing", "relay", "billing", UNSENT, ()),
    ("orders", "consumers", "log", PENDING, ("orders",)),
    ("orders", "consumers", "orders", UNRUN, ()),
)


class Quiet:
    """Keeps the three files open for looking."""

    def __init__(self, folder: Path) -> None:
        names = ("orders", "billing", "log")
        self._files = {name: plain_connect(folder / f"{name}.db", timeout=0, isolation_level=None) for name in names}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._files.values():
            connection.close()

    def reached(self, services: Collection[str], parts: Collection[str]) -> bool:
        """Whether these parts of these services have nothing left to do."""
        try:
            return not any(
                self._files[file].execute(question, parameters).fetchone()[0]
                for service, part, file, question, parameters in QUESTIONS
                if service in services and part in parts
            )
        except sqlite3.OperationalError:
            return False  # being made, or recovered by another process
