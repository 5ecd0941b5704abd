"""`posthouse held list|show|export`: look at events that could not be applied."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TextIO

import msgspec
import typer

from posthouse.app import app_of
from posthouse.cli.document import print_document
from posthouse.cli.held.choosing import Consumer, HeldId, Key, State, Tenant, Topic, chosen
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why
from posthouse.cli.output import (
    Cell,
    counted,
    one_line,
    print_facts,
    print_json,
    print_table,
    say,
    span,
    state_text,
)
from posthouse.cli.target import Target, load
from posthouse.contracts.boxes import Revealed, boxes_at, numbered
from posthouse.errors import ConfigurationError, DecodeError
from posthouse.events import Event, decode_any, timestamp
from posthouse.events.limits import UNREADABLE
from posthouse.revealing import UNMASK, looking_at, noted, reveal
from posthouse.service import Service
from posthouse.store import HeldEvent, HeldFilter

COLUMNS = ("ID", "STATE", "CONSUMER", "TYPE", "TENANT", "KEY", "NO.", "RUNS", "SINCE", "WHY")


def list_held(
    target: Target,
    consumer: Consumer = None,
    state: State = None,
    tenant: Tenant = None,
    topic: Topic = None,
    key: Key = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List held events, oldest first."""
    service = load(target)
    wanted = chosen(service, consumer=consumer, state=state, tenant=tenant, topic=topic, key=key)
    events, now = asyncio.run(_find(service, wanted, limit + 1)), app_of(service).clock.now()
    if as_json:
        print_json([summary(event) for event in events[:limit]])
    elif events:
        _show_list(events[:limit], now)
    else:
        say("nothing is held", "green")
    if len(events) > limit and not as_json:
        say(f"there are more than {limit}: raise --limit, or narrow the choice", "yellow")


def show(
    target: Target,
    held_id: HeldId,
    unmask: Annotated[
        bool,
        typer.Option(
            "--unmask", help="Decrypt what is secret in it. Needs --why; the look is kept, the values are not."
        ),
    ] = False,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Show one held event: envelope, payload, error, stack, attempts and times.

    What travels encrypted is shown as ⟨withheld 1⟩. With --unmask it is plain, once the operators' log has who looked, why, and at
    whose fields.
    """
    if unmask and not why.strip():
        raise ConfigurationError(
            "--unmask needs --why: it is kept in the operators' log, with your name and whose data it is"
        )
    if not unmask and (by or why):
        raise ConfigurationError("--by and --why are kept of a look with --unmask alone: a look without it is not kept")
    service = load(target)
    event, revealed = asyncio.run(_look(service, held_id, by, why) if unmask else _get(service, held_id))
    if as_json:
        envelope = _envelope_json(event, revealed)
        print_json({**summary(event), "headers": event.headers, "envelope": envelope, "body": event.body})
    else:
        _show(event, revealed)


def export(
    target: Target,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file; stdout when not given.")] = None,
    consumer: Consumer = None,
    state: State = None,
    tenant: Tenant = None,
    topic: Topic = None,
    key: Key = None,
) -> None:
    """Write held events as JSON lines, nothing lost: headers as they came, the body in base64."""
    service = load(target)
    wanted = chosen(service, consumer=consumer, state=state, tenant=tenant, topic=topic, key=key)
    try:
        with output.open("w", encoding="utf-8") if output else contextlib.nullcontext(sys.stdout) as stream:
            number = asyncio.run(_export(service, wanted, stream))
    except OSError as error:
        if output is None:
            raise
        raise ConfigurationError(f"cannot write to {output}: {error.strerror}") from error
    if output is not None:
        say(f"{counted(number, 'held event')} written to {output}")


def summary(event: HeldEvent) -> dict[str, object]:
    """What `--json` says about a held event, its bytes aside."""
    entry = event.entry
    return {
        "id": event.id,
        "state": event.state,
        "consumer": event.consumer,
        "type": event.type,
        "topic": entry.topic,
        "tenant": entry.tenant,
        "key": entry.key,
        "sequence": entry.sequence,
        "lineage": entry.lineage,
        "event_id": entry.event_id,
        "attempts": event.attempts,
        "first_at": timestamp(event.first_at),
        "last_at": timestamp(event.last_at),
        "next_at": timestamp(event.next_at) if event.state == "retrying" else None,
        "reason": event.reason,
        "error": event.error,
        "stack": event.stack,
    }


async def _find(service: Service, wanted: HeldFilter, limit: int) -> list[HeldEvent]:
    found: list[HeldEvent] = []
    async with opened([service]):
        async for event in service.held.find(wanted):
            found.append(event)
            if len(found) == limit:
                break
    return found


async def _get(service: Service, held_id: int) -> tuple[HeldEvent, None]:
    async with opened([service]):
        return await service.held.get(held_id), None


async def _look(service: Service, held_id: int, by: str, why: str) -> tuple[HeldEvent, Revealed]:
    """With what is secret in it; the look is kept before anything is returned."""
    async with opened([service]):
        app, held = app_of(service), await service.held.get(held_id)
        revealed = await reveal(app, decode_any(held.headers, held.body))
        async with app.store.begin() as tx:
            await app.actions.note(tx, noted(looking_at(held, UNMASK, by, why), revealed))
        return held, revealed


async def _export(service: Service, wanted: HeldFilter, stream: TextIO) -> int:
    number = 0
    async with opened([service]):
        async for event in service.held.find(wanted):
            stream.write(msgspec.json.encode(event).decode() + "\n")
            number += 1
    return number


def _show_list(events: Sequence[HeldEvent], now: float) -> None:
    print_table(COLUMNS, [_row(event, now) for event in events])
    states = sorted(Counter(event.state for event in events).items())
    say(f"\n{counted(len(events), 'held event')}: {', '.join(f'{number} {state}' for state, number in states)}")


def _row(event: HeldEvent, now: float) -> tuple[Cell, ...]:
    entry = event.entry
    return (
        event.id,
        state_text(event.state),
        event.consumer,
        event.type,
        entry.tenant,
        entry.key or "",
        "" if entry.sequence is None else str(entry.sequence),
        event.attempts,
        span(now - event.first_at),
        one_line(event.error or event.reason),
    )


def _show(event: HeldEvent, revealed: Revealed | None) -> None:
    entry = event.entry
    print_facts(
        [
            ("held event", str(event.id)),
            ("state", state_text(event.state)),
            ("reason", one_line(event.reason)),
            ("consumer", event.consumer),
            ("topic", entry.topic),
            ("tenant", entry.tenant),
            ("key", entry.key or ""),
            ("number", "" if entry.sequence is None else f"{entry.sequence} (lineage {entry.lineage})"),
            ("runs", str(event.attempts)),
            ("held since", timestamp(event.first_at)),
            ("last change", timestamp(event.last_at)),
            ("next run", timestamp(event.next_at) if event.state == "retrying" else ""),
        ]
    )
    try:
        _show_envelope(decode_any(event.headers, event.body), revealed)
    except DecodeError as error:
        _heading("Bytes that are not an event")
        say(str(error), "red")
        say(event.body.decode(errors="backslashreplace"))
    if event.error:
        _heading("Error")
        say(event.error, "red")
    if event.stack:
        _heading("Stack")
        say(event.stack.rstrip())


def _show_envelope(event: Event[bytes], revealed: Revealed | None) -> None:
    _heading("Envelope")
    fields = msgspec.to_builtins(msgspec.structs.replace(event, data=b""))
    print_facts([(name, _value(value)) for name, value in fields.items() if name != "data" and value not in (None, {})])
    _heading("Payload")
    print_document(_unopened(event.data) if revealed is None else revealed.data)
    if revealed is None:
        if boxes_at(event.data):
            say("What is ⟨withheld …⟩ travels encrypted: --unmask --why … shows it, and keeps who looked.", "dim")
        return
    shown = sum(len(paths) for paths in revealed.shown.values())
    say(
        f"{counted(shown, 'field')} decrypted, about {len(revealed.shown):,} of the people in it; the look is kept",
        "dim",
    )


def _unopened(data: bytes) -> bytes:
    """With what `held edit` takes back in place of each encrypted value."""
    return numbered(data) if boxes_at(data) else data


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _heading(text: str) -> None:
    say("")
    say(text, "bold")


def _envelope_json(held: HeldEvent, revealed: Revealed | None) -> object:
    """The envelope with its payload as JSON where it is JSON; None when the bytes are not an event. As it travels, unless it was
    decrypted."""
    try:
        event = decode_any(held.headers, held.body)
    except DecodeError:
        return None
    try:
        data: object = msgspec.json.decode(event.data if revealed is None else revealed.data)
    except UNREADABLE:
        data = event.data
    return event.with_data(data)
