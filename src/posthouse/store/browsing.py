"""PORT: lists for people to look through, light and bounded however much there is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from posthouse.store.actions import Action, ActionFilter
from posthouse.store.held import HeldFilter, HeldState
from posthouse.store.outbox import OutboxRow
from posthouse.store.sagas import SagaFilter, SagaRow

LOOKED_THROUGH = 20_000
"""Rows of the outbox that one call looks through: no index tells what is in them, since whoever publishes would pay for it."""

COUNTED = 10_000
"""What is not counted as it comes and goes is counted up to here."""

COUNTED_OF_TENANT = 100
"""Each group of each tenant is counted up to here: a tenant may have a thousand groups."""

BEHIND = 1_000
"""Those that wait behind one event are counted up to here."""

SHOWN = 300
"""Characters of an error in a list."""

TIMEOUT = 2.0
"""Seconds that a look may take unless it says otherwise."""


class Bounded(msgspec.Struct, frozen=True):
    """How many; `more`: at least so many, nobody counted further."""

    number: int
    more: bool = False


class HeldLine(msgspec.Struct, frozen=True, kw_only=True):
    """A held event without its envelope and its stack; of its error the beginning."""

    id: int
    consumer: str
    topic: str
    tenant: str
    key: str | None
    sequence: int | None
    lineage: int
    event_id: str
    state: HeldState
    type: str
    attempts: int
    next_at: float
    first_at: float
    last_at: float
    reason: str
    error: str
    fingerprint: str
    correlation: str | None
    turn: int


class HeldGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Held events of one consumer that stand alike and failed alike. `first_at` is when the first of them was held, `last_at`
    when the last of them was; that is the `example`, by its id, and `type` and `error` are its."""

    fingerprint: str
    consumer: str
    state: HeldState
    count: Bounded
    first_at: float
    last_at: float
    example: int
    type: str
    error: str


class TenantHeld(msgspec.Struct, frozen=True, kw_only=True):
    """Of the held events that were looked at so many are one tenant's, in this state; the first was held at `first_at`."""

    tenant: str
    state: HeldState
    number: int
    first_at: float


class TenantSaid(msgspec.Struct, frozen=True, kw_only=True):
    """Of the rows of the outbox that were looked at so many are one tenant's, in this topic."""

    tenant: str
    topic: str
    number: int


class TimerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A timer without the envelope that it will send."""

    id: int
    name: str
    due_at: float
    topic: str
    tenant: str
    event_id: str
    key: str | None


class OutboxFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of the outbox, sent or not; None means any. `contains` is a text in their headers or body, as it stands there:
    decode what was found to be sure. `tenants` are those whose rows may be seen."""

    event_id: str | None = None
    key: str | None = None
    topic: str | None = None
    contains: str | None = None
    tenants: Collection[str] | None = None


class OutboxFound(msgspec.Struct, frozen=True):
    """Rows that fit, newest first, and where the next look goes on: None at the end. There may be none, and more to look at."""

    rows: Sequence[OutboxRow]
    after: int | None


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """How far a consumer has come with a key: the last number that it applied, of which event (empty: of none), and how many
    of the key are held that keep it waiting."""

    consumer: str
    topic: str
    sequence: int
    lineage: int
    event_id: str
    held: int


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """An event that an unordered consumer has had: `result` is applied or skipped."""

    consumer: str
    topic: str
    received_at: float
    result: str


class Browsing(Protocol):
    """What a console shows. Every call is a read of its own and changes nothing. Pages go on behind the last line of the page
    before; nothing is skipped and nothing counted to get there. The cost depends on what is shown, not on what is there;
    where a filter makes that impossible, StoreUnavailable after `timeout` seconds says what was too slow, and how to ask for
    less."""

    async def held(
        self,
        wanted: HeldFilter,
        *,
        after: int | None = None,
        limit: int = 50,
        newest: bool = True,
        timeout: float = TIMEOUT,
    ) -> Sequence[HeldLine]:
        """Held events by id, the newest first or the oldest, those behind `after`."""
        ...

    async def held_groups(
        self, wanted: HeldFilter, *, limit: int = 100, timeout: float = TIMEOUT
    ) -> Sequence[HeldGroup]:
        """Which failures there are, the largest groups first. Asked by consumer, state and fingerprint alone, every count is exact;
        of tenants each group is counted up to `COUNTED_OF_TENANT` of each; of anything else the newest `COUNTED` events are looked at."""
        ...

    async def waiting_behind(self, lines: Sequence[HeldLine], *, timeout: float = TIMEOUT) -> Mapping[int, Bounded]:
        """How many events of its key wait behind each, by the id of the line; none is said of those that keep nobody waiting."""
        ...

    async def held_by_tenant(
        self, states: Sequence[HeldState], *, limit: int = 1_000, timeout: float = TIMEOUT
    ) -> Sequence[TenantHeld]:
        """For whom events are held: of each state the oldest `limit` are looked at, and no more."""
        ...

    async def said_by_tenant(self, *, limit: int = 1_000, timeout: float = TIMEOUT) -> Sequence[TenantSaid]:
        """Who said the newest `limit` rows that are in the outbox, sent or not."""
        ...

    async def sagas(
        self,
        wanted: SagaFilter,
        *,
        after: int | None = None,
        limit: int = 50,
        newest: bool = True,
        timeout: float = TIMEOUT,
    ) -> Sequence[SagaRow]:
        """Sagas by number, the newest first or the oldest, those behind `after`. Their `state` is left out."""
        ...

    async def timers(
        self,
        tenants: Collection[str] | None = None,
        *,
        after: tuple[float, int] | None = None,
        limit: int = 50,
        timeout: float = TIMEOUT,
    ) -> Sequence[TimerLine]:
        """Timers not yet fired, soonest first, those behind this time and id."""
        ...

    async def actions(
        self,
        wanted: ActionFilter,
        *,
        after: tuple[float, str] | None = None,
        limit: int = 50,
        timeout: float = TIMEOUT,
    ) -> Sequence[Action]:
        """What operators did, newest first, behind this time and id."""
        ...

    async def outbox(
        self, wanted: OutboxFilter, *, after: int | None = None, limit: int = 50, timeout: float = TIMEOUT
    ) -> OutboxFound:
        """Rows of the outbox that were not purged yet, newest first, among at most `LOOKED_THROUGH` behind this id."""
        ...

    async def heads(self, tenant: str, key: str, *, timeout: float = TIMEOUT) -> Sequence[Head]:
        """Where each ordered consumer stands with a key."""
        ...

    async def applied(self, tenant: str, event_id: str, *, timeout: float = TIMEOUT) -> Sequence[Applied]:
        """Which unordered consumers have had an event, as far as they remember."""
        ...


def too_slow(what: str, timeout: float, narrower: str) -> str:
    """What is said to whoever asked for too much."""
    return f"{what} took longer than {timeout:g} s and was given up; nothing was changed. {narrower}"


HELD_SLOW = (
    "the list of held events",
    "Ask for one consumer, state, fingerprint, key or event id, without a topic beside them",
)
GROUPS_SLOW = ("the groups of held events", "Ask for one consumer or state")
BEHIND_SLOW = ("counting what waits behind held events", "Ask for fewer events at once")
BY_TENANT_SLOW = ("looking for whom events are held", "Try again: the database is busy")
SAID_SLOW = ("looking who said the newest events", "Try again: the database is busy")
SAGAS_SLOW = ("the list of sagas", "Ask for one saga, status, id or correlation")
TIMERS_SLOW = ("the list of timers", "Ask for fewer at once")
ACTIONS_SLOW = ("the operators' log", "Ask for a shorter time (since, until), or for one event id")
OUTBOX_SLOW = (
    "the search in the outbox",
    "Ask for one event id or key, or read the broker's log with `posthouse trace`",
)
HEADS_SLOW = ("where consumers stand with the key", "Try again: the database is busy")
APPLIED_SLOW = ("who has had the event", "Try again: the database is busy")
