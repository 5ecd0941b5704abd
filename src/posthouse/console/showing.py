"""Showing: payloads, headers, errors and stacks, to whom and how. What is shown here was written by strangers: it goes to the browser
as text, personal fields hidden until they are asked for, and who looked at whose is in the operators' log before it is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from posthouse.app import App
from posthouse.console.access.who import Who
from posthouse.console.asking import Ask, Refusal
from posthouse.contracts.boxes import Revealed, boxes_at, is_withheld, numbered, with_placeholders, without_boxes
from posthouse.errors import ConfigurationError, SecretsUnavailable
from posthouse.events import Event
from posthouse.events.limits import UNREADABLE
from posthouse.redaction import HIDDEN, words_of
from posthouse.revealing import noted, reveal
from posthouse.store.actions import Action

VIEW, UNMASK = "console view", "console unmask"

LONGEST_WHY = 2_000
LONGEST = 200_000
"""Characters of a payload that are sent to a browser."""

NOT_SHOWN = "Nothing was shown."
NO_RIGHT = "You may not see payloads: ask whoever gives rights for the one to see them."
UNKNOWN_TYPE = "No contract of this event is known here, so nobody knows what in it is personal. Unmask it to see it."
NOT_JSON = "It has personal fields and is no JSON, so they cannot be hidden alone. Unmask it to see it."

Form = Literal["json", "text", "bytes"]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A payload as it may be shown. `text` is exactly what is stored, save for what is `masked`: paths, dots reaching inside, `*` being
    any item; None, and why in `withheld`, where nothing may be. `form` says how to read the text: `bytes` are written as Python does. `decrypted` fields travel encrypted and are plain in the text;
    those that are `erased` or `unreadable` nobody can decrypt. `edit`: what an editor begins with, where that is not the text: with
    something in place of each encrypted value, which stays as it is."""

    text: str | None
    form: Form = "text"
    size: int = 0
    cut: bool = False
    masked: Sequence[str] = ()
    unmaskable: bool = False
    withheld: str = ""
    decrypted: int = 0
    erased: Sequence[str] = ()
    unreadable: Sequence[str] = ()
    edit: str | None = None


async def looked_at(
    app: App, who: Who, seen: Event[bytes] | bytes, action: Action, *, unmask: bool = False, why: str = ""
) -> Shown:
    """The payload of an event, or bytes that are none, as somebody sees it who asks; the look is kept before. What is encrypted is
    decrypted at `unmask` only. Raises Refusal where that cannot be."""
    event = None if isinstance(seen, bytes) else seen
    plain = Revealed(seen if isinstance(seen, bytes) else seen.data)
    if unmask and who.payloads:
        refuse_unsaid(who, why)
        if event is not None:
            plain = await _revealed(app, event)
    await viewed(app, who, noted(msgspec.structs.replace(action, why=why), plain), unmask=unmask)
    subject, data = ("", plain.data) if event is None else (event.type, event.data)
    if not unmask or not who.payloads:
        return shown_payload(app, who, subject, data)
    return msgspec.structs.replace(
        _shown(plain.data),
        decrypted=sum(len(paths) for paths in plain.shown.values()),
        erased=plain.erased,
        unreadable=plain.unreadable,
        edit=_edit(data, None),
    )


def shown_payload(app: App, who: Who, subject: str, data: bytes) -> Shown:
    """The payload of an event of this type, without what is personal or encrypted in it."""
    if not who.payloads:
        return Shown(text=None, size=len(data), withheld=NO_RIGHT)
    known = any(service.declared.catalogue.get(subject) is not None for service in app.services)
    if not known:
        return Shown(text=None, size=len(data), withheld=UNKNOWN_TYPE, unmaskable=True)
    paths, boxes = app.opened.personal(subject), boxes_at(data)
    if not paths and not boxes:
        return _shown(data)
    hidden = masked(with_placeholders(data) if boxes else data, paths)
    if hidden is None:
        return Shown(text=None, size=len(data), withheld=NOT_JSON, masked=paths, unmaskable=True)
    hides = paths or sorted(set(boxes))
    return msgspec.structs.replace(
        _shown(hidden), size=len(data), masked=hides, unmaskable=True, edit=_edit(data, paths)
    )


async def _revealed(app: App, event: Event[bytes]) -> Revealed:
    try:
        return await reveal(app, event)
    except ConfigurationError as error:
        raise Refusal(409, f"It cannot be decrypted here. {error}.", NOT_SHOWN) from error
    except SecretsUnavailable as error:
        raise Refusal(
            503, f"The keys cannot be had: {words_of(error)}", f"{NOT_SHOWN} Ask again when it answers."
        ) from error


def why_of(ask: Ask) -> str:
    """What the query says, for the operators' log."""
    return ask.query.get("why", "").strip()


def refuse_unsaid(who: Who, why: str) -> None:
    """Raise Refusal for who may unmask and does not say why; who may not is refused by `viewed`."""
    if who.payloads and not why.strip():
        raise Refusal(400, "Say why.", "It is kept in the operators' log, with your name and whose data it is.")
    if len(why) > LONGEST_WHY:
        raise Refusal(400, f"Say why in at most {LONGEST_WHY:,} characters; these are {len(why):,}.")


def _edit(data: bytes, hidden: Sequence[str] | None) -> str | None:
    """None where the text itself does, and where something `hidden` is no encrypted value: whoever edits it must see it."""
    if not boxes_at(data):
        return None
    bare = msgspec.json.decode(without_boxes(data))
    if any(_is_plain(bare, path.split(".")) for path in hidden or ()):
        return None
    text = numbered(data).decode()
    return text if len(text) <= LONGEST else None


def _is_plain(value: object, path: Sequence[str]) -> bool:
    """Whether anything but a gap or a placeholder is at a path, or in its way."""
    if value is None or not path:
        return value is not None and not is_withheld(value)
    if isinstance(value, list):
        below = path[1:] if path[0] == "*" else path
        return any(_is_plain(item, below) for item in value)
    if not isinstance(value, dict):
        return True
    return any(_is_plain(item, path[1:]) for name, item in value.items() if path[0] in ("*", name))


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
