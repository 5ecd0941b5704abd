"""Kinds: what there are jobs for: held events, events that the broker refused, and sagas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from posthouse.app import App, app_of
from posthouse.console.acting.act import Name
from posthouse.console.acting.kind import Item, Kind, Pace, Result
from posthouse.console.acting.outbox import about
from posthouse.console.acting.sagas import SAGA_KINDS
from posthouse.errors import DeskError
from posthouse.service import Service
from posthouse.store import Action, HeldEvent, HeldFilter, HeldState, StuckRow
from posthouse.store.browsing import HeldLine
from posthouse.store.jobs import Job, Open


class ManyHeld(Pace, frozen=True, kw_only=True):
    """Which held events; what is not said is any."""

    consumer: Name | None = None
    state: HeldState | None = None
    tenant: Name | None = None
    topic: Name | None = None
    key: str | None = None
    fingerprint: str | None = None


HeldVerb = Callable[[Service, int, str, str], Awaitable[HeldEvent]]


class HeldKind:
    """Held events, by one of their verbs."""

    fenced = True
    parameters: type[Pace] = ManyHeld

    def __init__(
        self, verb: HeldVerb, states: frozenset[HeldState], *, judged: bool, also: frozenset[HeldState] = frozenset()
    ) -> None:
        self._verb = verb
        self._states = states
        self.works = states | also
        """States for which it does something: `states`, and those that must be asked for by name."""
        self.judged = judged

    async def newest(self, app: App) -> int:
        return await app.store.held.newest()

    async def page(self, service: Service, job: Job, after: int, limit: int) -> tuple[Sequence[Item], int | None]:
        browsing = app_of(service).store.browsing
        found = await browsing.held(_filter(job), after=after, limit=limit, newest=False)
        fitting = [_item(line) for line in found if line.id <= job.last and self._fits(service, job, line)]
        return fitting, None if len(found) < limit or found[-1].id >= job.last else found[-1].id

    async def count(self, service: Service, job: Job, after: int, limit: int) -> tuple[int, int | None]:
        items, following = await self.page(service, job, after, limit)
        return len(items), following

    async def find(self, service: Service, job: Job, id: int) -> Item | None:
        wanted = msgspec.structs.replace(_filter(job), ids=[id], state=None)
        found = await app_of(service).store.browsing.held(wanted, limit=1)
        return _item(found[0]) if found and self._fits(service, job, found[0]) else None

    async def do(self, service: Service, job: Job, item: Item, by: str, why: str) -> None:
        await self._verb(service, item.id, by, why)

    async def results(self, app: App, items: Sequence[Open]) -> Mapping[int, Result]:
        found = await app.store.browsing.held(HeldFilter(ids=[item.id for item in items]), limit=len(items))
        held = {line.id: line for line in found}
        return {item.id: _result(item, held.get(item.id)) for item in items}

    def _fits(self, service: Service, job: Job, line: HeldLine) -> bool:
        """What the store was not asked for: several states, the consumers of this very service, and what has not changed since
        the press. What changed was not seen, whatever it looks like now."""
        states = self._states if (asked := _asked(job).state) is None else {asked}
        unchanged = line.last_at <= job.seen_at
        return unchanged and line.state in states and line.consumer in service.declared.consumers


class StuckKind:
    """Events that the broker refused, tried again."""

    judged, fenced = True, False
    parameters: type[Pace] = Pace

    async def newest(self, app: App) -> int:
        return await app.store.outbox.newest()

    async def page(self, service: Service, job: Job, after: int, limit: int) -> tuple[Sequence[Item], int | None]:
        found = await app_of(service).store.outbox.stuck(after=after, limit=limit)
        over = len(found) < limit or found[-1].row.id >= job.last
        return [_stuck(row) for row in found if _refused(job, row)], None if over else found[-1].row.id

    async def count(self, service: Service, job: Job, after: int, limit: int) -> tuple[int, int | None]:
        items, following = await self.page(service, job, after, limit)
        return len(items), following

    async def find(self, service: Service, job: Job, id: int) -> Item | None:
        found = await app_of(service).store.outbox.stuck(after=id - 1, limit=1)
        return _stuck(found[0]) if found and found[0].row.id == id and _refused(job, found[0]) else None

    async def do(self, service: Service, job: Job, item: Item, by: str, why: str) -> None:
        app = app_of(service)
        found = [row for row in await app.store.outbox.stuck(after=item.id - 1, limit=1) if row.row.id == item.id]
        action = Action(verb="outbox retry", by=by, why=why, service=service.name)
        if not found or not await app.store.outbox.retry_stuck(item.id, app.actions.signed(about(found[0], action))):
            raise DeskError(f"row {item.id} is not stuck any more")

    async def results(self, app: App, items: Sequence[Open]) -> Mapping[int, Result]:
        results: dict[int, Result] = {}
        for item in items:
            found = await app.store.outbox.stuck(after=item.id - 1, limit=1)
            stuck = found[0] if found and found[0].row.id == item.id else None
            results[item.id] = "applied" if stuck is None else "failed" if stuck.attempts > item.turn else "unknown"
        return results


def _asked(job: Job) -> ManyHeld:
    return msgspec.json.decode(job.parameters, type=ManyHeld)


def _filter(job: Job) -> HeldFilter:
    asked = _asked(job)
    return HeldFilter(
        consumer=asked.consumer,
        state=asked.state,
        tenant=asked.tenant,
        topic=asked.topic,
        key=asked.key,
        fingerprint=asked.fingerprint,
        tenants=job.tenants,
    )


def _item(line: HeldLine) -> Item:
    return Item(line.id, line.tenant, line.turn)


def _result(item: Open, event: HeldLine | None) -> Result:
    """A retry is one turn, its claim by a worker the next, and to be held again the one after that."""
    if event is None:
        return "applied"
    if event.state == "skipped":
        return "gone"
    return "unknown" if event.state == "retrying" and event.turn < item.turn + 2 else "failed"


def _stuck(row: StuckRow) -> Item:
    return Item(row.row.id, row.row.tenant, row.attempts)


def _refused(job: Job, row: StuckRow) -> bool:
    """Those that wait behind others follow by themselves; those that were not stuck at the press are none of it."""
    there = row.row.id <= job.last and row.first_at <= job.seen_at
    return bool(row.attempts) and there and (job.tenants is None or row.row.tenant in job.tenants)


async def _retry(service: Service, id: int, by: str, why: str) -> HeldEvent:
    return await service.held.retry(id, by=by, why=why)


async def _rerun(service: Service, id: int, by: str, why: str) -> HeldEvent:
    return await service.held.retry(id, force=True, by=by, why=why)


async def _skip(service: Service, id: int, by: str, why: str) -> HeldEvent:
    return await service.held.skip(id, by=by, why=why)


async def _quarantine(service: Service, id: int, by: str, why: str) -> HeldEvent:
    return await service.held.quarantine(id, by=by, why=why)


async def _release(service: Service, id: int, by: str, why: str) -> HeldEvent:
    first = await service.held.first(id)
    if first.id != id:
        raise DeskError(f"{id} waits behind held event {first.id}, which is not part of this: release that one")
    return await service.held.release(id, first_seen=(first.id, first.turn), by=by, why=why)


KINDS: Mapping[str, Kind] = {
    "held.retry.all": HeldKind(_retry, frozenset(("dead", "retrying")), judged=True, also=frozenset(("quarantined",))),
    "held.rerun.all": HeldKind(_rerun, frozenset(("skipped",)), judged=False, also=frozenset(("quarantined",))),
    "held.skip.all": HeldKind(_skip, frozenset(("dead",)), judged=False, also=frozenset(("retrying", "quarantined"))),
    "held.quarantine.all": HeldKind(
        _quarantine, frozenset(("dead",)), judged=False, also=frozenset(("retrying", "gap", "skipped"))
    ),
    "held.release.all": HeldKind(_release, frozenset(("gap",)), judged=False),
    "outbox.retry.all": StuckKind(),
    **SAGA_KINDS,
}
"""By the act that makes such a job; the states are those that are meant where none is said. What
runs again out of order has another number then, so that nobody tells what became of it."""
