"""PORT: the figures of a store: what it counts, how old the oldest of each kind is, and how much room it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from posthouse.store.held import HeldState
from posthouse.store.projections import Generation
from posthouse.store.sagas import Rest, SagaStatus

T = TypeVar("T")


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has sent and accounted for: what is compared with the broker to see that nothing is missing."""

    sent: Mapping[str, int]
    """Rows of the outbox that the broker accepted, per topic."""
    accounted: Mapping[tuple[str, str], int]
    """Events applied, held, skipped or accepted as lost, per (consumer, topic)."""
    strange: Mapping[tuple[str, str], int]
    """Frames in which no event could be read, per (consumer, topic)."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one store: for the conservation line."""

    committed: Mapping[str, int]
    """Rows ever added to the outbox, per topic."""
    unsent: Mapping[str, int]
    """Of these, not yet accepted by the broker, per topic (stuck ones included)."""
    stuck: int
    refused: Mapping[str, int]
    """Of the stuck ones, refused for good, per topic: they go nowhere by themselves."""
    applied: Mapping[tuple[str, str], int]
    """Events applied, per (consumer, topic)."""
    skipped: Mapping[tuple[str, str], int]
    """Events given up, per (consumer, topic): held as skipped, or never seen."""
    held: Mapping[tuple[str, str, HeldState], int]
    """Events held, per (consumer, topic, state); skipped ones are not counted here."""
    strange: Mapping[tuple[str, str], int]
    """Frames in which no event could be read, quarantined or skipped, per (consumer, topic). Nobody knows whether a producer ever
    committed them: they are counted neither as held nor as skipped."""
    timers: int
    strange_skipped: Mapping[tuple[str, str], int] = {}
    """Of these frames, the skipped ones."""
    overdue: Mapping[tuple[str, str], int] = {}
    """Of the held ones, those that wait at a gap whose deadline has passed, per (consumer, topic)."""
    lost: Mapping[tuple[str, str], int] = {}
    """Events that never came and that an operator has accepted as lost, per (consumer, topic)."""
    notes: Sequence[str] = ()
    """Sentences on what has befallen the store lately, for people."""
    estimated: bool = False
    """The backlog was too long to be counted at every look: `unsent` and `committed` are estimated by ids, rather too high
    than too low, and shared out among topics by a sample."""

    @property
    def sums(self) -> Sums:
        """What was sent and accounted for. Whatever is estimated is not in it."""
        accounted = Counter(self.applied)
        for part in (self.skipped, self.lost):
            accounted.update(part)
        for (consumer, topic, _), number in self.held.items():
            accounted[consumer, topic] += number
        sent = {topic: number - self.unsent.get(topic, 0) for topic, number in self.committed.items()}
        return Sums(sent=_without_zeros(sent), accounted=_without_zeros(accounted), strange=self.strange)


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """Connections to the server of a store. `own` are those that this process has in use of the `own_limit` that it may have,
    `used` those that anybody has of `limit`: that leaves out what the server keeps for superusers."""

    own: int
    own_limit: int
    used: int
    limit: int


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """How a store stands at a moment. Ages are seconds by the store's clock, never below 0; 0, or no entry, when there is nothing
    of the kind. So they grow while nobody works."""

    at: float
    """What the store's clock said, in seconds since 1970."""
    counts: Counts
    unsent_oldest: Mapping[str, float] = {}
    """How long ago the oldest row was written that no relay has passed, or first refused that the broker may still take, per topic;
    of a long backlog, of those rows that were counted."""
    held_oldest: Mapping[tuple[str, HeldState], float] = {}
    """How long ago the first of them was held, per (consumer, state); skipped ones aside."""
    held_runnable: Mapping[str, float] = {}
    """For how long a retry that is due, or a gap past its deadline, has waited to be taken up, per consumer."""
    held_due: Mapping[str, int] = {}
    """How many retries are due and wait to be taken up, per consumer; of the first two hundred whose time has come."""
    timers_overdue: float = 0.0
    """For how long the first timer has been due."""
    sagas: Mapping[tuple[str, SagaStatus], int] = {}
    """Sagas that are there, per (saga, status); tombstones aside."""
    sagas_ended: Mapping[tuple[str, Rest], int] = {}
    """Sagas that ever came to rest, per (saga, outcome); none is forgotten with its row. One that was partial counts for each time
    that it was, and as ended too once it has."""
    sagas_oldest: Mapping[tuple[str, SagaStatus], float] = {}
    """How long ago the first of those that are not over was started, per (saga, status)."""
    schedules_overdue: Mapping[tuple[str, str], float] = {}
    """For how long the moment of a schedule that runs has passed, per (service, name)."""
    generations: Sequence[Generation] = ()
    """Those of read models that are not retired; how far each is."""
    shards_leased: int = 0
    shards_free: int = 0
    """Shares of the outbox that a relay holds, and that nobody does."""
    leases: int = 0
    """How often shards were taken over, by anybody."""
    runs: int = 0
    """How many runs of the server relays have seen; 0 where there is no server."""
    connections: Connections | None = None
    """None where there is no server."""

    @property
    def oldest_unsent(self) -> float:
        """The age of the oldest row of all topics."""
        return max(self.unsent_oldest.values(), default=0.0)


def _without_zeros(figures: Mapping[T, int]) -> dict[T, int]:
    return {name: number for name, number in figures.items() if number}
