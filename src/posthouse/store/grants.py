"""PORT: grants: for a while, somebody may replay or edit so many events, because somebody else said so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from posthouse.store.transaction import Transaction

GrantVerb = Literal["replay", "edit"]
"""replay: events run again, or are sent again, as they were; a saga tries again what failed. edit: an event gets a new payload and
runs again; a saga is resumed or cancelled."""

LONGEST_GRANT = 60
"""Minutes."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which events; None means any. `since` and `until` are when they were said, in seconds since 1970."""

    consumer: str | None = None
    topic: str | None = None
    tenant: str | None = None
    type: str | None = None
    key: str | None = None
    since: float | None = None
    until: float | None = None

    def covers(self, other: Scope) -> bool:
        """Whether everything that `other` means is meant here."""
        names = ("consumer", "topic", "tenant", "type", "key")
        same = all(getattr(self, name) in (None, getattr(other, name)) for name in names)
        begins = self.since is None or (other.since is not None and other.since >= self.since)
        ends = self.until is None or (other.until is not None and other.until <= self.until)
        return same and begins and ends

    @property
    def words(self) -> str:
        """As an operator reads it: `consumer billing, tenant t1`."""
        said = msgspec.structs.asdict(self).items()
        return ", ".join(f"{name} {value}" for name, value in said if value is not None) or "all events"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Who asked, for what, and who let them. `asked_as` and `approved_as` say how they were known: two people are two of these too.

    It runs for `minutes` from its approval, for `most` events, at most `rate` of them per second; `used` of them are spent. As it is
    read, `left` are the seconds until it ends by the store's clock: None before the approval, not above 0 when it is over.
    """

    id: str
    service: str
    verb: GrantVerb
    scope: Scope
    why: str
    asked_by: str
    asked_as: str
    minutes: int
    most: int
    rate: float
    asked_at: float = 0.0
    approved_by: str | None = None
    approved_as: str | None = None
    approved_at: float | None = None
    revoked_by: str | None = None
    revoked_at: float | None = None
    used: int = 0
    left: float | None = None

    @property
    def state(self) -> Literal["asked", "running", "expired", "revoked", "spent"]:
        """asked: nobody has approved it. spent: it ran out of events."""
        if self.revoked_at is not None:
            return "revoked"
        if self.left is None:
            return "asked"
        if self.left <= 0:
            return "expired"
        return "spent" if self.used >= self.most else "running"


class Drawn(NamedTuple):
    """So many may be dealt with, after so many seconds."""

    events: int
    wait: float


class GrantTable(Protocol):
    """One row for each grant. The store's clock says what has ended, and the row itself refuses that somebody approves their own."""

    async def add(self, tx: Transaction, grant: Grant) -> None:
        """Write it as it was asked for."""
        ...

    async def get(self, id: str) -> Grant | None:
        """One by its id."""
        ...

    async def find(self, services: Sequence[str], *, running: bool = False, limit: int = 100) -> Sequence[Grant]:
        """Those of these services, newest first; `running`: only those that are approved and neither over nor revoked."""
        ...

    async def approve(self, tx: Transaction, id: str, by: str, known_as: str) -> bool:
        """Let it run from now on. False when it was approved or revoked before, or when whoever asked is who approves."""
        ...

    async def revoke(self, tx: Transaction, id: str, by: str) -> bool:
        """End it now. False when it was revoked before."""
        ...

    async def draw(self, id: str, count: int) -> Drawn | None:
        """Spend up to `count` of what is left of it, and take their place in its pace; None when nothing is left, it is over, or
        its pace has no place before its end."""
        ...

    async def purge(self, age: float, limit: int) -> int:
        """Forget up to `limit` that were asked for more than `age` seconds ago and are over; how many."""
        ...
