"""PORT: what lies in a store, how old it is, and how rows leave that nobody needs any more.

Rows that are to be written elsewhere first are read (`old_…`), written, and only then deleted, these and no others
(`forget_…`): whoever dies in between finds the same rows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from posthouse.store.held import HeldEvent

Place = Literal["outbox", "inbox", "held", "stream"]

MOST_COUNTED = 100_000
"""So many rows of a kind are counted, and no more: what a look costs must not grow with what is there."""


class Lying(msgspec.Struct, frozen=True, kw_only=True):
    """So many rows of a kind in one place; MOST_COUNTED stands for that or more. `oldest`: how many seconds ago the first of them
    came (held ones: were changed last), by the store's clock; None where there is none, or nobody wrote it down. `due`: how many of
    them may go."""

    place: Place
    state: str = ""
    rows: int
    oldest: float | None = None
    due: int = 0


class SeenRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the inbox, whole: who has seen which unordered event, and what came of it. Times are in seconds since 1970."""

    consumer: str
    tenant: str
    event_id: str
    topic: str
    digest: bytes
    time: float
    received_at: float
    result: str


class RetentionTable(Protocol):
    """Ages are in seconds, by the store's clock. Of held events only those that were given up (`skipped`) ever leave: all others
    may still be applied."""

    async def lying(self, *, inbox: float, held: float | None) -> Sequence[Lying]:
        """What is where. `inbox` and `held` are the ages from which on rows may go; None: never. Changes nothing."""
        ...

    async def old_seen(self, age: float, limit: int) -> Sequence[SeenRow]:
        """Up to `limit` rows of the inbox that were received more than `age` seconds ago, oldest first, and of one time in one
        order: the same at each look."""
        ...

    async def forget_seen(self, rows: Sequence[SeenRow]) -> int:
        """Delete exactly these, and note how far was forgotten, in one transaction; how many were still there."""
        ...

    async def old_held(self, age: float, limit: int) -> Sequence[HeldEvent]:
        """Up to `limit` held events that were given up and changed last more than `age` seconds ago, longest ago first."""
        ...

    async def forget_held(self, events: Sequence[HeldEvent]) -> int:
        """Delete those of them that are as they were read, in one transaction; how many that were. They still count as skipped, and
        one that stands alone and comes again is set aside, as after a purge of the inbox."""
        ...
