"""Frames as entries of a Redis stream, and back. Pure: names, fields and ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from zlib import crc32

from posthouse.broker import Frame
from posthouse.errors import BrokerError

ID, KEY, BODY = b"id", b"key", b"body"
RESERVED = {name.decode() for name in (ID, KEY, BODY)}
HEADERS = 1000
"""The most headers: a script can pass so many fields on, and not many more."""
Entry = tuple[bytes, Sequence[bytes] | None]
"""An id, and names and values in turn; None when somebody deleted it."""
LAST_SEQUENCE = 2**64 - 1


def lanes_of(topic: str, partitions: int) -> list[str]:
    """The keys of a topic's streams: one for each partition, and the topic itself for publishers that know nothing of
    partitions."""
    return [*(f"{topic}:{partition}" for partition in range(partitions)), topic]


def lane_number(frame: Frame, partitions: int) -> int:
    """All frames of a key share a lane; those without one spread out."""
    return crc32((frame.id if frame.key is None else frame.key).encode()) % partitions


def fields_of(frame: Frame) -> list[str | bytes]:
    """Names and values in turn; each header is a field of its own."""
    fields: list[str | bytes] = ["id", frame.id]
    if frame.key is not None:
        fields += ("key", frame.key)
    for header in frame.headers.items():
        fields += header
    fields += ("body", frame.body)
    return fields


def misfit(frame: Frame) -> str:
    """What an entry cannot carry as it is, in words; empty when all is well."""
    if not RESERVED.isdisjoint(frame.headers):
        return f"{', '.join(sorted(RESERVED & frame.headers.keys()))} cannot be the name of a header here"
    if len(frame.headers) > HEADERS:
        return f"the frame has {len(frame.headers):,} headers, the broker takes {HEADERS:,}"
    return ""


def frame_of(topic: str, entry: bytes, fields: Sequence[bytes]) -> Frame:
    """An entry of ours, or of anybody: without an id of its own it gets its place as one."""
    id_, key, body = "", None, b""
    headers: dict[str, str] = {}
    for at in range(0, len(fields), 2):
        name, value = fields[at], fields[at + 1]
        if name == BODY:
            body = value
        elif name == ID:
            id_ = value.decode(errors="replace")
        elif name == KEY:
            key = value.decode(errors="replace")
        else:
            headers[_name(name)] = value.decode(errors="replace")
    id_ = id_ or headers.get("ce-id") or f"{topic}:{entry.decode()}"
    return Frame(topic=topic, id=id_, key=key, body=body, headers=headers)


@lru_cache(maxsize=1024)
def _name(name: bytes) -> str:
    return name.decode(errors="replace").lower()


# Ids of entries: milliseconds of the server's clock, and a number within them


Place = tuple[int, int]


def place_of(entry: bytes | str) -> Place:
    """An id as something that can be compared."""
    milliseconds, _, sequence = (entry.decode() if isinstance(entry, bytes) else entry).partition("-")
    return int(milliseconds), int(sequence or 0)


def entry_at(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def before(place: Place) -> Place:
    """The last id that is older: a group that stands there gets this one next."""
    milliseconds, sequence = place
    if sequence > 0:
        return milliseconds, sequence - 1
    return (milliseconds - 1, LAST_SEQUENCE) if milliseconds > 0 else (0, 0)


def stored_at(entry: bytes) -> float:
    """When the server took it, in seconds since 1970."""
    return int(entry[: entry.index(b"-")]) / 1000


def sought(position: int | str | None, time: float | None) -> Place:
    """The first id that a seek may give. The server tells the time in whole milliseconds, as `stored_at` does."""
    if (position is None) == (time is None):
        raise BrokerError("seek takes either a position or a time")
    if time is not None:
        return max(0, -(-round(time * 1e6) // 1000)), 0
    try:
        place = place_of(str(position))
        if min(place) < 0:
            raise ValueError
        return place
    except ValueError:
        raise BrokerError(
            f"position {position!r} is not one of this log: it takes the id of an entry, such as 1731650000000-0"
        ) from None
