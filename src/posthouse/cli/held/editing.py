"""`posthouse held edit`: replace the payload of a held event, checked against its contract, and run it again."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from posthouse.cli.held.choosing import HeldId
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why
from posthouse.cli.output import complain, print_json, say
from posthouse.cli.target import Target, load
from posthouse.contracts.boxes import kept, numbered
from posthouse.errors import ConfigurationError, ContractError
from posthouse.events import Event, decode_any
from posthouse.events.limits import UNREADABLE
from posthouse.receiving.editing import check_edit, with_fields
from posthouse.service import Service


def edit(
    target: Target,
    held_id: HeldId,
    data: Annotated[
        str | None, typer.Option("--data", metavar="FILE", help="The whole new payload as JSON; - reads stdin.")
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Change one field: a JSON value, or else text. Dots reach inside. May be given again.",
        ),
    ] = None,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Replace the payload of a held event and run it again. Its id and its place in line stay.

    The fields that changed are kept in the operators' log, as they were and as they are; of personal ones only that they did.
    Without --data and --set, $EDITOR opens with the payload. ⟨withheld 1⟩ stands for what travels encrypted: leave it, and it stays.
    """
    if data is not None and fields:
        raise ConfigurationError("--data replaces the whole payload, --set single fields: choose one")
    service = load(target)

    def change(event: Event[bytes]) -> bytes:
        if data is not None:
            return _read(data)
        if fields:
            return with_fields(service.declared.catalogue, event, _assigned(fields))
        return _from_editor(service, event)

    edited = asyncio.run(_edit(service, held_id, change, by, why))
    if as_json:
        print_json({"id": held_id, "data": msgspec.Raw(edited)})
    else:
        say(f"{held_id} has a new payload and runs again")


async def _edit(service: Service, held_id: int, change: Callable[[Event[bytes]], bytes], by: str, why: str) -> bytes:
    async with opened([service]):
        held = await service.held.get(held_id)
        event = decode_any(held.headers, held.body)
        edited = kept(event.data, change(event))
        if edited == event.data:
            raise ConfigurationError(f"the payload is as it was: `posthouse held retry` runs {held_id} again unchanged")
        await service.held.edit(held_id, edited, lambda _, data: _check(service, event, data), by=by, why=why)
        return edited


def _check(service: Service, event: Event[bytes], data: bytes) -> None:
    check_edit(service.name, service.declared.catalogue, event, data)


def _read(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {source}: {error.strerror}") from error


def _assigned(assignments: list[str]) -> dict[str, object]:
    pairs = [assignment.partition("=") for assignment in assignments]
    for path, equals, _ in pairs:
        if not equals:
            raise ConfigurationError(f"--set takes FIELD=VALUE, not {path!r}")
    return {path: _json_or_text(text) for path, _, text in pairs}


def _json_or_text(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return text


def _from_editor(service: Service, event: Event[bytes]) -> bytes:
    """Open the editor until the payload fits or the user gives up: nobody types it twice."""
    try:
        before = msgspec.json.format(numbered(event.data), indent=2)
    except UNREADABLE:
        before = event.data
    text = before
    while True:
        text = _open_editor(text)
        if text.strip() == before.strip():
            return event.data
        try:
            _check(service, event, kept(event.data, text))
            return msgspec.json.format(text, indent=-1)
        except ContractError as error:
            complain(f"posthouse: {error}")
            typer.confirm("Edit it again?", default=True, abort=True, err=True)


def _open_editor(text: bytes) -> bytes:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise ConfigurationError("no editor is set: set EDITOR, or use --set or --data")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "payload.json"
        file.write_bytes(text)
        try:
            subprocess.run([*shlex.split(editor), str(file)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ConfigurationError(f"the editor {editor!r} failed: {error}") from error
        return file.read_bytes()
