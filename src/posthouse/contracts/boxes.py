"""Boxes: how a value travels that is encrypted, and what stands for one that may not be seen. Nothing here has a key.

    {"$secret": 1, "of": "guest-17", "kind": "contact", "gap": "text", "box": "base64"}

Version 0, without a box, stands for a value that is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeGuard

import msgspec

from posthouse.errors import ContractError
from posthouse.events.limits import UNREADABLE as UNREADABLE_JSON

MARK = b'"$secret"'

WITHHELD = "⟨withheld⟩"
"""What a handler sees in place of a text that its service may not read; in place of anything else None."""
ERASED = "⟨erased⟩"
"""What everybody sees in place of the text about a person who was erased; in place of anything else None."""
UNREADABLE = "⟨unreadable⟩"
"""What a person sees in place of a value that no key here opens: it was changed, moved, or encrypted elsewhere."""
SEALED = "⟨sealed "
"""How a text begins that stands for a secret and carries it on, still encrypted: what a saga sees."""

NONCE = 16
"""Characters with which a box begins that no other has."""

Gap = Literal["text", "null"]


class Box(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret value as it travels. `gap` tells what may stand in its place."""

    version: Literal[0, 1] = msgspec.field(name="$secret")
    of: str
    kind: str = ""
    gap: Gap = "text"
    box: str = ""


class Revealed(msgspec.Struct, frozen=True):
    """A payload as a person sees it who may see all of it, and what was decrypted for that: the paths of fields, by the id of the
    person they are about. `erased` and `unreadable` are those of fields that nobody can decrypt."""

    data: bytes
    shown: Mapping[str, Sequence[str]] = {}
    erased: Sequence[str] = ()
    unreadable: Sequence[str] = ()


_box = msgspec.json.Decoder(Box)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def is_withheld(value: object) -> TypeGuard[str]:
    """Whether a text is no data, but stands for some that may not be seen here, or that was erased."""
    return isinstance(value, str) and (value in (WITHHELD, ERASED) or value.startswith(SEALED))


def with_placeholders(data: bytes) -> bytes:
    """JSON as somebody sees it who may read nothing."""
    if MARK not in data:
        return data
    return replaced(data, "", lambda _, box: stand_in(box, WITHHELD if box.version else ERASED))


def without_boxes(data: bytes) -> bytes:
    """JSON with null in place of each encrypted value."""
    return replaced(data, "", lambda *_: b"null")


def comparable(data: bytes) -> bytes:
    """JSON with a short text in place of each encrypted value, which tells it from others and says nothing."""
    if not boxes_at(data):
        return data
    return replaced(data, "", lambda _, box: _encode(f"{WITHHELD[:-1]} {box.box[:NONCE]}⟩" if box.version else ERASED))


def boxes_at(data: bytes) -> Sequence[str]:
    """The paths of encrypted values in a payload; none in what is no JSON."""
    if MARK not in data:
        return ()
    found: list[str] = []

    def note(path: str, box: Box) -> bytes:
        found.append(path)
        return b"null"

    try:
        replaced(data, "", note)
    except UNREADABLE_JSON:
        return ()
    return found


def numbered(data: bytes) -> bytes:
    """JSON as somebody edits it: for each encrypted value stands `⟨withheld 1⟩`, `⟨withheld 2⟩`, …, which `kept` knows again."""
    if MARK not in data:
        return data
    count = 0

    def put(path: str, box: Box) -> bytes:
        nonlocal count
        count += 1
        return _encode(f"{WITHHELD[:-1]} {count}⟩")

    return replaced(data, "", put)


def kept(before: bytes, after: bytes) -> bytes:
    """An edited payload with the encrypted values that nobody touched, byte for byte. A value is bound to its place: ContractError
    for one that was moved, or is none of those that were there."""
    if MARK not in before:
        return after
    boxes: list[tuple[str, bytes]] = []

    def note(path: str, box: Box) -> bytes:
        boxes.append((path, _encode(box)))
        return b"null"

    replaced(before, "", note)
    try:
        msgspec.json.decode(after)
    except UNREADABLE_JSON:
        return after  # whoever checks it against its contract says what is wrong
    return _Keeping(boxes).over(after, "")


class _Keeping:
    """Over an edited payload, putting back what stood there."""

    def __init__(self, boxes: Sequence[tuple[str, bytes]]) -> None:
        self._boxes = boxes
        self._whole = frozenset(boxes)
        self._paths = frozenset(path for path, _ in boxes)

    def over(self, raw: bytes, path: str) -> bytes:
        raw = raw.strip()
        if raw[:1] == b"[":
            return _encode([msgspec.Raw(self._one(bytes(it), f"{path}{n}")) for n, it in enumerate(_array.decode(raw))])
        if raw[:1] != b"{":
            return raw
        return _encode(
            {name: msgspec.Raw(self._one(bytes(it), f"{path}{name}")) for name, it in _object.decode(raw).items()}
        )

    def _one(self, raw: bytes, path: str) -> bytes:
        if raw[:1] == b'"':
            return self._text(raw, path)
        if raw[:1] != b"{" or MARK not in raw or (box := box_in(raw)) is None:
            return self.over(raw, f"{path}.")
        if (path, _encode(box)) not in self._whole:
            raise ContractError(f"{path!r}: {_MOVED}")
        return _encode(box)

    def _text(self, raw: bytes, path: str) -> bytes:
        said = msgspec.json.decode(raw, type=str)
        if said == WITHHELD and path in self._paths:
            raise ContractError(
                f"{path!r}: {WITHHELD} stands for a value and is none: leave its number to keep it, or write a new value"
            )
        if (number := _NUMBERED.fullmatch(said)) is None:
            return raw
        at = int(number[1]) - 1
        if not 0 <= at < len(self._boxes) or self._boxes[at][0] != path:
            raise ContractError(f"{path!r}: {said}: {_MOVED}")
        return self._boxes[at][1]


_NUMBERED = re.compile(f"{WITHHELD[:-1]} ([0-9]{{1,9}})⟩")
_MOVED = "an encrypted value stays where it stood, or is written anew: elsewhere nobody could read it"


def stand_in(box: Box, words: str) -> bytes:
    """What stands in the place of a value."""
    return _encode(words) if box.gap == "text" else b"null"


def box_in(raw: bytes) -> Box | None:
    """The box that some JSON is; None where it is none."""
    try:
        return _box.decode(raw)
    except msgspec.MsgspecError:
        return None


def replaced(raw: bytes, path: str, put: Callable[[str, Box], bytes]) -> bytes:
    """JSON with something in place of each box."""
    raw = raw.strip()
    if raw[:1] == b"[":
        return _encode([_inner(item, f"{path}{number}", put) for number, item in enumerate(_array.decode(raw))])
    if raw[:1] != b"{":
        return raw
    held = _object.decode(raw)
    for name, value in held.items():
        held[name] = _inner(value, f"{path}{name}", put)
    return _encode(held)


def _inner(raw: msgspec.Raw, path: str, put: Callable[[str, Box], bytes]) -> msgspec.Raw:
    value = bytes(raw)
    if MARK not in value:
        return raw
    if value[:1] == b"{" and (box := box_in(value)) is not None:
        return msgspec.Raw(put(path, box))
    return msgspec.Raw(replaced(value, f"{path}.", put))
