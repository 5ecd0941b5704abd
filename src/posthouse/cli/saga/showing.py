"""`posthouse saga show`: one process with its state, its deadlines, what is held for it, and its history in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from rich.text import Text

from posthouse.app import app_of
from posthouse.cli.document import print_document
from posthouse.cli.held.looking import summary as held_summary
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson
from posthouse.cli.output import (
    counted,
    one_line,
    plain,
    print_facts,
    print_json,
    say,
    span,
    state_text,
)
from posthouse.cli.saga.advice import advice, of_others
from posthouse.cli.saga.choosing import Attempt, SagaId, SagaName, Tenant, chosen, declared, other_attempts
from posthouse.cli.saga.looking import COLOURS, status_text, summary
from posthouse.cli.target import Target, load
from posthouse.events import timestamp
from posthouse.processes import SagaType, SagaView
from posthouse.processes.saga.tasks import HELP, task_in
from posthouse.processes.saga.telling import called, is_about
from posthouse.processes.saga.waiting import first_of_key, obstacle, obstacle_behind
from posthouse.service import Service
from posthouse.store import HeldEvent, HeldFilter
from posthouse.store.sagas import Armed, CallOut, SagaRow, SagaTurn, Waiting


class Seen(NamedTuple):
    """A saga, the held events that are about it, its other attempts, and the sagas that it has started."""

    view: SagaView
    held: Sequence[HeldEvent]
    others: Sequence[SagaRow]
    children: Sequence[SagaRow]


def show(
    target: Target,
    saga: SagaName,
    saga_id: SagaId,
    tenant: Tenant = None,
    attempt: Attempt = None,
    as_json: AsJson = False,
) -> None:
    """Show one saga: state, steps done, pending deadlines, early and held events, and every turn in order."""
    service = load(target)
    of = declared(service, saga)
    seen = asyncio.run(_look(service, of, saga_id, tenant, attempt))
    if as_json:
        view = seen.view
        state = msgspec.Raw(view.row.state)
        held_facts = [held_summary(event) for event in seen.held]
        children = [row.ref for row in seen.children]
        known = {"state": state, "history": view.history, "held": held_facts, "children": children}
        print_json({**summary(view.row), **known})
    else:
        _show(service, of, seen, target)


async def _look(service: Service, of: SagaType, id: str, tenant: str | None, attempt: int | None) -> Seen:
    async with opened([service]):
        sagas = app_of(service).sagas
        row = await chosen(service, of.name, id, tenant, attempt)
        view = await sagas.show(of.name, id, tenant=row.tenant, attempt=row.attempt)
        wanted = HeldFilter(consumer=of.consumer, tenant=row.tenant)
        held = [event async for event in service.held.find(wanted) if is_about(of, event, row)]
        return Seen(view, held, await other_attempts(service, row), await sagas.children(row))


def _show(service: Service, of: SagaType, seen: Seen, target: str) -> None:
    view, held = seen.view, seen.held
    row, now = view.row, app_of(service).clock.now()
    undoing = row.undoing
    print_facts(
        [
            ("saga", f"{row.saga} {row.id}"),
            ("attempt", _attempts(row, seen.others)),
            ("tenant", row.tenant),
            ("status", status_text(row.status)),
            ("reason", one_line(row.reason)),
            ("note", one_line(row.note)),
            ("steps done", ", ".join(row.steps) or ("none" if not row.ended else "")),
            ("undoing", "" if undoing is None else _undoing(of, undoing.step, undoing.waiting, undoing.attempts)),
            ("error", "" if undoing is None else one_line(undoing.error)),
            ("started", timestamp(row.started_at)),
            ("last change", timestamp(row.changed_at)),
            ("ended", "" if row.ended_at is None else timestamp(row.ended_at)),
            ("purged", "" if row.purged_at is None else f"{timestamp(row.purged_at)}: this is all that is left"),
            ("correlation", row.correlation or ""),
            ("parent", "" if row.parent is None else str(row.parent)),
            ("children", ", ".join(f"{child.ref}, {child.status}" for child in seen.children)),
            ("waits for", "; ".join(_task(of, row, step, now) for step in row.tasks if step in (HELP, *of.people))),
        ]
    )
    if not row.tombstone and row.status != "awaited":
        _heading("State")
        print_document(row.state)
    if row.deadlines:
        _heading("Pending deadlines")
        for name, armed in sorted(row.deadlines.items(), key=lambda item: item[1].due_at):
            say(_deadline(called(name), armed, held, target, now))
    if row.waiting:
        _heading("Early events")
        for one in row.waiting:
            say(_early(of, row, one, now, _dead(target, one, held) or _dead(target, first_of_key(row, one), held)))
    if row.calls:
        _heading("Calls that are out")
        for call in row.calls:
            say(call_text(call, now))
    if held:
        _heading("Held events")
        for event in held:
            say(Text(f"{event.id}  ") + state_text(event.state) + Text(f"  {plain(event.type)}  {_why(event)}"))
    if view.history:
        _heading("History")
        say(Text("\n").join(line for turn in view.history for line in _turn(turn, view.history[0].at)))
    say("")
    for sentence in (*advice(of, row, target, [event.id for event in held]), *of_others(of, seen.others, target)):
        say(sentence)


def _dead(target: str, one: Waiting | None, held: Sequence[HeldEvent]) -> str:
    """What to do about one that is a dead letter; empty for another."""
    dead = (
        event.id for event in held if one is not None and event.entry.event_id == one.held_as and event.state == "dead"
    )
    id = next(dead, None)
    return (
        f"a dead letter: posthouse held retry {target} {id}, or posthouse held skip {target} {id}"
        if id is not None
        else ""
    )


def _early(of: SagaType, row: SagaRow, one: Waiting, now: float, dead: str = "") -> Text:
    """What an event waits for, and until when; `dead`: it is a dead letter, or the one is that it waits behind."""
    line = Text(f"{plain(one.type)}  ", "bold").append(f"{one.event_id}  ", "dim")
    if one.woken:
        return line.append(dead or "its turn has come")
    why = obstacle(of, row, one) or "its turn"
    if dead and not obstacle_behind(of, row, one, None):
        return line.append(f"waits for {why}, {dead}")
    return line.append(f"waits for {why}; a dead letter in {span(one.until - now)}, at {timestamp(one.until)}")


def call_text(call: CallOut, now: float) -> Text:
    """How a call to the outside stands."""
    line = Text(f"{call.step}  ")
    failed = f", the last one failed: {one_line(call.error)}" if call.error else ""
    tries = f"begun {counted(call.tries, 'time')}{failed}"
    if call.given_up:
        return line.append(f"given up: nobody knows what came of it ({tries})", "red")
    if call.begun_at is None:
        return line.append(
            f"noted, not begun since {timestamp(call.due_at)}", "yellow" if now > call.due_at + 60 else ""
        )
    if now < call.due_at:
        return line.append(f"{'next try' if call.error else 'an answer is due'} in {span(call.due_at - now)}; {tries}")
    return line.append(
        f"overdue for {span(now - call.due_at)}: it is made again when its process is back; {tries}", "red"
    )


def _attempts(row: SagaRow, others: Sequence[SagaRow]) -> str:
    """Which it is, where there are several."""
    known = ", ".join(f"{other.attempt} is {other.status}" for other in others)
    return f"{row.attempt}; {known}" if others else ("" if row.attempt == 1 else str(row.attempt))


def _task(of: SagaType, row: SagaRow, step: str, now: float) -> str:
    task = task_in(of, row, step)
    return f"{task.by}: {task.step or 'decide'}, for {span(now - task.since)}"


def _deadline(name: str, armed: Armed, held: Sequence[HeldEvent], target: str, now: float) -> Text:
    """When it passes; or why it has passed and nothing came of it."""
    failing = next((event for event in held if event.entry.event_id == armed.event_id), None)
    if failing is None and armed.due_at >= now:
        return Text(f"{name}  in {span(armed.due_at - now)}, at {timestamp(armed.due_at)}")
    due = f"{name}  was due {span(now - armed.due_at)} ago, at {timestamp(armed.due_at)}"
    if failing is None:
        return Text(f"{due}: is `posthouse run` running?", "yellow")
    tried = f"its turn failed {counted(failing.attempts, 'time')}"
    following = "it is a dead letter" if failing.state != "retrying" else f"next try in {span(failing.next_at - now)}"
    command = f"posthouse held retry {target} {failing.id}"
    return Text(plain(f"{due}; {tried}, {following}: {_why(failing)}\n  mend the cause, then: {command}"), "red")


def _undoing(of: SagaType, step: str, waiting: bool, attempts: int) -> str:
    undo = of.undos.get(step)
    method = step if undo is None else undo.method
    if waiting and undo is not None and undo.until is not None:
        return f"{method} of {step}, which waits for {undo.until.name}"
    return f"{method} of {step}, which failed {counted(attempts, 'time')}" if attempts else f"{method} of {step}"


def _turn(turn: SagaTurn, began: float) -> Iterator[Text]:
    """A line for what came, and one for each thing that followed."""
    when = timestamp(turn.at) if turn.at == began else f"+{_after(turn.at - began)}"
    line = Text(f"{turn.turn:>3}  ", "dim")
    line.append(f"{when}  ", "cyan")
    line.append(f"{turn.input.kind} ", "dim")
    line.append(plain(turn.input.type), "bold")
    line.append(f" ({turn.input.error})" if turn.input.error else "", "red")
    line.append(f" → {turn.method}" if turn.method and turn.method != turn.input.type else "")
    line.append("  ")
    line.append(turn.status, COLOURS.get(turn.status, ""))
    yield line
    for said in turn.published:
        later = (
            f", {span(said.after)} later"
            if said.after
            else ""
            if said.at is None
            else f", at {timestamp(said.at.timestamp())}"
        )
        yield _follow(f"says {said.type}{later}")
    for name in turn.undone:
        yield _follow(f"undoes by {name}")
    for name, wait in turn.deadlines_set.items():
        when = f"at {timestamp(wait.timestamp())}" if isinstance(wait, datetime) else f"in {span(wait)}"
        yield _follow(f"sets {called(name)}, {when}")
    for name in turn.deadlines_cleared:
        yield _follow(f"clears {called(name)}")
    if turn.waits_for:
        yield _follow(f"came early: waits for {turn.waits_for}", "yellow")
    if turn.undo_failed:
        yield _follow(f"failed: {one_line(turn.undo_failed)}", "red")
    if turn.late:
        words = turn.note if turn.note.startswith("came late") else ": ".join(filter(None, ("came late", turn.note)))
        yield _follow(one_line(words), "yellow")
    elif turn.note:
        yield _follow(f"note: {one_line(turn.note)}")


def _follow(words: str, style: str = "") -> Text:
    return Text(f"       {plain(words)}", style)


def _after(seconds: float) -> str:
    return span(seconds) if seconds >= 60 else f"{seconds:.3f} s"


def _why(event: HeldEvent) -> str:
    return plain(one_line(event.error or event.reason))


def _heading(text: str) -> None:
    say("")
    say(text, "bold")
