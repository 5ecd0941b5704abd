"""Schedules: what an operator may see of schedules, and do with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from posthouse.clock import Clock
from posthouse.errors import ConfigurationError, DeskError, did_you_mean
from posthouse.operators import OperatorsLog
from posthouse.processes.schedule.book import ScheduleBook
from posthouse.processes.schedule.cron import Cron
from posthouse.processes.schedule.schedule import PLATFORM, Schedule
from posthouse.seam import EnvelopeBuilder, EventContext
from posthouse.sending import Tx
from posthouse.store import Action, HeldFilter, HeldState, Store, Transaction
from posthouse.store.schedules import ScheduleRow

OVERDUE = 60.0
"""Seconds after which somebody should have begun the run of a moment."""


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule: its row, None before a worker has run; whether the code still has it, and with which expression and
    zone; and how many of its runs are held, by state."""

    service: str
    name: str
    row: ScheduleRow | None
    declared: Cron | None
    held: Mapping[HeldState, int]

    @property
    def failed(self) -> int:
        """Runs that go nowhere until a person decides."""
        return sum(number for state, number in self.held.items() if state in ("dead", "quarantined"))

    @property
    def overdue(self) -> float:
        """For how many seconds its moment has come and nobody has begun a run; 0 when all is well."""
        row = self.row
        late = 0.0 if row is None or row.paused_at is not None or self.declared is None else -row.due_in
        return late if late > OVERDUE else 0.0


class Schedules:
    """The verbs, for the schedules of services that share a store. Each is one transaction, and in the operators' log. `by` names
    who asked, `why` is for the log. `service` says whose schedule it is; without it the name must tell."""

    def __init__(
        self, books: Sequence[ScheduleBook], store: Store, builders: Callable[[str], EnvelopeBuilder], clock: Clock
    ) -> None:
        self._books = books
        self._store = store
        self._builders = builders
        self._clock = clock
        self._log = OperatorsLog(store)

    async def find(self) -> list[ScheduleView]:
        """Every schedule of these services: those that are declared, and rows that nobody declares any more."""
        declared = {(one.service, one.name): one for book in self._books for one in book}
        rows = {(row.service, row.name): row for row in await self._rows()}
        held, books = await self._held(), {book.service: book for book in self._books}
        return [
            ScheduleView(
                service=key[0],
                name=key[1],
                row=rows.get(key),
                declared=declared[key].cron if key in declared else None,
                held=held.get(books[key[0]].subject(key[1]), {}),
            )
            for key in sorted(rows.keys() | declared.keys())
        ]

    async def pause(self, name: str, *, service: str | None = None, by: str = "", why: str = "") -> ScheduleRow:
        """Let nothing run until `resume`; what is under way goes on."""
        return await self._change("pause", self._declared(name, service), by, why, _paused)

    async def resume(self, name: str, *, service: str | None = None, by: str = "", why: str = "") -> ScheduleRow:
        """Go on with the next moment that comes; those of the meantime are not made up for."""
        return await self._change("resume", self._declared(name, service), by, why, _resumed)

    async def run_now(self, name: str, *, service: str | None = None, by: str = "", why: str = "") -> float:
        """Begin a run by hand, at once, also of one that is paused; the next moment stays. Returns the moment that it stands
        for."""
        schedule = self._declared(name, service)
        builder = self._builders(schedule.service)
        async with builder.seam.transaction(schedule.service, self._store.begin()) as transaction:
            tx = Tx(transaction, self._store, builder, EventContext(tenant=PLATFORM), self._clock)
            try:
                moment = await self._store.timers.now(transaction)
                schedule.begin(tx, [moment], await schedule.whom(tx), by_hand=True)
                await self._note(transaction, Action(verb="schedule run", by=by, why=why), schedule.service, name)
                await tx.finish()
            finally:
                tx.close()
        return moment

    async def forget(self, name: str, *, service: str | None = None, by: str = "", why: str = "") -> None:
        """Remove the row of a schedule that no code declares any more."""
        books = self._of(service)
        if any(book.get(name) for book in books):
            raise DeskError(f"the schedule {name} is declared: take it out of the code first, or pause it")
        async with self._store.begin() as tx:
            gone = [book.service for book in books if await self._store.schedules.remove(tx, book.service, name)]
            if len(gone) > 1:  # raised inside: nothing is removed
                raise _several(gone, name)
            for owner in gone:
                await self._note(tx, Action(verb="schedule forget", by=by, why=why), owner, name)
                return
        raise self._unknown(name, await self._rows(), service)

    async def _change(
        self, verb: str, schedule: Schedule, by: str, why: str, change: Callable[[ScheduleRow], ScheduleRow]
    ) -> ScheduleRow:
        name = schedule.name
        async with self._store.begin() as tx:
            row = await self._store.schedules.lock(tx, schedule.service, name)
            if row is None:
                raise DeskError(f"the schedule {name} was never run by a worker: there is nothing to {verb} yet")
            changed = change(row)
            await self._store.schedules.save(tx, changed)
            states = tuple("runs" if one.paused_at is None else "paused" for one in (row, changed))
            action = Action(verb=f"schedule {verb}", by=by, why=why, changed={"state": (states[0], states[1])})
            await self._note(tx, action, schedule.service, name)
            return changed

    async def _note(self, tx: Transaction, action: Action, service: str, name: str) -> None:
        await self._log.note(tx, replace(action, service=service, target=f"schedule {name}"))

    async def _rows(self) -> Sequence[ScheduleRow]:
        services = {book.service for book in self._books}
        return [row for row in await self._store.schedules.find() if row.service in services]

    def _of(self, service: str | None) -> Sequence[ScheduleBook]:
        return [book for book in self._books if service in (None, book.service)]

    def _declared(self, name: str, service: str | None) -> Schedule:
        found = [schedule for book in self._of(service) if (schedule := book.get(name)) is not None]
        if len(found) > 1:
            raise _several([schedule.service for schedule in found], name)
        if not found:
            raise self._unknown(name, (), service)
        return found[0]

    def _unknown(self, name: str, rows: Sequence[ScheduleRow], service: str | None) -> ConfigurationError:
        books = self._of(service)
        services = service or ", ".join(book.service for book in books)
        known = [schedule.name for book in books for schedule in book]
        known += [row.name for row in rows if service in (None, row.service)]
        return ConfigurationError(f"{services} has no schedule {name!r}.{did_you_mean(name, known)}")

    async def _held(self) -> dict[str, Counter[HeldState]]:
        """How many runs are held, by event type and state."""
        found: dict[str, Counter[HeldState]] = {}
        for book in self._books:
            after = 0
            while page := await self._store.held.find(HeldFilter(consumer=book.consumer), after=after):
                for event in page:
                    found.setdefault(event.type, Counter())[event.state] += 1
                after = page[-1].id
        return found


def _several(services: Sequence[str], name: str) -> DeskError:
    return DeskError(f"{', '.join(services)} have a schedule {name} each: name one service alone")


def _paused(row: ScheduleRow) -> ScheduleRow:
    if row.paused_at is not None:
        raise DeskError(f"the schedule {row.name} is paused already")
    return replace(row, paused_at=row.now)


def _resumed(row: ScheduleRow) -> ScheduleRow:
    if row.paused_at is None:
        raise DeskError(f"the schedule {row.name} is not paused")
    next_at = row.next_at if row.due_in > 0 else Cron(row.expression, row.tz).after(row.now)
    return replace(row, paused_at=None, next_at=next_at)
