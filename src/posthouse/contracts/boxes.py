"""Boxes: how a value travels that is encrypted, and what stands for one that may not be seen. Nothing here has a key.

    {"$secret": 1, "of": "guest-17", "kind": "contact", "gap": "text", "box": "base64"}

Version 0, without a box, stands for a value that is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeGuard

import msgspec

MARK = b'"$secret"'

WITHHELD = "⟨withheld⟩"
"""What a handler sees in place of a text that its service may not read; in place of anything else None."""
ERASED = "⟨erased⟩"
"""What everybody sees in place of the text about a person who was erased; in place of anything else None."""
SEALED = "⟨sealed "
"""How a text begins that stands for a secret and carries it on, still encrypted: what a saga sees."""

Gap = Literal["text", "null"]


class Box(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret value as it travels. `gap` tells what may stand in its place."""

    version: Literal[0, 1] = msgspec.field(name="$secret")
    of: str
    kind: str = ""
    gap: Gap = "text"
    box: str = ""


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
