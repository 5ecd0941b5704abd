"""PORT: which versions are in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

UsageRole = Literal["published", "applied", "running", "release"]
"""published: a relay sent it. applied: a consumer's handler ran on it. running: the service was there to see. release: the
subject is that of no event, but a release of the saga that the consumer runs, which appeared first then."""


class VersionUse(msgspec.Struct, frozen=True):
    """That `party` (a service, or a consumer) used a subject, first and last at these times. A service that is `running`
    has an empty subject."""

    role: UsageRole
    party: str
    subject: str
    first_at: float
    last_at: float


class VersionUsageTable(Protocol):
    """Who used which version when. Written seldom, and never in the transaction of an event."""

    async def note(self, uses: Sequence[VersionUse], now: float | None = None) -> None:
        """Remember them: of one (role, party, subject) the earliest first time and the latest last time stay. Their times are
        those of a clock that shows `now`: they are moved by as much as the store's own differs. None: they are the store's."""
        ...

    async def seen(self) -> Sequence[VersionUse]:
        """Everything that is remembered, sorted by role, party and subject."""
        ...
