"""Following: what a relay knows while it reads the log, from one time that polls were needed to the next. No I/O."""

from __future__ import annotations

from collections.abc import Hashable

from posthouse.store import OutboxRow
from posthouse.stores.postgres.snapshot import Snapshot
from posthouse.stores.postgres.wal.cursor import Dealt, Guard, Mark
from posthouse.stores.postgres.wal.unsent import Unsent

MOVE, QUIET, ALL = 1.0, 0.1, 10.0
"""Seconds between two moves of the cursors under load; after which a pause counts as one; between two moves of all."""
SOON = 0.02
"""Seconds between two moves at the least: what was just committed may not be visible yet."""
MANY = 5_000
"""Rows after which the cursors move before their time, so that a crash repeats no more."""
NUDGE = 0.5
"""Seconds to wait for a place in the log that a quiet server may never write out by itself."""
STUCK_PAUSE = 0.2
"""Seconds between two looks for stuck rows whose time has come, while there are any."""

LONG_AGO = float("-inf")


class Following:
    """Begins with polls (`base` is None) and, when `guard` says that there is a stream, may go over to it."""

    def __init__(self, guard: Guard | None = None, unsent: Unsent | None = None) -> None:
        self.guard = guard
        self.unsent = Unsent() if unsent is None else unsent
        self.dealt = Dealt()
        self.base: Snapshot | None = None
        """What it shows was dealt with by polls; what it does not show comes from the stream."""
        self.threshold: int | None = None
        """Every transaction below has to end before the stream can be trusted to bring the rest."""
        self.mark: Mark | None = None
        self.stuck: set[Hashable] = set()
        self.untidy = True
        """Some cursors lag behind, or show transactions as open: old rows cannot go."""
        self.moved_at = self.moved_all_at = self.came_at = self.looked_for_stuck_at = LONG_AGO

    @property
    def reached(self) -> bool:
        """Whether everything up to the mark was dealt with."""
        return self.mark is not None and self.unsent.accepted >= self.mark.end

    def take_over(self, base: Snapshot, stuck: set[Hashable], now: float) -> None:
        """From here on rows come from the stream."""
        self.base, self.stuck, self.moved_at = base, stuck, now

    def until_due(self, now: float) -> float:
        """Seconds until something is to be done about the cursors."""
        if self.mark is not None:
            return 0.0 if self.reached else self.mark.taken_at + NUDGE - now
        if self.dealt.parked or self.dealt.rows >= MANY:
            return self.moved_at + SOON - now
        if not self.dealt:
            return max(self.moved_all_at + ALL, self.moved_at + MOVE) - now if self.untidy else ALL
        pause = max(self.came_at, self.moved_at) + QUIET
        return (self.moved_at + MOVE if self.unsent else min(self.moved_at + MOVE, pause)) - now

    def looks_for_stuck(self, now: float) -> bool:
        """Whether it is time to look for stuck rows that are due."""
        if not self.stuck or now - self.looked_for_stuck_at < STUCK_PAUSE:
            return False
        self.looked_for_stuck_at = now
        return True

    def moves_all(self, now: float) -> bool:
        """Whether every cursor moves, also where nothing was sent."""
        return self.untidy and now - self.moved_all_at >= ALL

    def moved(self, snapshot: Snapshot, everything: bool, now: float) -> None:
        """The cursors have moved to a snapshot."""
        self.dealt.forget_seen(snapshot)
        self.untidy = bool(snapshot.open) or not everything
        if everything:
            self.moved_all_at = now


def line(row_id: object, topic: object, tenant: object, key: object) -> Hashable:
    """What waits together: a key, or a row without one."""
    return (topic, tenant, key) if key is not None else row_id


def line_of(row: OutboxRow) -> Hashable:
    """The line in which a row waits."""
    return line(row.id, row.topic, row.tenant, row.key)
