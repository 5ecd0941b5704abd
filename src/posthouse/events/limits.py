"""What an event may be, in one place: how long its texts are, how large its numbers, and what its JSON looks like.

No text or number may be wider than the narrowest column or index of any store: what is let in can be kept. `docs/events.md`
has the same figures as a table, and a test fills every index of the stores with the longest of each.

Everything that is read passes `guard` first. Most events prove themselves harmless at the price of one parse: a typed decoder lets through only eight levels and
64-bit integers, and when the value, written out again, gives the same bytes, then no member was swallowed as a
duplicate, no number was bent and no text was malformed. Whatever does not prove itself is walked with every rule.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import accumulate
from typing import Annotated, Any, NoReturn

import msgspec

from posthouse.errors import DecodeError

KIB = 1024
PUBLISH_LIMIT = 256 * KIB
"""Bytes of one event, headers and body, that may be published unless configured otherwise."""
HARD_LIMIT = 8 * KIB * KIB
"""Bytes of one body that are ever looked at."""
MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_INTEGER = 2**63 - 1
MAX_SEQUENCE = 2**63 - 2
"""The number after it is asked for, and must fit in 64 bits too."""
MAX_LINEAGE = 2**31 - 1

MAX_BYTES: Mapping[str, int] = {
    "id": 256,
    "type": 256,
    "source": 1024,
    "tenant": 256,
    "key": 1024,
    "idempotency_key": 512,
    "correlation": 256,
    "causation": 256,
    "actor": 256,
    "dualof": 256,
    "timer": 1024,
    "region": 256,
    "person": 256,
}
"""The longest text of each field, in bytes of UTF-8. An index of PostgreSQL takes 2,704 bytes in a row, and that of held events
has tenant, consumer, topic, key and id together. Actor counts for its kind and for its id, each."""
SURE = min(MAX_BYTES.values())
"""ASCII text of so many characters keeps every limit."""
SHORT = SURE // 4
"""A text of so many characters keeps every limit, whatever they are."""

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What msgspec raises for bytes that it cannot read: some are no UTF-8, some nested without end."""

_BOM = b"\xef\xbb\xbf"
_WHITESPACE = b" \t\r\n"
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\x00\x00")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ODD_NUMBER = re.compile(rb"[0-9](?:[0-9]{18}|[eE])")
"""Without a match every number is finite and every integer fits."""
_FEW_NODES = 2 * MAX_NODES
"""A body shorter than this cannot hold too many nodes: each takes a byte and a separator."""


def _shallow(levels: int) -> Any:
    """The type of JSON values at most `levels` deep, with integers in range. Its size doubles with each level."""
    scalar: Any = str | Annotated[int, msgspec.Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)] | float | bool | None
    value: Any = scalar
    for _ in range(levels):
        value = scalar | list.__class_getitem__(value) | dict.__class_getitem__((str, value))
    return value


def wrong_text(texts: Iterable[tuple[str, object]]) -> str | None:
    """What is wrong with the first text that no reader or no store would take; None when all are fine, or None themselves.
    Whoever publishes and whoever reads asks the same."""
    for field, text in texts:
        if text is None or is_sound(text):
            continue
        if not isinstance(text, str):
            return f"{field}={text!r:.60} is {type(text).__name__}, not a text: write {field}={_as_text(text)}"
        if len(text) > SHORT and (size := len(text.encode(errors="replace"))) > MAX_BYTES.get(field, PUBLISH_LIMIT):
            return f"{field} has {size:,} bytes, the longest has {MAX_BYTES.get(field, PUBLISH_LIMIT):,}"
        if "\x00" in text:
            return f"{field} holds a NUL character, which databases and readers refuse"
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            return f"{field} holds half a surrogate pair, which is no character"
    return None


def is_sound(text: object) -> bool:
    """Whether it is a text that nobody has anything against, as most are."""
    return type(text) is str and len(text) <= SHORT and text.isascii() and text.isprintable()


def plain(text: str) -> str:
    """A text without what a subclass made of it: a member of an Enum of texts is what it says, not what it is called."""
    return text if type(text) is str else str.__str__(text)


def _as_text(value: object) -> str:
    if isinstance(value, bytes):
        return f"{value.decode(errors='replace')!r:.60}"
    return "'…'" if isinstance(value, type | Iterable) else f"{str(value)!r:.60}"


@cache
def _shallow_decoder() -> msgspec.json.Decoder[Any]:
    """Made when the first event is read: it takes as long as a dozen modules."""
    return msgspec.json.Decoder(_shallow(8))


_encode = msgspec.json.Encoder().encode


def guard(body: bytes, limit: int = HARD_LIMIT) -> Any:
    """The value of a JSON text that keeps every limit; DecodeError with one of these reasons otherwise.

    `too_large`, `bom`, `utf8`, `nodes`, `depth`, `nul`, `surrogate`, `duplicate_key`, `number` (not finite),
    `integer` (beyond 64 bits) and `json` (malformed).
    """
    if len(body) > limit:
        raise DecodeError("too_large", f"{len(body):,} bytes, at most {limit:,} are read")
    if len(body) < _FEW_NODES:
        try:
            value = _shallow_decoder().decode(body)
        except UNREADABLE:
            return _walk(body)
        if _is_same_text(body, _encode(value)):
            return value
    return _walk(body)


def _is_same_text(body: bytes, again: bytes) -> bool:
    if again != body and again.translate(None, _WHITESPACE) != body.translate(None, _WHITESPACE):
        return False
    return b"\\" not in body or b"\\u0000" not in body


def _walk(body: bytes) -> Any:
    text = _text(body)
    _check_shape(body)
    if b"\\u" in body:
        _check_escapes(body)
    decoder = _WATCHING_NUMBERS if _ODD_NUMBER.search(body) else _WATCHING_NAMES
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        raise DecodeError("json", str(error)) from None


def _text(body: bytes) -> str:
    if body.startswith(_BOM):
        raise DecodeError("bom", "the text begins with a byte order mark")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("utf8", f"{error.reason} at byte {error.start}") from None
    if "\x00" in text:
        raise DecodeError("nul", f"a NUL character at {text.index(chr(0))}")
    return text


def _check_shape(body: bytes) -> None:
    """Count nodes and levels without parsing: drop the strings, then look at commas and brackets."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    if plain.count(b'"') > 4 * MAX_NODES:
        raise DecodeError("nodes", f"more than {MAX_NODES:,} values")
    bare = b"0".join(plain.split(b'"')[::2])
    commas, opened = bare.count(b","), bare.count(b"[") + bare.count(b"{")
    if max(commas + 1, opened) > MAX_NODES or commas + opened >= MAX_NODES + _count_empty(bare):
        raise DecodeError("nodes", f"more than {MAX_NODES:,} values")
    steps = bare.translate(_STEPS, _NOT_BRACKETS)[: 2 * MAX_NODES]
    if any(map(MAX_DEPTH.__lt__, accumulate(map((-1, 1).__getitem__, steps)))):
        raise DecodeError("depth", f"nested more than {MAX_DEPTH} levels deep")


def _count_empty(bare: bytes) -> int:
    tight = bare.translate(None, _WHITESPACE)
    return tight.count(b"[]") + tight.count(b"{}")


def _check_escapes(body: bytes) -> None:
    escapes = body.replace(b"\\\\", b"__")
    if b"\\u0000" in escapes:
        raise DecodeError("nul", "an escaped NUL character")
    lone = _SURROGATE.search(_PAIR.sub(b"", escapes))
    if lone:
        raise DecodeError("surrogate", f"{lone[0].decode()} without its other half")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise DecodeError("duplicate_key", f"{name[:100]!r} is given more than once")
            seen.add(name)
    return value


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= 20 else MAX_INTEGER + 1
    if not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise DecodeError("integer", f"{digits[:40]} does not fit in 64 bits; send it as text")
    return value


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise DecodeError("number", f"{digits[:40]} is not finite")
    return value


def _constant(name: str) -> NoReturn:
    raise DecodeError("number", f"{name} is not finite")


_WATCHING_NAMES = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_WATCHING_NUMBERS = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_finite, parse_constant=_constant
)
