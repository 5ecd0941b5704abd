"""PORT: what operators did, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from posthouse.clock import new_id
from posthouse.store.transaction import Transaction

DONE, BEGUN = "done", "begun"

Changes = Mapping[str, tuple[object, object]]
"""What was changed, by name: before and after."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator did. What does not apply is empty.

    `verb` is the command, as in `held retry`; `by` who, `why` in their words. `target` is what it was done to, as the command
    names it. `outcome` is `done`; of what is no transaction of the store `begun` until it ended, or why it failed. `at` is the
    store's time.
    """

    verb: str
    by: str = ""
    why: str = ""
    service: str = ""
    consumer: str = ""
    topic: str = ""
    tenant: str = ""
    key: str = ""
    event_id: str = ""
    target: str = ""
    changed: Changes = {}
    count: int = 1
    outcome: str = DONE
    id: str = msgspec.field(default_factory=new_id)
    at: float = 0.0


class ActionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which actions; None means any. `verb` `held` means all of them: `held retry`, `held edit`, …;
    `retry` means `held retry`, `outbox retry`, …; `since` is a time, and `until` one that is later than all of them. `before` is
    (at, id) of one: only those older than it, to page on. `tenants` are those whose actions may be seen: of none, nothing. `job` is
    a job of the console: only what it did, item by item; empty: without the items of any job."""

    since: float | None = None
    until: float | None = None
    verb: str | None = None
    by: str | None = None
    event_id: str | None = None
    before: tuple[float, str] | None = None
    key: str | None = None
    tenants: Collection[str] | None = None
    job: str | None = None

    @property
    def of_job(self) -> str:
        """What the reason of an item ends with, as LIKE takes it."""
        return f"% [job {self.job or '_' * 36}]"


def of_item(why: str, job: str) -> str:
    """The reason of one item of a job: it is found by its end."""
    return f"{why} [job {job}]"


class ActionTable(Protocol):
    """The operators' log. Rows are added, and once changed from `begun` to how it ended."""

    async def add(self, tx: Transaction, action: Action) -> None:
        """Write it with the act itself. DoneAlready when one with its id is there, or about to be committed: then the act is not
        to be done again."""
        ...

    async def get(self, tenant: str, id: str) -> Action | None:
        """One by its id, and the tenant that it was noted for."""
        ...

    async def end(self, tx: Transaction, action: Action) -> None:
        """How one that was `begun` ended: outcome, what it changed, how many."""
        ...

    async def find(self, wanted: ActionFilter, limit: int = 100) -> Sequence[Action]:
        """Those that fit, newest first."""
        ...

    async def purge(self, age: float, limit: int) -> int:
        """Forget up to `limit` that are older than `age` seconds; how many."""
        ...
