"""Tracing: everything that one request caused, across services, from brokers' logs and stores."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from posthouse.service import Service
from posthouse.tracing.gathering import Gathered, gather
from posthouse.tracing.spot import Place, Spot
from posthouse.tracing.standing import Heard, SagaStep, State, standings
from posthouse.tracing.tree import Branch, branches
from posthouse.tracing.turns import deadline_of, with_turns
from posthouse.tracing.wanted import Wanted, made_at

__all__ = ["Branch", "Heard", "Place", "SagaStep", "Spot", "State", "Trace", "trace"]

MARGIN = 300.0
"""Seconds by which clocks may differ: an id may say that it was made after the broker stored it."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The causal tree of one correlation, in order, with those events of others that led to one of it, as a request that a
    saga has waited for. `heard` tells what consumers did with each event, by its id;
    `deadlines` which deadline of a saga an event is about. `read` counts the frames that were looked at, `since` is from
    when on; None means all."""

    correlation: str
    branches: Sequence[Branch]
    heard: dict[str, list[Heard]]
    deadlines: dict[str, str]
    notes: Sequence[str]
    read: int
    since: float | None

    @property
    def services(self) -> list[str]:
        """Who said something."""
        return sorted({branch.spot.service for branch in self.branches})


async def trace(
    services: Sequence[Service],
    identifier: str,
    since: float | None = None,
    *,
    within: float | None = None,
    tenants: Collection[str] | None = None,
) -> Trace:
    """Everything of the correlation that `identifier` is, or that the event of this id belongs to. Without `since` the time
    is taken from the id, where it holds one. Opened stores are needed; nothing is changed. With `within` each log and each store
    is looked through for so many seconds at most, and one that is away is left out: the notes say so. With `tenants` nothing of others is looked at: an id is unique in its tenant only,
    and producers choose it."""
    found = await _gather(services, Wanted(identifier, tenants=tenants), since, within)
    named = found.spots.get(identifier)
    correlation = identifier if named is None else named.event.correlation or identifier
    if correlation != identifier:
        found = await _gather(services, Wanted(correlation, tenants=tenants), since, within)
    if causes := {branch.cause for branch in branches(found.spots) if branch.cause is not None}:
        found = await gather(services, Wanted(correlation, causes, tenants), _since(correlation, since), within)
    heard = await standings(services, found.spots, found.held)
    return Trace(
        correlation=correlation,
        branches=branches(found.spots),
        heard=await with_turns(services, found.spots, heard),
        deadlines={
            event_id: f"{passed.deadline} of {passed.saga} {passed.id}"
            for event_id, spot in found.spots.items()
            if (passed := deadline_of(services, spot.event)) is not None
        },
        notes=found.notes,
        read=found.read,
        since=_since(correlation, since),
    )


async def _gather(services: Sequence[Service], wanted: Wanted, since: float | None, within: float | None) -> Gathered:
    return await gather(services, wanted, _since(wanted.correlation, since), within)


def _since(identifier: str, given: float | None) -> float | None:
    made = made_at(identifier)
    return made - MARGIN if given is None and made is not None else given
