"""Sagas, many at once: those that rest run again what failed, go on without it, or undo what they did."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from posthouse.app import App, app_of
from posthouse.console.acting.act import Name
from posthouse.console.acting.kind import FailedAgain, Item, Kind, Pace, Result
from posthouse.errors import ChangedSince, ConfigurationError, DeskError, DoneAlready, StoreError
from posthouse.processes import SagaInstances
from posthouse.processes.saga.telling import failure_of, stands_at
from posthouse.redaction import words_of
from posthouse.service import Service
from posthouse.store.jobs import Job, Open
from posthouse.store.sagas import ENDED, FOR_AN_OPERATOR, SagaFilter, SagaRow, SagaStatus

OURS = (ChangedSince, ConfigurationError, DeskError, DoneAlready, StoreError)
"""What a desk raises; anything else is the saga's own."""


class ManySagas(Pace, frozen=True, kw_only=True):
    """Which sagas; what is not said is any. `step` is where one stands, `failure` what it failed with, as a page shows both."""

    saga: Name | None = None
    status: SagaStatus | None = None
    tenant: Name | None = None
    step: Name | None = None
    failure: Name | None = None


class ManyResumed(ManySagas, frozen=True, kw_only=True):
    """`note`: what was done by hand, for their histories."""

    note: str = ""


class ManyCancelled(ManySagas, frozen=True, kw_only=True):
    """`reason`: their undos see it as `turn.reason`."""

    reason: Name


P = TypeVar("P", bound=ManySagas)
SagaVerb = Callable[[SagaInstances, SagaRow, P, str, str], Awaitable[SagaRow]]
"""Given the desk, the saga, what was pressed, who and why."""


class SagaKind(Generic[P]):
    """Sagas, by one of their verbs. `states` are those that are meant where none is said, `fitting` those that may be said."""

    judged = fenced = True

    def __init__(
        self, verb: SagaVerb[P], parameters: type[P], *, states: Sequence[SagaStatus], fitting: Sequence[SagaStatus]
    ) -> None:
        self._verb = verb
        self.parameters: type[Pace] = parameters
        self._asked = parameters
        self._states, self._fitting = states, fitting

    async def newest(self, app: App) -> int:
        found = await app.store.browsing.sagas(SagaFilter(), limit=1)
        return found[0].number if found else 0

    async def page(self, service: Service, job: Job, after: int, limit: int) -> tuple[Sequence[Item], int | None]:
        """Of each state a page, by an index, and of all up to where the shortest of them ends."""
        asked, browsing = self._of(job), app_of(service).store.browsing
        rows: list[SagaRow] = []
        until = job.last
        for status in self._meant(asked):
            wanted = SagaFilter(saga=asked.saga, status=status, tenant=asked.tenant, tenants=job.tenants)
            found = await browsing.sagas(wanted, after=after, limit=limit, newest=False)
            until = min(until, found[-1].number) if len(found) == limit else until
            rows += found
        rows = sorted((row for row in rows if row.number <= until), key=lambda row: row.number)
        fitting = [_item(row) for row in rows if self._fits(service, job, row)]
        return fitting, until if until < job.last else None

    async def count(self, service: Service, job: Job, after: int, limit: int) -> tuple[int, int | None]:
        items, following = await self.page(service, job, after, limit)
        return len(items), following

    async def find(self, service: Service, job: Job, id: int) -> Item | None:
        row = await _numbered(app_of(service), id)
        return None if row is None or not self._fits(service, job, row) else _item(row)

    async def do(self, service: Service, job: Job, item: Item, by: str, why: str) -> None:
        app = app_of(service)
        row = await _numbered(app, item.id)
        if row is None:
            raise DeskError(f"saga number {item.id} is not there any more")
        try:
            await self._verb(app.sagas, row, self._of(job), by, why)
        except OURS:
            raise
        except Exception as error:  # whatever a method of theirs raises
            raise FailedAgain(f"{row.ref}: {words_of(error) or type(error).__name__}") from error

    async def results(self, app: App, items: Sequence[Open]) -> Mapping[int, Result]:
        return {item.id: _result(await _numbered(app, item.id)) for item in items}

    def _of(self, job: Job) -> P:
        return msgspec.json.decode(job.parameters, type=self._asked)

    def _meant(self, asked: P) -> Sequence[SagaStatus]:
        if asked.status is None:
            return self._states
        return [asked.status] if asked.status in self._fitting else []

    def _fits(self, service: Service, job: Job, row: SagaRow) -> bool:
        """What the store was not asked for, and what may have changed since."""
        asked = self._of(job)
        return (
            row.number <= job.last
            and row.changed_at <= job.seen_at
            and row.status in self._meant(asked)
            and row.saga in service.declared.saga_types
            and asked.saga in (None, row.saga)
            and asked.tenant in (None, row.tenant)
            and (job.tenants is None or row.tenant in job.tenants)
            and asked.step in (None, stands_at(row))
            and asked.failure in (None, failure_of(row))
        )


def _item(row: SagaRow) -> Item:
    return Item(row.number, row.tenant, row.turn)


async def _numbered(app: App, number: int) -> SagaRow | None:
    found = await app.store.browsing.sagas(SagaFilter(), after=number - 1, limit=1, newest=False)
    return found[0] if found and found[0].number == number else None


def _result(row: SagaRow | None) -> Result:
    """As long as it compensates, or a call of it is out, nobody knows."""
    if row is None or row.status in ENDED:
        return "applied"
    if row.status in FOR_AN_OPERATOR:
        return "failed"
    return "unknown" if row.status == "compensating" or row.calls else "applied"


async def _retry(desk: SagaInstances, row: SagaRow, asked: ManySagas, by: str, why: str) -> SagaRow:
    return await desk.retry(row.saga, row.id, tenant=row.tenant, attempt=row.attempt, by=by, why=why)


async def _resume(desk: SagaInstances, row: SagaRow, asked: ManyResumed, by: str, why: str) -> SagaRow:
    note = asked.note
    return await desk.resume(row.saga, row.id, tenant=row.tenant, attempt=row.attempt, by=by, why=why, note=note)


async def _cancel(desk: SagaInstances, row: SagaRow, asked: ManyCancelled, by: str, why: str) -> SagaRow:
    return await desk.cancel(row.saga, row.id, asked.reason, tenant=row.tenant, attempt=row.attempt, by=by, why=why)


RESTS: Sequence[SagaStatus] = FOR_AN_OPERATOR
FAILS: Sequence[SagaStatus] = (*FOR_AN_OPERATOR, "compensating")

SAGA_KINDS: Mapping[str, Kind] = {
    "saga.retry.all": SagaKind(_retry, ManySagas, states=RESTS, fitting=FAILS),
    "saga.resume.all": SagaKind(_resume, ManyResumed, states=RESTS, fitting=FAILS),
    "saga.cancel.all": SagaKind(_cancel, ManyCancelled, states=("partial",), fitting=("partial", "running")),
}
