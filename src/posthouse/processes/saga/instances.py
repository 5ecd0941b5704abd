"""SagaInstances: what an operator may see of sagas, and do with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from posthouse.errors import ConfigurationError, DeskError, did_you_mean
from posthouse.events import DEFAULT_TENANT, Actor
from posthouse.operators import OperatorsLog, refuse_changed
from posthouse.processes.saga.answering import ask_again, settle_by_hand
from posthouse.processes.saga.book import SagaBook
from posthouse.processes.saga.comparing import Comparison, compare_stored
from posthouse.processes.saga.conductor import Conductor
from posthouse.processes.saga.course import Course
from posthouse.processes.saga.declared import SagaType
from posthouse.processes.saga.tasks import HELP, SagaTask, index_field, task_in
from posthouse.processes.saga.transition import compensating
from posthouse.seam.deadline import on_loop
from posthouse.sending import Tx
from posthouse.store import Action, GrantVerb, Store
from posthouse.store.sagas import Indexable, SagaFilter, SagaRow, SagaStatus, SagaTurn, Undoing


class Begin(Protocol):
    """Opens a transaction of one of the services."""

    def __call__(self, service: str, tenant: str, *, actor: Actor | None) -> AbstractAsyncContextManager[Tx]: ...


class SagaGuard(Protocol):
    """Refuses what somebody may not do to a saga; what it spends on it stays spent."""

    async def __call__(self, of: SagaType, verb: GrantVerb, row: SagaRow, by: str) -> None: ...


class SagaView(msgspec.Struct, frozen=True, kw_only=True):
    """One saga with all that is known about it; its pending deadlines are in `row.deadlines`."""

    row: SagaRow
    history: Sequence[SagaTurn]


Act = Callable[[Conductor, Course], Awaitable[None]]

GUARDED: Mapping[str, GrantVerb] = {"saga retry": "replay", "saga resume": "edit", "saga cancel": "edit"}
"""What a grant is needed to where any is: what failed runs again as it was, or goes another way because a person says so."""


class SagaInstances:
    """The verbs, for the sagas of services that share a store. Each is one transaction, a turn of the saga, and in its
    history and in the operators' log. `tenant` is whose saga it is; leave it out where there is one only. Without an `attempt`
    it is the newest. `by` names who asked, `why` is for the log. With `command` it is a command of the service itself, which has
    asked by its own rules who may: then no grant is asked for."""

    def __init__(self, books: Sequence[SagaBook], store: Store, begin: Begin, guard: SagaGuard | None = None) -> None:
        self._books = books
        self._guard = guard
        self._log = OperatorsLog(store)
        self._store = store
        self._table = store.sagas
        self._begin = begin

    async def find(self, wanted: SagaFilter | None = None) -> AsyncIterator[SagaRow]:
        """Every saga that fits, in the order of starting. ConfigurationError for `where` with a field that none is indexed
        by, or with what it cannot hold."""
        async for row in self._find(self._asked(wanted or SagaFilter())):
            yield row

    async def children(self, row: SagaRow) -> Sequence[SagaRow]:
        """The sagas that were started in turns of this one."""
        return [row async for row in self._find(SagaFilter(tenant=row.tenant, parent=row.ref, tombstones=True))]

    async def tasks(self, *, by: str | None = None, tenant: str | None = None) -> AsyncIterator[SagaTask]:
        """What waits for people, or for those of one role: steps that were declared with `by`, and sagas that rest, partial
        or with a failed compensation, for their operator."""
        for of in (of for book in self._books for of in book.types.values()):
            roles = {**of.people, HELP: of.operator}
            for step in (step for step, role in roles.items() if by in (None, role)):
                wanted = SagaFilter(saga=of.name, tenant=tenant, where={index_field(step): ""})
                async for row in self._find(wanted):
                    if step in row.tasks:
                        yield task_in(of, row, step)

    async def fill_index(self, saga: str | None = None, *, by: str = "", why: str = "") -> int:
        """Write the index of those whose release did not know a field, or a role, by which they are found now; how many.
        Each is a turn of its own; those that take one meanwhile do it themselves."""
        filled = 0
        for of in (of for book in self._books for of in book.types.values() if saga in (None, of.name)):
            async for row in self._find(SagaFilter(saga=of.name)):
                filled += await self._fill(of, row, Action(verb="saga index", by=by, why=why))
        return filled

    async def _fill(self, of: SagaType, row: SagaRow, action: Action) -> bool:
        conductor = self._conductor(of.name)
        actor = Actor(kind="user", id=action.by) if action.by else None
        async with self._begin(of.service, row.tenant, actor=actor) as tx:
            now = await conductor.load(tx, row.id, attempt=row.attempt)
            if now is None or now.tombstone or now.status == "awaited":
                return False
            course = conductor.course(tx, now, "index", {})
            if course.is_indexed():
                return False
            after = await conductor.finish(course)
            changed = {"index": (" ".join(now.index), " ".join(after.index))}
            where = Action(verb=action.verb, service=of.service, tenant=row.tenant, target=f"saga {row.ref}")
            await self._log.note(
                tx.transaction, msgspec.structs.replace(where, by=action.by, why=action.why, changed=changed)
            )
            return True

    async def _find(self, wanted: SagaFilter) -> AsyncIterator[SagaRow]:
        after = 0
        while page := await self._table.find(wanted, after=after):
            for row in page:
                yield row
            after = page[-1].number

    def _asked(self, wanted: SagaFilter) -> SagaFilter:
        """What is asked by fields, as the index holds it."""
        types = [of for book in self._books for of in book.types.values() if wanted.saga in (None, of.name)]
        where: dict[str, Indexable] = {}
        for field, value in wanted.where.items():
            found = next((of for of in types if field in of.index), None)
            if found is None:
                known = {field for of in types for field in of.index}
                hint = did_you_mean(field, known) or " None is indexed by any field."
                raise ConfigurationError(
                    f"{wanted.saga or 'no saga'} is {'not ' if wanted.saga else ''}indexed by {field!r}.{hint} Add it: "
                    f"@service.saga(…, index=({field!r},))"
                )
            where[field] = found.asked_for(field, value)
        return msgspec.structs.replace(wanted, where=where)

    async def show(self, saga: str, id: str, *, tenant: str = DEFAULT_TENANT, attempt: int | None = None) -> SagaView:
        """One saga with its history; DeskError when there is none."""
        wanted = SagaFilter(saga=saga, tenant=tenant, id=id, attempt=attempt, tombstones=True)
        *_, row = [None, *[row async for row in self.find(wanted)]]
        if row is None:
            raise _nobody(saga, tenant, id)
        return SagaView(row=row, history=await self._table.history(saga, tenant, id, attempt=row.attempt))

    async def compare(self, *, every: bool = False) -> Comparison:
        """The sagas that are not over with the classes that will run them: what does not fit. Steps, deadlines and fields are
        those of all; states are decoded of some of each shape, or of every one."""
        return await compare_stored(self._store, {book.service: book.types for book in self._books}, every=every)

    async def counts(self) -> Mapping[tuple[str, SagaStatus], int]:
        """How many there are per (saga, status)."""
        return await self._table.counts()

    async def retry(
        self,
        saga: str,
        id: str,
        *,
        tenant: str = DEFAULT_TENANT,
        attempt: int | None = None,
        by: str = "",
        why: str = "",
        command: bool = False,
    ) -> SagaRow:
        """Run what failed again: of a failed compensation the undo, with all its attempts; of a partial saga the method
        that is marked with @partial_retry."""
        asked = Action(verb="saga retry", by=by, why=why)
        return await self._act(asked, _retry, saga, tenant, id, attempt, command=command)

    async def resume(
        self,
        saga: str,
        id: str,
        *,
        tenant: str = DEFAULT_TENANT,
        attempt: int | None = None,
        by: str = "",
        why: str = "",
        note: str = "",
    ) -> SagaRow:
        """What failed was done by hand: a compensation goes on without the failed undo, a partial saga is completed, after
        the method that is marked with @partial_resume."""
        return await self._act(
            Action(verb="saga resume", by=by, why=why or note), _resume, saga, tenant, id, attempt, note=note
        )

    async def cancel(
        self,
        saga: str,
        id: str,
        reason: str,
        *,
        tenant: str = DEFAULT_TENANT,
        attempt: int | None = None,
        by: str = "",
        why: str = "",
        command: bool = False,
    ) -> SagaRow:
        """Compensate now; the saga ends as cancelled."""

        async def act(conductor: Conductor, course: Course) -> None:
            if course.row.status not in ("running", "partial"):
                raise DeskError(f"{saga} {id} is {course.row.status}: only a running or partial saga can be cancelled")
            course.row = compensating(course.row, reason, cancelled=True)
            await course.compensate()

        cancelled = Action(verb="saga cancel", by=by, why=why or reason)
        return await self._act(cancelled, act, saga, tenant, id, attempt, note=reason, command=command)

    async def _act(
        self,
        action: Action,
        act: Act,
        saga: str,
        tenant: str,
        id: str,
        attempt: int | None,
        *,
        note: str = "",
        command: bool = False,
    ) -> SagaRow:
        conductor, by, verb = self._conductor(saga), action.by, action.verb.removeprefix("saga ")
        actor = Actor(kind="user", id=by) if by else None
        if self._guard is not None and not command:  # before the transaction, as it may wait
            known = (await self.show(saga, id, tenant=tenant, attempt=attempt)).row
            await self._guard(conductor.of, GUARDED[action.verb], known, by)
        async with self._begin(conductor.of.service, tenant, actor=actor) as tx:
            row = await conductor.load(tx, id, attempt=attempt)
            if row is None:
                raise _nobody(saga, tenant, id)
            refuse_changed(row.turn, f"saga {row.ref}")
            said = {key: value for key, value in (("by", by), ("note", note)) if value}
            course = conductor.course(tx, row, verb, said)
            course.note = note
            await on_loop(act(conductor, course), conductor.of.policy.deadline, f"{verb} of {saga} {id}")
            after = await conductor.finish(course)
            await self._log.note(
                tx.transaction,
                msgspec.structs.replace(
                    action,
                    service=conductor.of.service,
                    tenant=tenant,
                    target=f"saga {row.ref}",
                    changed={"status": (row.status, after.status)},
                ),
            )
            return after

    def _conductor(self, saga: str) -> Conductor:
        for book in self._books:
            if saga in book.types:
                return book[saga]
        names = ", ".join(book.service for book in self._books)
        known = [name for book in self._books for name in book.types]
        raise ConfigurationError(f"{names} has no saga {saga!r}.{did_you_mean(saga, known)}")


async def _retry(conductor: Conductor, course: Course) -> None:
    row = course.row
    if ask_again(course):
        return
    if row.status == "partial":
        method = conductor.of.partial_retry
        if method is None:
            raise DeskError(
                f"{row.saga} {row.id} is partial, and {conductor.of.cls.__name__} has no method that is marked with "
                "@partial_retry: resume or cancel it"
            )
        course.row = msgspec.structs.replace(row, status="running")
        await course.run(method)
    elif _undo_failed(row):
        again = None if row.undoing is None else Undoing(of=row.undoing.of)
        course.row = msgspec.structs.replace(row, status="compensating", undoing=again)
        await course.compensate()
    else:
        raise DeskError(f"{row.saga} {row.id} is {row.status}: there is nothing to retry")


async def _resume(conductor: Conductor, course: Course) -> None:
    settled = settle_by_hand(course)
    row = course.row
    if settled and row.status == "compensation_failed" and row.undoing is None:
        await course.compensate()
    elif row.status == "partial":
        await course.run_by_hand(conductor.of.partial_resume)
    elif _undo_failed(row):
        course.skip_undo()
        await course.compensate()
    else:
        raise DeskError(f"{row.saga} {row.id} is {row.status}: there is nothing to resume")


def _undo_failed(row: SagaRow) -> bool:
    """Whether an undo failed, for good or for now, or waits for its fact."""
    return row.status == "compensation_failed" or (row.status == "compensating" and row.undoing is not None)


def _nobody(saga: str, tenant: str, id: str) -> DeskError:
    return DeskError(f"there is no saga {saga} {id} of the tenant {tenant}: see `posthouse saga list`")
