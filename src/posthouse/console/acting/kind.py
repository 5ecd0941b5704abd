"""Kind: what a job goes through, one after the other: which items fit, what is done to one, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Protocol

import msgspec

from posthouse.app import App
from posthouse.service import Service
from posthouse.store.jobs import Job, Open

PAGE = 200

Result = Literal["applied", "failed", "unknown", "gone"]
"""applied: it went well. failed: it is held again. unknown: not yet. gone: somebody else decided about it."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast, how many first, and when to stop."""

    rate: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 10.0
    canary: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 0
    stop_after: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0


class FailedAgain(Exception):
    """The act itself failed, and changed nothing: one more new failure."""


class Item(msgspec.Struct, frozen=True):
    """One thing: its id, whose it is, and the turn that it was seen in."""

    id: int
    tenant: str
    turn: int


class Kind(Protocol):
    """What a job does to what. `judged`: what becomes of an item afterwards is known in time.
    `fenced`: an item has turns, and an act is one."""

    judged: bool
    fenced: bool
    parameters: type[Pace]

    async def newest(self, app: App) -> int:
        """The highest id that there is."""
        ...

    async def page(self, service: Service, job: Job, after: int, limit: int) -> tuple[Sequence[Item], int | None]:
        """Items that fit, by id, and where to go on; None at the end."""
        ...

    async def count(self, service: Service, job: Job, after: int, limit: int) -> tuple[int, int | None]:
        """How many of a page fit, and where to go on; None at the end."""
        ...

    async def find(self, service: Service, job: Job, id: int) -> Item | None:
        """One of them as it is now, None where it does not fit any more."""
        ...

    async def do(self, service: Service, job: Job, item: Item, by: str, why: str) -> None:
        """Act on one. DeskError where it is refused; FailedAgain where it failed while it was done."""
        ...

    async def results(self, app: App, items: Sequence[Open]) -> Mapping[int, Result]:
        """What became of some."""
        ...
