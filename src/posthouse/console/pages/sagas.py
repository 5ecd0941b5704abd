"""Sagas: how many stand where, which wait for somebody, and one of them with everything that it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, get_args

import msgspec

from posthouse.app import App
from posthouse.console.asking import Ask, Page, Refusal
from posthouse.console.diagrams import diagram
from posthouse.console.listing import lines_wanted, listed, place_of, seen_tenants
from posthouse.console.showing import refuse_unsaid, shown_text, viewed, why_of
from posthouse.errors import did_you_mean
from posthouse.events import timestamp
from posthouse.governance.outline import saga_entry
from posthouse.processes import SagaType
from posthouse.processes.saga.advice import Advice, advice
from posthouse.processes.saga.tasks import HELP, task_in
from posthouse.processes.saga.telling import called, failure_of, is_about, stands_at
from posthouse.processes.saga.waiting import obstacle
from posthouse.store import HeldEvent, HeldFilter
from posthouse.store.actions import Action
from posthouse.store.sagas import FOR_AN_OPERATOR, SagaFilter, SagaRow, SagaStatus, SagaTurn

FEW = 10
"""So many of each state that waits for an operator are shown before anybody asks."""
LOOKED_AT = 200
"""So many of the held events of a saga's consumer are looked at, to find those that are about one saga."""
STATE = "A saga's state has no contract that says what in it is personal. Unmask it to see it."
NO_RIGHT = "You may not see payloads: ask whoever gives rights for the one to see them."


async def sagas(ask: Ask) -> object:
    """Every saga with the numbers of each state, from gauges, and the first of those that wait for an operator."""
    tenants = seen_tenants(ask)

    async def of(app: App) -> tuple[list[Mapping[str, object]], list[Mapping[str, object]]]:
        types = _types(app)
        if not types:
            return [], []
        counted = await _counted(app, types) if tenants is None else _named(types)
        waiting = [
            row
            for status in FOR_AN_OPERATOR
            for row in await app.store.browsing.sagas(SagaFilter(status=status, tenants=tenants), limit=FEW)
        ]
        return counted, [_line(ask, types[row.saga], row) for row in waiting if row.saga in types]

    found = await ask.each(of)
    return {
        "sagas": [one for counted, _ in found.values() for one in counted],
        "waiting": [one for _, waiting in found.values() for one in waiting],
    }


def _named(types: Mapping[str, SagaType]) -> list[Mapping[str, object]]:
    """Without numbers, which are of all tenants."""
    return [
        {"service": of.service, "saga": of.name, "states": None, "oldest": {}, "ended": {}} for of in types.values()
    ]


async def _counted(app: App, types: Mapping[str, SagaType]) -> list[Mapping[str, object]]:
    gauges = await app.store.gauges()
    names = sorted({*types, *(saga for saga, _ in gauges.sagas)})
    return [
        {
            "service": types[name].service if name in types else app.opened.name,
            "saga": name,
            "declared": name in types,
            "states": {status: n for (saga, status), n in gauges.sagas.items() if saga == name and n},
            "oldest": {status: age for (saga, status), age in gauges.sagas_oldest.items() if saga == name},
            "ended": {outcome: n for (saga, outcome), n in gauges.sagas_ended.items() if saga == name and n},
        }
        for name in names
    ]


async def some(ask: Ask) -> object:
    """Sagas of one service, newest first: `?saga=`, `?status=`, `?tenant=`, `?id=`."""
    limit, after = lines_wanted(ask), place_of(ask, int)
    service = ask.estate.service(ask.path["service"])
    types = {name: of for name, of in _types(ask.estate.app(service.name)).items() if of.service == service.name}
    wanted = SagaFilter(
        saga=_declared(types, ask.query["saga"]).name if ask.query.get("saga") else None,
        status=_status(ask),
        id=ask.query.get("id") or None,
        tenants=seen_tenants(ask),
    )
    found = await ask.one(service.name, lambda app: app.store.browsing.sagas(wanted, after=after, limit=limit + 1))
    every = _types(ask.estate.app(service.name))
    return listed(found, limit, lambda row: _line(ask, every.get(row.saga), row), lambda row: row.number)


async def one(ask: Ask) -> object:
    """One saga: how it stands and what to press, its timeline, what is to come, and its diagram."""
    app, service = ask.estate.app(ask.path["service"]), ask.estate.service(ask.path["service"])
    of = _declared({name: of for name, of in _types(app).items() if of.service == service.name}, ask.path["saga"])
    seen = await ask.one(service.name, lambda app: _look(ask, app, of))
    unmask = ask.query.get("unmask") == "1"
    if unmask:
        why = why_of(ask)
        refuse_unsaid(ask.who, why)
        action = Action(verb="", why=why, service=service.name, tenant=seen.row.tenant, target=f"saga {seen.row.ref}")
        await viewed(app, ask.who, action, unmask=True)
    return _facts(ask, app, of, seen, unmask=unmask)


class Seen(NamedTuple):
    """A saga with its turns, the held events that are about it, its other attempts, and the sagas that it has started."""

    row: SagaRow
    history: Sequence[SagaTurn]
    held: Sequence[HeldEvent]
    held_more: bool
    others: Sequence[SagaRow]
    children: Sequence[SagaRow]


async def _look(ask: Ask, app: App, of: SagaType) -> Seen:
    asked = ask.query.get("attempt") or ""
    if asked and not asked.isdecimal():
        raise Refusal(400, f"attempt={asked!r} is no number.")
    wanted = SagaFilter(saga=of.name, id=ask.path["id"], tombstones=True, tenant=ask.query.get("tenant") or None)
    rows = [row async for row in app.sagas.find(wanted) if ask.who.sees(row.tenant)]
    tenants = sorted({row.tenant for row in rows})
    if len(tenants) > 1:
        raise Refusal(409, f"{of.name} {ask.path['id']} is there for the tenants {', '.join(tenants)}.", "Say ?tenant=")
    chosen = [row for row in rows if not asked or row.attempt == int(asked)]
    if not chosen:
        raise Refusal(
            404, f"There is no saga {of.name} {ask.path['id']} that you may see.", "It may have been forgotten."
        )
    row = (await app.sagas.show(of.name, chosen[-1].id, tenant=chosen[-1].tenant, attempt=chosen[-1].attempt)).row
    held = await app.store.held.find(HeldFilter(consumer=of.consumer, tenant=row.tenant), limit=LOOKED_AT)
    return Seen(
        row,
        await app.store.sagas.history(of.name, row.tenant, row.id, attempt=row.attempt),
        [event for event in held if is_about(of, event, row)],
        len(held) == LOOKED_AT,
        [other for other in rows if other.attempt != row.attempt],
        await app.sagas.children(row),
    )


def _facts(ask: Ask, app: App, of: SagaType, seen: Seen, *, unmask: bool) -> Mapping[str, object]:
    row, now = seen.row, app.clock.now()
    return {
        **_line(ask, of, row),
        "note": shown_text(ask.who, row.note),
        "correlation": row.correlation,
        "parent": None if row.parent is None else row.parent,
        "purged_at": _time(row.purged_at),
        "done": [{"step": done.step, "late": done.late, "undoable": done.undoable} for done in row.done],
        "undoing": None
        if row.undoing is None
        else {
            "step": row.undoing.step,
            "attempts": row.undoing.attempts,
            "waiting": row.undoing.waiting,
            "error": shown_text(ask.who, row.undoing.error),
        },
        "advice": [
            {"words": one.words, "act": None if one.press is None else f"saga.{one.press}"}
            for one in _advice(ask, of, row)
        ],
        "deadlines": [
            {"name": called(name), "due_at": timestamp(armed.due_at), "due_in": armed.due_at - now}
            for name, armed in sorted(row.deadlines.items(), key=lambda item: item[1].due_at)
        ],
        "waiting": [
            {
                "type": early.type,
                "event_id": early.event_id,
                "since": timestamp(early.since),
                "until": timestamp(early.until),
                "woken": early.woken,
                "waits_for": "" if early.woken else obstacle(of, row, early) or "its turn",
            }
            for early in row.waiting
        ],
        "calls": [
            {
                "step": call.step,
                "tries": call.tries,
                "begun_at": _time(call.begun_at),
                "due_at": timestamp(call.due_at),
                "due_in": call.due_at - now,
                "given_up": call.given_up,
                "error": shown_text(ask.who, call.error),
            }
            for call in row.calls
        ],
        "tasks": [
            {"by": task.by, "step": task.step, "waits_for": task.waits_for, "since": timestamp(task.since)}
            for task in (task_in(of, row, step) for step in row.tasks if step in (HELP, *of.people))
        ],
        "held": [{"id": str(event.id), "state": event.state, "type": event.type} for event in seen.held],
        "held_more": seen.held_more,
        "others": [_line(ask, of, other) for other in seen.others],
        "children": [{"saga": c.saga, "id": c.id, "attempt": c.attempt, "status": c.status} for c in seen.children],
        "turns": [_turn(ask, turn) for turn in seen.history],
        "state": _state(ask, row, unmask=unmask),
        "diagram": diagram(saga_entry(of), row, seen.history),
    }


def _advice(ask: Ask, of: SagaType, row: SagaRow) -> Sequence[Advice]:
    """A reason may tell of a payload."""
    return list(advice(of, row if ask.who.payloads else msgspec.structs.replace(row, reason="")))


def _state(ask: Ask, row: SagaRow, *, unmask: bool) -> Mapping[str, object]:
    if row.tombstone:
        return {
            "text": None,
            "withheld": "It was purged: only who it was and how it ended is left.",
            "unmaskable": False,
        }
    if not ask.who.payloads:
        return {"text": None, "withheld": NO_RIGHT, "unmaskable": False}
    if not unmask:
        return {"text": None, "withheld": STATE, "unmaskable": True}
    return {"text": row.state.decode(), "withheld": "", "unmaskable": False}


def _turn(ask: Ask, turn: SagaTurn) -> Mapping[str, object]:
    """What came, and each thing that followed; no payloads."""
    return {
        "turn": turn.turn,
        "at": timestamp(turn.at),
        "kind": turn.input.kind,
        "type": turn.input.type,
        "event_id": turn.input.event_id,
        "method": turn.method,
        "status": turn.status,
        "error": shown_text(ask.who, turn.input.error),
        "published": [
            {
                "type": said.type,
                "event_id": said.event_id,
                "after": said.after,
                "at": None if said.at is None else timestamp(said.at.timestamp()),
                "undoes": None if said.undoes is None else said.undoes.step,
            }
            for said in turn.published
        ],
        "set": [
            {
                "name": called(name),
                "at": timestamp(wait.timestamp() if isinstance(wait, datetime) else turn.at + wait),
            }
            for name, wait in turn.deadlines_set.items()
        ],
        "cleared": [called(name) for name in turn.deadlines_cleared],
        "done": turn.steps_done,
        "undone": turn.undone,
        "undo_failed": shown_text(ask.who, turn.undo_failed),
        "late": turn.late,
        "waits_for": turn.waits_for,
        "note": shown_text(ask.who, turn.note),
    }


def _line(ask: Ask, of: SagaType | None, row: SagaRow) -> Mapping[str, object]:
    """One in a list."""
    due = min(row.deadlines.items(), key=lambda item: item[1].due_at, default=None)
    failed = row.undoing.error if row.undoing is not None else ""
    return {
        "service": None if of is None else of.service,
        "saga": row.saga,
        "id": row.id,
        "name": row.id if of is None else of.named(row),
        "attempt": row.attempt,
        "tenant": row.tenant,
        "status": row.status,
        "last_step": row.steps[-1] if row.done else "",
        "step": stands_at(row),
        "failure": shown_text(ask.who, failure_of(row)),
        "reason": shown_text(ask.who, failed or row.reason or row.note),
        "next": None if due is None else {"name": called(due[0]), "due_at": timestamp(due[1].due_at)},
        "early": len(row.waiting),
        "out": [call.step for call in row.calls],
        "turns_taken": row.turn,
        "started_at": timestamp(row.started_at),
        "changed_at": timestamp(row.changed_at),
        "ended_at": _time(row.ended_at),
    }


def _types(app: App) -> dict[str, SagaType]:
    return {of.name: of for service in app.services for of in service.declared.saga_types.values()}


def _declared(types: Mapping[str, SagaType], name: str) -> SagaType:
    if (found := types.get(name)) is None:
        raise Refusal(404, f"No saga is called {name!r} here.{did_you_mean(name, types)}")
    return found


def _status(ask: Ask) -> SagaStatus | None:
    text = ask.query.get("status")
    if not text:
        return None
    for status in get_args(SagaStatus):
        if status == text:
            found: SagaStatus = status
            return found
    raise Refusal(400, f"No saga is ever {text!r}.{did_you_mean(text, get_args(SagaStatus))}")


def _time(at: float | None) -> str | None:
    return None if at is None else timestamp(at)


async def drawings(ask: Ask) -> object:
    """The diagram of one saga as it was written, without the place of any."""
    app, service = ask.estate.app(ask.path["service"]), ask.estate.service(ask.path["service"])
    of = _declared({name: of for name, of in _types(app).items() if of.service == service.name}, ask.path["saga"])
    return {"saga": of.name, "service": service.name, "diagram": diagram(saga_entry(of))}


PAGES: Mapping[str, Page] = {
    "/sagas": sagas,
    "/sagas/{service}": some,
    "/sagas/{service}/{saga}": drawings,
    "/sagas/{service}/{saga}/{id}": one,
}
