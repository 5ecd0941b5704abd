"""Snapshot: which transactions had ended, as PostgreSQL writes it down (`xmin:xmax:xip,xip`)."""

from __future__ import annotations

import msgspec


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """Everything below `first_open` had ended, nothing from `next` on; between them all but those in `open`."""

    text: str
    first_open: int
    next: int
    open: frozenset[int]

    @classmethod
    def of(cls, text: str) -> Snapshot:
        """Read what `pg_snapshot` prints."""
        first_open, following, between = text.split(":")
        return cls(text, int(first_open), int(following), frozenset(int(one) for one in between.split(",") if one))

    def sees(self, transaction: int) -> bool:
        """Whether what this transaction wrote is visible in the snapshot, if it was committed."""
        return transaction < self.first_open or (transaction < self.next and transaction not in self.open)
