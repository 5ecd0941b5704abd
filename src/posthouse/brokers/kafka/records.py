"""Frames as Kafka records, and back, as in the CloudEvents binding for Kafka. Pure.

The frame's headers follow the binding for HTTP: `ce-` names, values percent-encoded. In Kafka the names begin with `ce_`
and the values are plain UTF-8, so both are changed on the way out and changed back on the way in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote, unquote

from confluent_kafka import Message, murmur2

from posthouse.broker import Delivery, Frame

ID = "posthouse-id"
"""The frame's id, where no `ce_id` says it."""
BATCH = 61
"""Bytes of a batch around its records."""
RECORD = 32
"""The most bytes of a record around its key, headers and body."""
HEADER = 10
"""The most bytes around a header's name and value."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PLAIN = re.compile(r"[!#$&-~]*")
_SAFE = "".join(map(chr, range(0x21, 0x7F))).replace('"', "").replace("%", "")

Headers = list[tuple[str, str | bytes | None]]


def is_topic(topic: str) -> bool:
    """Whether Kafka takes it as a name."""
    return _TOPIC.fullmatch(topic) is not None and topic not in (".", "..")


def headers_of(frame: Frame) -> Headers:
    """What is sent with the body. Raises ValueError, in words, for what would not come back as it was."""
    headers: Headers = []
    for name, value in frame.headers.items():
        if name.startswith("ce-"):
            headers.append((record_name(name), value if _PLAIN.fullmatch(value) else unquoted(name, value)))
        elif name == ID or name.startswith("ce_"):
            raise ValueError(f"{name!r} cannot be the name of a header here")
        else:
            headers.append((name, value))
    if frame.headers.get("ce-id") != frame.id:
        headers.append((ID, frame.id))
    return headers


def partition_of(key: bytes | None, id_: str, partitions: int) -> int:
    """All frames of a key share one, as with Java's clients; those without one spread out."""
    return murmur2(id_.encode() if key is None else key, partitions)


def unquoted(name: str, value: str) -> str:
    text = unquote(value)
    if quoted(text) != value:
        raise ValueError(f"the header {name!r} is not percent-encoded as CloudEvents headers are")
    return text


def wire_size(frame: Frame) -> int:
    """The most bytes that the frame can need, as the server counts them."""
    size = BATCH + RECORD + len(frame.body) + len((frame.key or "").encode()) + len(frame.id.encode()) + len(ID)
    return size + sum(len(name) + len(value.encode()) + HEADER for name, value in frame.headers.items())


def delivery_of(message: Message, redelivered: bool, token: object) -> Delivery:
    """A record of ours, or of anybody: without an id of its own it gets its place as one."""
    topic, place = message.topic() or "", f"{message.partition()}:{message.offset()}"
    id_, headers = "", {}
    given: Sequence[tuple[str, str | bytes | None]] = message.headers() or ()  # type: ignore[assignment]  # never a dict
    for name, value in given:
        if name == ID:
            id_ = text(value)
        else:
            name = frame_name(name)
            headers[name] = quoted(text(value)) if name.startswith("ce-") else text(value)
    if not id_:
        id_ = unquote(headers.get("ce-id", "")) or f"{topic}:{place}"
    key = message.key()
    return Delivery(
        frame=Frame(
            topic=topic,
            id=id_,
            key=None if key is None else text(key),
            body=message.value() or b"",
            headers=headers,
        ),
        position=place,
        stored_at=message.timestamp()[1] / 1000,
        redelivered=redelivered,
        token=token,
    )


@lru_cache(maxsize=1024)
def record_name(name: str) -> str:
    return f"ce_{name[3:]}"


@lru_cache(maxsize=1024)
def frame_name(name: str) -> str:
    lower = name.lower()
    return f"ce-{lower[3:]}" if lower.startswith("ce_") else lower


def text(value: str | bytes | None) -> str:
    """Of a header or a key; bytes that are no UTF-8 are written as escapes."""
    return value if isinstance(value, str) else (value or b"").decode(errors="backslashreplace")


def quoted(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else quote(value, safe=_SAFE)


def place_of(position: int | str | None) -> tuple[int, int]:
    """`3:120` is offset 120 of partition 3. Raises ValueError."""
    partition, offset = str(position).split(":")
    return int(partition), int(offset)


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted numbers as (first, last) of each run."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
