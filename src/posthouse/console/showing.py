"""Showing: payloads, headers, errors and stacks, to whom and how. What is shown here was written by strangers: it goes to the browser
as text, personal fields hidden until they are asked for, and who looked at whose is in the operators' log before it is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from posthouse.app import App
from posthouse.console.access.who import Who
from posthouse.console.asking import Refusal
from posthouse.events.limits import UNREADABLE
from posthouse.redaction import HIDDEN
from posthouse.store.actions import Action

VIEW, UNMASK = "console view", "console unmask"

LONGEST = 200_000
"""Characters of a payload that are sent to a browser."""

NO_RIGHT = "You may not see payloads: ask whoever gives rights for the one to see them."
UNKNOWN_TYPE = "No contract of this event is known here, so nobody knows what in it is personal. Unmask it to see it."
NOT_JSON = "It has personal fields and is no JSON, so they cannot be hidden alone. Unmask it to see it."

Form = Literal["json", "text", "bytes"]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A payload as it may be shown. `text` is exactly what is stored, save for what is `masked`: paths, dots reaching inside, `*` being
    any item; None, and why in `withheld`, where nothing may be. `form` says how to read the text: `bytes` are written as Python does."""

    text: str | None
    form: Form = "text"
    size: int = 0
    cut: bool = False
    masked: Sequence[str] = ()
    unmaskable: bool = False
    withheld: str = ""


def shown_payload(app: App, who: Who, subject: str, data: bytes, *, unmask: bool = False) -> Shown:
    """The payload of an event of this type. Note the look with `viewed` before it is sent."""
    if not who.payloads:
        return Shown(text=None, size=len(data), withheld=NO_RIGHT)
    known = any(service.declared.catalogue.get(subject) is not None for service in app.services)
    paths = app.opened.personal(subject)
    if unmask or (known and not paths):
        return _shown(data)
    if not known:
        return Shown(text=None, size=len(data), withheld=UNKNOWN_TYPE, unmaskable=True)
    hidden = masked(data, paths)
    if hidden is None:
        return Shown(text=None, size=len(data), withheld=NOT_JSON, masked=paths, unmaskable=True)
    shown = _shown(hidden)
    return msgspec.structs.replace(shown, size=len(data), masked=paths, unmaskable=True)


def shown_text(who: Who, text: str) -> str | None:
    """An error, a stack, a reason: these may tell of a payload. None for who may not see one."""
    return text if who.payloads else None


def shown_headers(who: Who, headers: Mapping[str, str]) -> Mapping[str, str] | None:
    """Headers as they came; None for who may not see payloads."""
    return dict(headers) if who.payloads else None


async def viewed(app: App, who: Who, action: Action, *, unmask: bool = False) -> None:
    """Keep in the operators' log that somebody looks at a payload. Only who may see one is noted; without the note nothing is shown."""
    if not who.payloads:
        if unmask:
            raise Refusal(403, NO_RIGHT)
        return
    seen = msgspec.structs.replace(action, verb=UNMASK if unmask else VIEW, by=f"{who.name} (console)")
    async with app.store.begin() as tx:
        await app.actions.note(tx, seen)


def masked(data: bytes, paths: Sequence[str]) -> bytes | None:
    """The JSON with what is at these paths hidden, and all the rest as it is written; None for what is no JSON."""
    try:
        msgspec.json.decode(data)
        return _masked(data, [path.split(".") for path in paths])
    except UNREADABLE:
        return None


def _masked(data: bytes, paths: Sequence[Sequence[str]]) -> bytes:
    """Only what a path leads through is taken apart: numbers keep every digit that they were written with."""
    if any(not path for path in paths):
        return msgspec.json.encode(HIDDEN)
    match data.lstrip()[:1]:
        case b"{":
            fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            return msgspec.json.encode(
                {
                    name: _inside(raw, [path[1:] for path in paths if path[0] in ("*", name)])
                    for name, raw in fields.items()
                }
            )
        case b"[":
            items = msgspec.json.decode(data, type=list[msgspec.Raw])
            below = [path[1:] if path[0] == "*" else path for path in paths]
            return msgspec.json.encode([_inside(raw, below) for raw in items])
        case _:  # not of the shape that its contract says: whatever stands where a person may be is hidden
            return data if data.strip() == b"null" else msgspec.json.encode(HIDDEN)


def _inside(raw: msgspec.Raw, paths: Sequence[Sequence[str]]) -> msgspec.Raw:
    return msgspec.Raw(_masked(bytes(raw), paths)) if paths else raw


def _shown(data: bytes) -> Shown:
    form: Form = "json"
    try:
        msgspec.json.decode(data)
        text = data.decode()
    except UNREADABLE:
        form, text = _readable(data)
    return Shown(text=text[:LONGEST], form=form, size=len(data), cut=len(text) > LONGEST)


def _readable(data: bytes) -> tuple[Form, str]:
    try:
        return "text", data.decode()
    except UnicodeDecodeError:
        return "bytes", data.decode("ascii", errors="backslashreplace")
