"""Who of a group should serve which lane. Pure: every member computes it from what the others said.

The server sees to it that a lane has one reader. This only spreads the lanes: where members disagree for a moment, they
are served unevenly, never twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import msgspec


class Notice(msgspec.Struct):
    """What a member tells the others. `leaving`: these were its last words."""

    id: str
    topics: Sequence[str]
    leaving: bool = False


class Members:
    """The living ones, this one among them."""

    def __init__(self, me: str, topics: Sequence[str], *, lease: float) -> None:
        self.me = me
        self._lease = lease
        self._heard: dict[str, tuple[float, frozenset[str]]] = {me: (float("inf"), frozenset(topics))}
        self.changes = 0
        """How often the circle changed."""

    def hear(self, notice: Notice, now: float) -> bool:
        """Whether somebody came or went."""
        if notice.id == self.me:
            return False
        known = notice.id in self._heard
        if notice.leaving:
            self._heard.pop(notice.id, None)
        else:
            self._heard[notice.id] = (now, frozenset(notice.topics))
        changed = known == notice.leaving
        self.changes += changed
        return changed

    def bury(self, now: float) -> bool:
        """Forget those who have been silent for too long; whether there were any."""
        silent = [name for name, (at, _) in self._heard.items() if now - at > self._lease]
        for name in silent:
            del self._heard[name]
        self.changes += bool(silent)
        return bool(silent)

    def is_mine(self, topic: str, lane: int) -> bool:
        living = sorted(name for name, (_, topics) in self._heard.items() if topic in topics)
        return living[(lane + crc32(topic.encode())) % len(living)] == self.me
