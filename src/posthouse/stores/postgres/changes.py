"""Changes: a hint that somebody may have added to the outbox. Rung at once by those who can, looked for in any case."""

from __future__ import annotations

import asyncio

from posthouse.clock import Clock, longest_backoff
from posthouse.stores.postgres.database import LAST_PAUSE, Database

FIRST_PAUSE = 0.005
"""Seconds between two looks for what nobody rang for: joined connections cannot, and hints may be lost. They grow to …"""

# The last id that was drawn, and which transactions are open.
LOOK = "SELECT last_value, pg_current_snapshot()::text FROM posthouse.outbox_id_seq"


class Changes:
    """A number that grows. Cheap to look at: the sequence of the ids, which moves when a row is added, and then the
    transactions that were open, until each of them has ended: only a commit makes the row visible."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock
        self._number = 0
        self._seen = 0
        self._was_notified = False
        self._last: object = None
        self._fresh = False
        self._open: frozenset[int] = frozenset()

    async def wait(self, seen: int, seconds: float) -> int:
        """The number, as soon as it differs from `seen`, at the latest after `seconds`."""
        loop, clock = asyncio.get_running_loop(), self._clock
        by_loop, by_clock = loop.time() + seconds, clock.now() + seconds if clock else 0.0
        waits = 0
        looks = not self._was_notified  # whoever notified a moment ago may well do so again: then nobody need look
        if self._notified(await self._database.notifier.wait(-1, 0)):
            looks = False
        while True:
            if looks:
                await self._look()
            left = by_loop - loop.time()
            if clock is not None:
                left = min(left, by_clock - clock.now())
            if self._number != seen or left <= 0:
                return self._number
            waits += 1
            pause = longest_backoff(waits, FIRST_PAUSE, LAST_PAUSE, 1.3)
            looks = not self._notified(await self._database.notifier.wait(self._seen, min(pause, left)))

    async def mode(self) -> str:
        """What wakes a relay here, in words, found out by trying."""
        await self._database.notifier.tried()
        return self._database.notifier.mode

    def _notified(self, count: int) -> bool:
        """Whether somebody notified us since the last time."""
        self._was_notified = count != self._seen
        if self._was_notified:
            self._seen = count
            self._number += 1
        return self._was_notified

    async def _look(self) -> None:
        last, snapshot = (await self._database.run(LOOK)).one()
        transactions = {int(one) for one in str(snapshot).rpartition(":")[2].split(",") if one}
        if self._last is None:
            self._last, self._open = last, frozenset(transactions)
            self._number += 1
        elif last != self._last:  # drawn just now, by a transaction that this snapshot may not know yet
            self._last, self._fresh = last, True
            self._number += 1
        elif self._fresh:  # it knows it now, or the row is there
            self._fresh, self._open = False, frozenset(transactions)
            self._number += 1
        elif self._open - transactions:
            self._open &= transactions
            self._number += 1
