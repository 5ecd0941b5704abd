"""Processes: what may be decided about sagas, timers, schedules, and generations of read models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec

from posthouse.console.acting.act import Act, AnyAct, Call, Look, Name, Outcome
from posthouse.console.asking import Refusal
from posthouse.errors import ChangedSince, did_you_mean
from posthouse.processes import SagaInstances
from posthouse.processes.schedule.desk import Schedules, ScheduleView
from posthouse.store import Action, Timer
from posthouse.store.sagas import FOR_AN_OPERATOR, SagaFilter, SagaRow


class OneSaga(msgspec.Struct, frozen=True, kw_only=True):
    """A saga; of several with its id the newest, unless `attempt` says which."""

    saga: Name
    id: Name
    tenant: Name
    attempt: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Resumed(OneSaga, frozen=True, kw_only=True):
    """`note`: what was done by hand, for its history."""

    note: str = ""


class Cancelled(OneSaga, frozen=True, kw_only=True):
    """`reason`: its undos see it as `turn.reason`."""

    reason: Name


async def _saga(call: Call[OneSaga]) -> SagaRow:
    asked, known = call.parameters, call.service.declared.saga_types
    if asked.saga not in known:
        hint = did_you_mean(asked.saga, known) or " It declares none."
        raise Refusal(400, f"{call.service.name} has no saga {asked.saga!r}.{hint}")
    wanted = SagaFilter(saga=asked.saga, tenant=asked.tenant, id=asked.id, attempt=asked.attempt, tombstones=True)
    found = [row async for row in call.app.sagas.find(wanted)] if call.who.sees(asked.tenant) else []
    if not found:
        raise Refusal(404, f"There is no saga {asked.saga} {asked.id} of the tenant {asked.tenant}.")
    return found[-1]


def _seen(row: SagaRow, sentence: str, danger: str = "") -> Look:
    steps = f" Steps that were done: {', '.join(row.steps)}." if row.steps else " No step was done."
    return Look(
        sentence=f"{row.ref}, which is {row.status}, {sentence}{steps}", danger=danger, tenant=row.tenant, turn=row.turn
    )


async def _look_saga_retry(call: Call[OneSaga]) -> Look:
    row = await _saga(call)
    _refuse_status(row, ("partial", "compensation_failed", "compensating", "running"), "retry")
    return _seen(row, "runs again what failed.")


async def _look_saga_resume(call: Call[Resumed]) -> Look:
    row = await _saga(call)
    _refuse_status(row, ("partial", "compensation_failed", "compensating", "running"), "resume")
    danger = "What failed is taken as done by hand: make sure that it was."
    if row.status not in FOR_AN_OPERATOR:
        return _seen(row, "goes on without what failed.", danger)
    what = "is completed" if row.status == "partial" else "takes the failed undo as done, and undoes the rest"
    return msgspec.structs.replace(_seen(row, f"{what}.", danger), title="Complete")


async def _look_saga_cancel(call: Call[Cancelled]) -> Look:
    row = await _saga(call)
    _refuse_status(row, ("running", "partial"), "cancel")
    number = len(row.steps)
    return _seen(
        row,
        f"undoes {'its one step' if number == 1 else f'all its {number} steps'}, the last one first, and ends as cancelled.",
        "What is undone is not done again: a new saga has to be started for it.",
    )


def _refuse_status(row: SagaRow, fitting: tuple[str, ...], verb: str) -> None:
    if row.status not in fitting or row.purged_at is not None:
        raise Refusal(409, f"{row.ref} is {row.status}: there is nothing to {verb}.")


def _deciding(
    act: Callable[[SagaInstances, Call[OneSaga], SagaRow], Awaitable[SagaRow]],
) -> Callable[[Call[OneSaga], Look], Awaitable[Outcome]]:
    async def do(call: Call[OneSaga], look: Look) -> Outcome:
        before = await _saga(call)
        after = await act(call.app.sagas, call, before)
        changed = (
            f"was {before.status} and is {after.status}" if before.status != after.status else f"is {after.status}"
        )
        return Outcome(sentence=f"{after.ref} {changed}.")

    return do


async def _saga_retry(desk: SagaInstances, call: Call[OneSaga], row: SagaRow) -> SagaRow:
    return await desk.retry(row.saga, row.id, tenant=row.tenant, attempt=row.attempt, by=call.by, why=call.why)


async def _saga_resume(desk: SagaInstances, call: Call[OneSaga], row: SagaRow) -> SagaRow:
    note = call.parameters.note if isinstance(call.parameters, Resumed) else ""
    return await desk.resume(
        row.saga, row.id, tenant=row.tenant, attempt=row.attempt, by=call.by, why=call.why, note=note
    )


async def _saga_cancel(desk: SagaInstances, call: Call[OneSaga], row: SagaRow) -> SagaRow:
    reason = call.parameters.reason if isinstance(call.parameters, Cancelled) else ""
    return await desk.cancel(row.saga, row.id, reason, tenant=row.tenant, attempt=row.attempt, by=call.by, why=call.why)


class OneTimer(msgspec.Struct, frozen=True, kw_only=True):
    """A timer by its name, of a tenant."""

    tenant: Name
    timer: Name


async def _timer(call: Call[OneTimer]) -> Timer:
    asked = call.parameters
    found = await call.app.store.timers.get(asked.tenant, asked.timer) if call.who.sees(asked.tenant) else None
    if found is None:
        raise Refusal(
            404, f"Tenant {asked.tenant!r} has no pending timer {asked.timer!r}.", "It has fired, or never was."
        )
    return found


async def _look_timer(call: Call[OneTimer]) -> Look:
    found, asked = await _timer(call), call.parameters
    return Look(
        sentence=f"The timer {asked.timer} for {found.row.topic} of the tenant {asked.tenant} never fires.",
        danger="What it would have said is not said. It cannot be set again from here.",
        tenant=asked.tenant,
        seen=f"{found.row.event_id} {found.due_at}",
    )


async def _cancel_timer(call: Call[OneTimer], look: Look) -> Outcome:
    store, asked = call.app.store, call.parameters
    async with store.begin() as tx:
        seen = look.seen.partition(" ")[0]
        if not await store.timers.cancel(tx, asked.tenant, asked.timer, event_id=seen):
            raise ChangedSince(f"the timer {asked.timer!r} has fired or was set anew since you looked at it")
        action = Action(verb="timers cancel", by=call.by, why=call.why, service=call.service.name)
        await call.app.actions.note(
            tx, msgspec.structs.replace(action, tenant=asked.tenant, target=f"timer {asked.timer}")
        )
    return Outcome(sentence=f"The timer {asked.timer} is cancelled.")


class OneSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule by its name."""

    schedule: Name


async def _schedule(call: Call[OneSchedule]) -> ScheduleView:
    name = call.parameters.schedule
    views = [view for view in await call.app.schedules.find() if view.service == call.service.name]
    found = next((view for view in views if view.name == name), None)
    if found is None:
        hint = did_you_mean(name, [view.name for view in views])
        raise Refusal(404, f"{call.service.name} has no schedule {name!r}.{hint}")
    return found


def _scheduling(
    verb: str,
    title: str,
    sentence: str,
    ask: Callable[[Schedules, Call[OneSchedule]], Awaitable[object]],
    danger: str = "",
) -> AnyAct:
    async def look(call: Call[OneSchedule]) -> Look:
        view = await _schedule(call)
        paused = view.row is not None and view.row.paused_at is not None
        if verb != "forget" and view.declared is None:
            raise Refusal(409, f"No code of {view.service} declares {view.name} any more.", "Forget it instead.")
        if verb in ("pause", "resume") and view.row is None:
            raise Refusal(409, f"The schedule {view.name} was never run by a worker: there is nothing to {verb} yet.")
        if (verb, paused) in (("pause", True), ("resume", False)):
            raise Refusal(409, f"The schedule {view.name} is {'paused already' if paused else 'not paused'}.")
        if verb == "forget" and view.declared is not None:
            raise Refusal(409, f"The schedule {view.name} is declared.", "Take it out of the code first, or pause it.")
        return Look(sentence=sentence.format(name=view.name), danger=danger, seen="paused" if paused else "runs")

    async def do(call: Call[OneSchedule], look: Look) -> Outcome:
        await ask(call.app.schedules, call)
        return Outcome(sentence=f"Done: {sentence.format(name=call.parameters.schedule)}")

    return Act(
        name=f"schedule.{verb}",
        title=title,
        role="operator",
        parameters=OneSchedule,
        look=look,
        do=do,
        all_tenants=True,
    )


class OneGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A retired generation of a read model by its number, or the one that is being built."""

    projection: Name
    generation: Annotated[int, msgspec.Meta(ge=1)] | None = None


async def _look_drop(call: Call[OneGeneration]) -> Look:
    asked = call.parameters
    projection = call.app.projections.named(asked.projection)
    rows = [row for row in await call.app.store.projections.generations() if row.projection == projection.consumer]
    building = [row for row in rows if row.state == "building"]
    found = building if asked.generation is None else [row for row in rows if row.number == asked.generation]
    if not found:
        raise Refusal(404, f"{projection.consumer} has no such generation.", "See which there are on its page.")
    if found[0].state == "live":
        raise Refusal(409, f"Generation {found[0].number} of {projection.consumer} is live.", "Rebuild it instead.")
    what = "The rebuild of" if asked.generation is None else f"Generation {asked.generation} of"
    tables = ", ".join(found[0].tables) or "none"
    sentence = f"{what} {projection.consumer} is given up: its tables ({tables}) and its group go."
    return Look(sentence=sentence, danger="It cannot be had again.", seen=f"{found[0].number} {found[0].state}")


async def _drop(call: Call[OneGeneration], look: Look) -> Outcome:
    await call.app.open()
    row = await call.app.projections.drop(
        call.parameters.projection, call.parameters.generation, by=call.by, why=call.why
    )
    return Outcome(sentence=f"Generation {row.number} of {row.projection} is gone.")


ACTS: tuple[AnyAct, ...] = (
    Act(name="saga.retry", title="Retry", role="operator", parameters=OneSaga, look=_look_saga_retry, do=_deciding(_saga_retry), grant="replay"),
    Act(name="saga.resume", title="Go on", role="operator", parameters=Resumed, look=_look_saga_resume, do=_deciding(_saga_resume), grant="edit"),
    Act(name="saga.cancel", title="Compensate", role="operator", parameters=Cancelled, look=_look_saga_cancel, do=_deciding(_saga_cancel), grant="edit"),
    Act(name="timers.cancel", title="Cancel the timer", role="operator", parameters=OneTimer, look=_look_timer, do=_cancel_timer),
    _scheduling(
        "pause",
        "Pause",
        "Nothing of the schedule {name} runs until it is resumed; what is under way goes on.",
        lambda desk, call: desk.pause(call.parameters.schedule, service=call.service.name, by=call.by, why=call.why),
    ),
    _scheduling(
        "resume",
        "Resume",
        "The schedule {name} goes on with the next moment that comes; those of the meantime are not made up for.",
        lambda desk, call: desk.resume(call.parameters.schedule, service=call.service.name, by=call.by, why=call.why),
    ),
    _scheduling(
        "run",
        "Run now",
        "A run of the schedule {name} begins now, whether it is paused or not; its next moment stays.",
        lambda desk, call: desk.run_now(call.parameters.schedule, service=call.service.name, by=call.by, why=call.why),
    ),
    _scheduling(
        "forget",
        "Forget",
        "What is stored of the schedule {name}, which no code declares any more, is removed.",
        lambda desk, call: desk.forget(call.parameters.schedule, service=call.service.name, by=call.by, why=call.why),
    ),
    Act(name="projection.drop", title="Drop", role="replayer", parameters=OneGeneration, look=_look_drop, do=_drop, all_tenants=True),
)  # fmt: skip
