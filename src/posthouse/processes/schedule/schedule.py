"""Schedule: what a service does again and again, as it was declared; and the handler that does it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime

from posthouse.contracts import EventType
from posthouse.errors import ConfigurationError
from posthouse.events import Event
from posthouse.processes.schedule.cron import Cron, Missed
from posthouse.processes.schedule.run import RunDue, run_of
from posthouse.receiving import Handler
from posthouse.receiving.handler import Call
from posthouse.seam import EventContext, Seam
from posthouse.seam.deadline import on_loop
from posthouse.sending import Tx
from posthouse.store import Store, Transaction

Tenants = Collection[str] | Callable[[Tx], Awaitable[Collection[str]]]
"""For whom a moment has a run: these, or those whom an async function of a Tx names when the moment has come."""

PLATFORM = "platform"
"""Whose transaction it is in which a moment is dealt with."""


WHOM_WITHIN = 10.0
"""Seconds that the function has to name them: the row is locked meanwhile, and the other schedules of the process wait."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """One schedule of a service."""

    service: str
    name: str
    cron: Cron
    missed: Missed
    tenants: Tenants
    whose: bool
    """Whether it was said for whom it runs."""
    event_type: EventType[RunDue]
    handler: Handler
    description: str = ""

    def begin(
        self, tx: Tx, moments: Sequence[float], tenants: Collection[str], *, missed: int = 0, by_hand: bool = False
    ) -> None:
        """Say in this transaction that the runs for some moments begin, one for each tenant. What is said twice is one
        run."""
        for moment in moments:
            at = datetime.fromtimestamp(moment, UTC)
            payload = self.event_type.payload.cls(schedule=self.name, moment=at, missed=missed, by_hand=by_hand)
            for tenant in tenants:
                tx.context = EventContext(tenant=tenant)
                tx.publish(payload, idempotency_key=f"{self.name} {at.isoformat()}")

    async def whom(self, tx: Tx) -> Collection[str]:
        """For whom a moment has a run now, each once."""
        if not callable(self.tenants):
            return dict.fromkeys(self.tenants)
        found = await on_loop(self.tenants(tx), WHOM_WITHIN, f"tenants= of {self.service} {self.name}")
        if not isinstance(found, Collection) or isinstance(found, str) or not all(map(_is_name, found)):
            raise ConfigurationError(f"tenants= of {self.service} {self.name} names the tenants, not {found!r:.60}")
        return dict.fromkeys(found)


def _is_name(tenant: object) -> bool:
    return isinstance(tenant, str) and tenant != ""


@dataclasses.dataclass(frozen=True)
class RunHandler(Handler):
    """Gives the function its run, and notes in the same transaction that it is done."""

    service: str = ""
    tz: str = "UTC"

    async def run(self, seam: Seam, store: Store, transaction: Transaction, calls: Sequence[Call]) -> Sequence[object]:
        runs = [run_of(call.argument, self.tz) for call in calls if isinstance(call.argument, Event)]
        given = [call._replace(argument=run) for call, run in zip(calls, runs, strict=True)]
        results = await super().run(seam, store, transaction, given)
        for run in runs:
            await store.schedules.done(transaction, self.service, run.schedule, run.moment.timestamp())
        return results
