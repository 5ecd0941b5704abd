"""A saga for the tests of acts over many: it rests when it is reviewed, and its retry and its undo fail for whom a test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from posthouse import Event, Payload, Policy, Saga, Service, Turn, on, partial_retry, starts, undo
from posthouse.app import app_of
from posthouse.store.sagas import SagaFilter
from posthouse.testing import Harness


@dataclass
class Stays:
    """The service, and what goes wrong in it, by the ids of stays."""

    hotel: Service
    saga: Any
    reviewed: Any
    retry_fails: set[str] = field(default_factory=set)
    undo_fails: set[str] = field(default_factory=set)

    async def rest(self, harness: Harness, *ids: str, why: str = "under review", tenant: str = "t1") -> None:
        """Stays that are partial."""
        await self.begin(harness, *ids, tenant=tenant)
        for id in ids:
            await harness.publish(self.reviewed(stay_id=id, why=why), tenant=tenant)
        await harness.settled()

    async def begin(self, harness: Harness, *ids: str, tenant: str = "t1") -> None:
        """Stays that run."""
        for id in ids:
            async with self.hotel.transaction(tenant) as tx:
                await self.hotel.start_saga(tx, self.saga(stay_id=id))
        await harness.settled()

    async def standing(self) -> dict[str, str]:
        """The status of each, by its id."""
        return {row.id: row.status async for row in app_of(self.hotel).sagas.find(SagaFilter())}


def stays() -> Stays:
    """A hotel of its own."""
    hotel = Service("hotel")

    @hotel.event("stay.reviewed.v1", key="stay_id")
    class StayReviewed(Payload):
        stay_id: str
        why: str

    @hotel.saga("stay", correlate="stay_id", policy=Policy(max_attempts=1))
    class Stay(Saga):
        stay_id: str

        @starts
        def begin(self, turn: Turn) -> None: ...

        @undo(begin)
        def forget(self, turn: Turn) -> None:
            if self.stay_id in made.undo_fails:
                raise RuntimeError("it cannot be forgotten")

        @on(StayReviewed)
        def reviewed(self, event: Event[StayReviewed], turn: Turn) -> None:
            turn.partial(event.data.why)

        @partial_retry
        def look_again(self, turn: Turn) -> None:
            if self.stay_id in made.retry_fails:
                raise ValueError(f"{self.stay_id} is still broken")
            turn.complete()

    made = Stays(hotel, Stay, StayReviewed)
    return made
