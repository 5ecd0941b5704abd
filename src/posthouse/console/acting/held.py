"""Held events: run them again, give them up, set them aside, edit them, let their key go on."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping

import msgspec

from posthouse.console.acting.act import Act, AnyAct, Call, Change, Id, Look, Outcome
from posthouse.console.asking import Refusal
from posthouse.console.showing import viewed
from posthouse.contracts.boxes import comparable, kept
from posthouse.errors import DeskError, DoneAlready
from posthouse.events import Event, decode_any
from posthouse.operators import MORE, changes_aside
from posthouse.receiving.editing import check_edit, with_fields
from posthouse.redaction import HIDDEN
from posthouse.revealing import looking_at
from posthouse.store import BLOCKING, HeldEvent, HeldFilter

MOST_BEHIND = 100
"""So many that wait behind an event are counted."""
SITTING = 600.0
"""Seconds within which previews of an edit by one person are one look at the payload."""
_OURS = uuid.uuid4()
"""Nobody guesses the id of a look, and has it noted as something else before."""


class One(msgspec.Struct, frozen=True, kw_only=True):
    """A held event by its number."""

    id: Id


class Forced(One, frozen=True, kw_only=True):
    """`force`: even so. A retry out of order; a release of any number of missing ones."""

    force: bool = False


class Edited(Forced, frozen=True, kw_only=True):
    """The whole new payload as the JSON text that it is, or some fields of it."""

    data: str | None = None
    set: Mapping[str, msgspec.Raw] | None = None


async def found(call: Call[One]) -> HeldEvent:
    """The event; one of a tenant that they may not see is not there."""
    try:
        held = await call.service.held.get(int(call.parameters.id))
    except DeskError as error:
        raise _nothing(call) from error
    if not call.who.sees(held.entry.tenant) or held.consumer not in call.service.declared.consumers:
        raise _nothing(call)
    return held


def _nothing(call: Call[One]) -> Refusal:
    said = f"No held event of {call.service.name} has the number {call.parameters.id}."
    return Refusal(404, said, "It may have been applied meanwhile.")


async def _look_retry(call: Call[Forced]) -> Look:
    held = await found(call)
    _refuse_waiting(held, "retry")
    behind = await _behind(call, held)
    danger = "It runs out of order if its key has gone on: its handler must bear that." if call.parameters.force else ""
    return _look(held, f"{_named(held)} runs again, with all its attempts.{_follow(behind)}", danger, behind)


async def _look_skip(call: Call[One]) -> Look:
    held = await found(call)
    _refuse_set_aside(held, "skipped")
    behind = await _behind(call, held)
    danger = "What this event says is not applied by this consumer. Its key goes on without it."
    return _look(held, f"{_named(held)} is given up.{_follow(behind)}", danger, behind)


async def _look_quarantine(call: Call[One]) -> Look:
    held = await found(call)
    _refuse_set_aside(held, "quarantined")
    behind = await _behind(call, held)
    danger = "It never runs by itself again. Its key goes on without it."
    return _look(held, f"{_named(held)} is set aside for inspection.{_follow(behind)}", danger, behind)


async def _look_release(call: Call[Forced]) -> Look:
    held = await found(call)
    behind = await _behind(call, held)
    first = await call.service.held.first(held.id)
    gap = first.state in ("gap", "blocked")
    done = (
        f"the numbers before {first.entry.sequence} that are missing are given up"
        if gap
        else "it runs again"
        if first.id == held.id
        else f"held event {first.id}, the first of it, which is {first.state}, runs again"
    )
    sentence = f"The key of {_named(held)} goes on: {done}.{_follow(behind)}"
    danger = "Missing events that come later are set aside: their key has gone past them." if gap else ""
    return msgspec.structs.replace(_look(held, sentence, danger, behind), seen=f"{first.id} {first.turn}")


async def _look_edit(call: Call[Edited]) -> Look:
    held = await found(call)
    _refuse_waiting(held, "edit")
    if not call.press:  # what is pressed is noted itself
        await _viewed(call, held)
    event = decode_any(held.headers, held.body)
    data = await asyncio.to_thread(_edited, call, event)  # what somebody pastes may be large
    personal = call.app.opened.personal(event.type)
    fields = await changes_aside(comparable(event.data), comparable(data), personal)
    if not fields:
        raise Refusal(400, "The payload is as it was.", "Retry runs it again unchanged.")
    shown = [Change(name, _json(before), _json(after)) for name, (before, after) in fields.items()]
    behind = await _behind(call, held)
    count = (
        "1 field"
        if len(shown) == 1
        else f"more than {len(shown) - 1} fields"
        if MORE in fields
        else f"{len(shown)} fields"
    )
    look = _look(
        held,
        f"{_named(held)} gets a new payload, {count} of it changed, and runs again; its id and its place stay.{_follow(behind)}",
        "What the producer said is replaced, for this consumer only: others have applied it as it was.",
        behind,
    )
    return msgspec.structs.replace(look, changes=shown)


async def _viewed(call: Call[Edited], held: HeldEvent) -> None:
    """Keep that somebody sees the payload: once while they are at it, however often the preview is asked for as they write."""
    looked = f"{call.by} {call.service.name} {held.id} {held.turn} {time.time() // SITTING:.0f}"
    action = msgspec.structs.replace(looking_at(held, ""), id=str(uuid.uuid5(_OURS, looked)))
    with contextlib.suppress(DoneAlready):
        await viewed(call.app, call.who, action)


def _edited(call: Call[Edited], event: Event[bytes]) -> bytes:
    parameters, catalogue = call.parameters, call.service.declared.catalogue
    if (parameters.data is None) == (parameters.set is None):
        raise Refusal(400, "Say what is edited: `data`, the whole payload, or `set`, some fields of it.")
    if parameters.set is not None:
        values = {path: msgspec.json.decode(raw) for path, raw in parameters.set.items()}
        data = with_fields(catalogue, event, values)
    else:
        data = (parameters.data or "").encode()
    _refuse_hidden(event.data, data)
    data = kept(event.data, data)
    check_edit(call.service.name, catalogue, event, data)
    return data


def _refuse_hidden(before: bytes, after: bytes) -> None:
    """What was shown as hidden and came back so is refused, never guessed: lines may have moved, and it is nobody's value."""
    try:
        left: list[tuple[object, object]] = [(msgspec.json.decode(before), msgspec.json.decode(after))]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    while left:
        old, new = left.pop()
        if new == HIDDEN and old != HIDDEN:
            raise Refusal(
                400, f"“{HIDDEN}” stands for what is hidden: it is no value.", "Unmask the payload, and edit it whole."
            )
        if isinstance(new, dict):
            left += ((old.get(name) if isinstance(old, dict) else None, value) for name, value in new.items())
        elif isinstance(new, list):
            known = old if isinstance(old, list) else []
            left += ((known[at] if at < len(known) else None, value) for at, value in enumerate(new))


async def _retry(call: Call[Forced], look: Look) -> Outcome:
    force = call.parameters.force
    await call.service.held.retry(int(call.parameters.id), force=force, by=call.by, why=call.why)
    return Outcome(sentence=f"Held event {call.parameters.id} runs again as soon as its consumer does.")


async def _skip(call: Call[One], look: Look) -> Outcome:
    await call.service.held.skip(int(call.parameters.id), by=call.by, why=call.why)
    return Outcome(sentence=f"Held event {call.parameters.id} is skipped; its key goes on.")


async def _quarantine(call: Call[One], look: Look) -> Outcome:
    await call.service.held.quarantine(int(call.parameters.id), by=call.by, why=call.why)
    return Outcome(sentence=f"Held event {call.parameters.id} is quarantined; its key goes on.")


async def _release(call: Call[Forced], look: Look) -> Outcome:
    id, _, turn = look.seen.partition(" ")
    first = await call.service.held.release(
        int(call.parameters.id), first_seen=(int(id), int(turn)), force=call.parameters.force, by=call.by, why=call.why
    )
    return Outcome(sentence=f"The key of held event {first.id} is released.")


async def _edit(call: Call[Edited], look: Look) -> Outcome:
    held = await found(call)
    event = decode_any(held.headers, held.body)
    data = await asyncio.to_thread(_edited, call, event)

    def check(_: str, edited: bytes) -> None:
        check_edit(call.service.name, call.service.declared.catalogue, event, edited)

    await call.service.held.edit(held.id, data, check, force=call.parameters.force, by=call.by, why=call.why)
    return Outcome(sentence=f"Held event {held.id} has a new payload and runs again.")


def _refuse_waiting(held: HeldEvent, verb: str) -> None:
    if held.state in ("blocked", "gap"):
        what = "an earlier event of its key is held" if held.state == "blocked" else "an earlier number has not come"
        raise Refusal(
            409, f"Held event {held.id} waits: {what}.", f"Deal with the first of its key, or release; then {verb}."
        )


def _refuse_set_aside(held: HeldEvent, state: str) -> None:
    if held.state == state:
        raise Refusal(409, f"Held event {held.id} is {state} already.")
    if held.state == "blocked" or (held.state == "gap" and state != "quarantined"):
        raise Refusal(409, f"Held event {held.id} waits behind an earlier one of its key.", "Deal with that one first.")


async def _behind(call: Call[One], held: HeldEvent) -> int:
    """How many of its key wait behind it, up to a bound."""
    entry = held.entry
    if entry.sequence is None or held.state not in BLOCKING:
        return 0
    line = HeldFilter(consumer=held.consumer, topic=entry.topic, tenant=entry.tenant, key=entry.key, state="blocked")
    return len(await call.app.store.held.find(line, limit=MOST_BEHIND + 1))


def _look(held: HeldEvent, sentence: str, danger: str, behind: int) -> Look:
    counts = {"wait behind it": f"{MOST_BEHIND}+" if behind > MOST_BEHIND else behind}
    return Look(sentence=sentence, danger=danger, counts=counts, tenant=held.entry.tenant, turn=held.turn)


def _named(held: HeldEvent) -> str:
    key = f", key {held.entry.key}" if held.entry.key is not None else ""
    return f"Held event {held.id} ({held.type or 'unreadable'} for {held.consumer}{key}), which is {held.state},"


def _follow(behind: int) -> str:
    if not behind:
        return ""
    number = f"More than {MOST_BEHIND} events wait" if behind > MOST_BEHIND else (
        "1 event waits" if behind == 1 else f"{behind} events wait"
    )  # fmt: skip
    return f" {number} behind it and follow{'s' if behind == 1 else ''} by {'itself' if behind == 1 else 'themselves'}."


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


ACTS: tuple[AnyAct, ...] = (
    Act(name="held.retry", title="Retry", role="operator", parameters=Forced, look=_look_retry, do=_retry, grant="replay"),
    Act(name="held.skip", title="Skip", role="operator", parameters=One, look=_look_skip, do=_skip),
    Act(name="held.quarantine", title="Quarantine", role="operator", parameters=One, look=_look_quarantine, do=_quarantine),
    Act(name="held.release", title="Release the key", role="operator", parameters=Forced, look=_look_release, do=_release, grant="replay"),
    Act(name="held.edit", title="Edit and retry", role="operator", parameters=Edited, look=_look_edit, do=_edit, payloads=True, grant="edit"),
)  # fmt: skip
