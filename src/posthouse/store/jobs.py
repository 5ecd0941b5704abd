"""PORT: what operators asked to be done to many things, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from posthouse.store.transaction import Transaction

JobState = Literal["running", "paused", "done", "stopped", "cancelled", "failed"]
"""running: goes on as soon as a console runs. paused: until somebody resumes it. done: through with all. stopped: too many new
failures. cancelled: by somebody. failed: it could not go on; `note` says why."""

ENDED: frozenset[JobState] = frozenset(("done", "stopped", "cancelled", "failed"))


class Open(msgspec.Struct, frozen=True, array_like=True):
    """An item that was acted on and whose outcome is not known yet: its id, its turn after the act, and whose it is. One that is
    `begun` may have been acted on, or not: the operators' log knows."""

    id: int
    turn: int
    tenant: str = ""
    begun: bool = False


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """An act over many things. What was frozen at the press: `act` and its `parameters` as JSON, `by`, `why`, the `tenants` that
    they may see (None: all), the `last` id that is part of it, the moment `seen_at` by the store's clock (what changed after it is
    not part of it), and how many there were (`total`, a lower bound where `more`).

    `rate` is items per second. After the first `canary` items it waits for their outcome. It stops after `stop_after` new failures;
    0 means never, of both.

    `position` is the id of the last item that was dealt with: `done` of them were acted on, `refused` were not, with the last
    reason in `note`. Of those that were acted on `applied` went well and `failed` did not; the others are `open`, or have no
    outcome. `canary_passed`: it need not wait for the first ones any more.

    As it is read: `token` fences whoever had its lease before, `holder` has it until so many seconds from now (`leased`, not above
    0 when it is free). Times are the store's.
    """

    id: str
    service: str
    act: str
    parameters: bytes
    by: str
    why: str
    tenants: tuple[str, ...] | None = None
    last: int = 0
    seen_at: float = 0.0
    total: int = 0
    more: bool = False
    rate: float = 0.0
    canary: int = 0
    stop_after: int = 0
    state: JobState = "running"
    position: int = 0
    done: int = 0
    refused: int = 0
    applied: int = 0
    failed: int = 0
    open: tuple[Open, ...] = ()
    canary_passed: bool = False
    note: str = ""
    holder: str = ""
    token: int = 0
    leased: float = 0.0
    created_at: float = 0.0
    changed_at: float = 0.0
    ended_at: float | None = None


class JobTable(Protocol):
    """One row for each job. Whoever runs one holds its lease; whoever lost it is refused by its token."""

    async def add(self, tx: Transaction, job: Job) -> None:
        """Write it as it was pressed; nobody has its lease."""
        ...

    async def get(self, id: str) -> Job | None:
        """One by its id."""
        ...

    async def find(self, services: Sequence[str], *, before: str = "", limit: int = 100) -> Sequence[Job]:
        """Those of these services, by id, newest first; `before` an id: only older ones."""
        ...

    async def take(
        self,
        services: Sequence[str],
        holder: str,
        seconds: float,
        *,
        acts: Sequence[str] | None = None,
        besides: Sequence[str] = (),
    ) -> Job | None:
        """The oldest running job of these services whose lease is free, leased for so many seconds, under a new token: of these
        acts (None: any), and none of these ids."""
        ...

    async def save(self, job: Job, seconds: float, *, ended: JobState | None = None) -> JobState | None:
        """Write how far it is (position, counts, open, canary, note), keep the lease for so many seconds, and end it where `ended`
        says how and it still runs. Returns the state that it has now, which somebody may have changed; None when the lease is
        another's. 0 seconds give the lease back."""
        ...

    async def decide(self, tx: Transaction, id: str, state: JobState, *, canary_passed: bool = False) -> bool:
        """An operator's word about one that has not ended: running, paused or cancelled. False when it has ended."""
        ...

    async def purge(self, age: float, limit: int) -> int:
        """Forget up to `limit` that ended more than `age` seconds ago; how many."""
        ...
