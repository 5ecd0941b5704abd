"""PORT: what the members of an archive agree on: who writes which events, and how far its log was read.

The log of the archive itself lies beside its files, and decides (`posthouse.history.archive.log`). What is here is the plan that stands
before anything is written, and which events are planned or archived; it follows the log, and can be made from it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

PlanState = Literal["planned", "done"]


class ArchiveState(msgspec.Struct, frozen=True, array_like=True):
    """Which place an archive was begun in, and the number of the last entry of its log that is known here."""

    place: str
    generation: int


class Planned(msgspec.Struct, frozen=True):
    """What came of a plan: which events, by their places among those that were asked for, are its own, and which are planned by
    others, with the ids of their plans. All others are archived."""

    own: Sequence[int]
    elsewhere: Mapping[int, str]


class ArchivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that somebody is about to write: `leased` seconds from now at most, so many `events`, `age` seconds after it was made."""

    id: str
    owner: str
    objects: Sequence[str]
    events: int
    leased: float
    age: float


class ArchiveTable(Protocol):
    """Archives are called by their consumer groups. Each method is a transaction of its own. An event is known by 16 bytes, its digest."""

    async def begin(self, archive: str, place: str) -> ArchiveState:
        """How it stands; one that is new here is begun in this place."""
        ...

    async def known(self, archive: str) -> ArchiveState | None:
        """How it stands; None where it was never begun here. Changes nothing."""
        ...

    async def move(self, archive: str, place: str) -> None:
        """Say that an archive, begun here or not, is in another place, of whose log nothing is known here. Its plans are void."""
        ...

    async def plan(
        self, archive: str, id: str, owner: str, objects: Sequence[str], digests: Sequence[bytes], seconds: float
    ) -> Planned:
        """Claim what is neither archived nor planned, and note which objects may come of it, leased for so many seconds. Without
        digests it is a plan all the same; with digests of which none is free there is none. Digests are different from each other."""
        ...

    async def renew(self, archive: str, id: str, seconds: float) -> bool:
        """Lease it for so many seconds from now; False when it stands no more, or is done."""
        ...

    async def plans(self, archive: str) -> Sequence[ArchivePlan]:
        """Those that are not done, oldest first."""
        ...

    async def unknown(self, archive: str, plans: Sequence[str]) -> Sequence[str]:
        """Which of these are not there."""
        ...

    async def follow(
        self,
        archive: str,
        generation: int,
        *,
        done: Sequence[str] = (),
        aborted: Sequence[str] = (),
        learned: Mapping[str, Sequence[bytes]] | None = None,
    ) -> bool:
        """Take over an entry of the log: these plans are done, the claims of those others are void. False, and nothing is changed,
        unless it is the next one. One that is done and unknown here is `learned`, with its digests: the database went back in time,
        and with it goes every plan that is not done. StoreError for an unknown one that is not learned."""
        ...

    async def forget(self, archive: str, age: float, limit: int) -> int:
        """Forget events of plans that were done so many seconds ago, at most so many, oldest first; how many."""
        ...

    async def remembers(self, archive: str) -> float | None:
        """When the oldest plan was done whose events are known still, in seconds since 1970 by the clock of the store: whatever was
        archived before may be forgotten. None where there is none."""
        ...
