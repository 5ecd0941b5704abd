"""Frames as AMQP messages, and back. Pure: properties and headers.

CloudEvents attributes travel as the AMQP binding has them: `cloudEvents:` headers with plain text, where HTTP headers
(and so frames) have `ce-` names and percent signs. The content type is a property.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, unquote
from zlib import crc32

from pamqp.commands import Basic
from pamqp.common import FieldTable
from pamqp.header import ContentHeader

from posthouse.broker import Frame
from posthouse.brokers.handing import moment

KEY, ID, AT = "posthouse-key", "posthouse-id", "posthouse-at"
DEFECT = "posthouse-defect"
"""The one header of a message whose own ones cannot be read."""
CONTENT_TYPE = "content-type"
BITS = 6
"""Of a key's hash, one word each in the routing key. A lane is bound to the first few: publishers need not know how many."""
SHORT = 255
"""The most bytes of a property."""
NAME = 128 - len("cloudEvents:")
"""The most bytes of a header's name."""
AROUND = 8
"""Bytes of a piece of AMQP around what it carries."""
_SAFE = "".join(map(chr, range(0x21, 0x7F))).replace('"', "").replace("%", "")
_PREFIXES = ("cloudEvents:", "cloudEvents_")
_OURS = {KEY, ID, AT, DEFECT}
_SERVERS = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count")
_routes = [".".join(f"{number:0{BITS}b}"[::-1]) for number in range(1 << BITS)]
FOREIGN_ROUTE = ""
"""The routing key of publishers that know nothing of lanes."""


def route_of(frame: Frame) -> str:
    """All frames of a key share a route; those without one spread out."""
    return _routes[crc32((frame.id if frame.key is None else frame.key).encode()) % (1 << BITS)]


def pattern_of(lane: int, lanes: int) -> str:
    """What a lane is bound to; `lanes` is a power of two."""
    bits: int = lanes.bit_length() - 1
    return ".".join([*_routes[lane].split(".")[:bits], "#"])


def properties_of(frame: Frame, at: float) -> Basic.Properties:
    """Persistent; `at` is when it was said."""
    headers: FieldTable = {AT: int(at * 1e6)}
    content_type = None
    for name, value in frame.headers.items():
        if name == CONTENT_TYPE and 0 < len(value.encode()) <= SHORT:
            content_type = value
        elif name.startswith("ce-"):
            headers[_wire_name(name)] = _plain(value)
        else:
            headers[name] = value
    if frame.key is not None:
        headers[KEY] = frame.key
    short = len(frame.id.encode()) <= SHORT
    if not short:
        headers[ID] = frame.id
    return Basic.Properties(
        content_type=content_type,
        headers=headers,
        delivery_mode=2,
        message_id=frame.id if short else None,
        timestamp=datetime.fromtimestamp(int(at), UTC),
    )


def misfit(frame: Frame) -> str:
    """What an AMQP header cannot carry as it is, in words; empty when all is well."""
    for name, value in frame.headers.items():
        if not _is_name(name):
            return f"{name!r} cannot be the name of a header here"
        if name.startswith("ce-") and _quoted(_plain(value)) != value:
            return f"the header {name!r} is not written as CloudEvents headers are: {value!r:.80}"
    return ""


def too_long(frame: Frame, at: float, most: int) -> str:
    """Why the headers, which travel in one piece of at most so many bytes, never will; empty when they will. They are
    measured where they may be too long: no character takes more than four bytes."""
    texts = len(frame.id) + len(frame.key or "") + sum(len(name) + len(value) for name, value in frame.headers.items())
    if 4 * texts + 24 * len(frame.headers) + 256 <= most:
        return ""
    size = len(ContentHeader(properties=properties_of(frame, at)).marshal()) + AROUND
    return f"the headers are {size:,} bytes, the broker takes {most:,}" if size > most else ""


def frame_of(topic: str, tag: str, properties: Basic.Properties, body: bytes) -> Frame:
    """A message of ours, or of anybody: without an id of its own it gets `tag` as one. Drivers make up a message id where
    there is none, so the event's own comes first."""
    key, id_, kept = None, "", {}
    ours = AT in (properties.headers or {})
    if properties.content_type:
        kept[CONTENT_TYPE] = properties.content_type
    for name, value in (properties.headers or {}).items():
        if name == AT or name.startswith(_SERVERS):
            continue
        text = _text(value)
        if name == KEY:
            key = text
        elif name == ID:
            id_ = text
        elif name.startswith(_PREFIXES):
            known = _frame_name(name)
            kept[known] = _quoted(_moment(value) if known == "ce-time" and isinstance(value, int) else text)
        else:
            kept[name.lower()] = text
    if not ours and not id_:
        id_ = unquote(kept.get("ce-id", ""))
    return Frame(topic=topic, id=id_ or properties.message_id or tag, key=key, body=body, headers=kept)


def defect_of(properties: Basic.Properties) -> str:
    """Why they could not be read; empty when all is well."""
    return _text((properties.headers or {}).get(DEFECT, ""))


def stored_at(properties: Basic.Properties, now: float) -> float:
    """When the publisher said it; `now` where it did not write that down."""
    at = (properties.headers or {}).get(AT)
    if isinstance(at, int):
        return moment(at / 1e6)
    return now if properties.timestamp is None else moment(properties.timestamp.timestamp())


@lru_cache(maxsize=1024)
def _wire_name(name: str) -> str:
    return f"cloudEvents:{name[3:]}"


@lru_cache(maxsize=1024)
def _frame_name(name: str) -> str:
    return f"ce-{name[len(_PREFIXES[0]) :].lower()}"


@lru_cache(maxsize=1024)
def _is_name(name: str) -> bool:
    reserved = name in _OURS or name.startswith((*_SERVERS, "cloudevents:", "cloudevents_"))
    return 0 < len(name.encode()) <= NAME and not reserved


def _plain(value: str) -> str:
    return unquote(value) if "%" in value else value


def _quoted(value: str) -> str:
    return quote(value, safe=_SAFE)


def _moment(milliseconds: int) -> str:
    """A time as AMQP has it; as it is where no calendar has it."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)
