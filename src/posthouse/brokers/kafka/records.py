"""Frames as Kafka records, and back, as in the CloudEvents binding for Kafka. Pure.

The frame's headers follow the binding for HTTP: `ce-` names, values percent-encoded. In Kafka the names begin with `ce_`
and the values are plain UTF-8, so both are changed on the way out and changed back on the way in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple
from urllib.parse import quote, unquote

from confluent_kafka import Message, murmur2

from posthouse.broker import Delivery, Frame
from posthouse.brokers.handing import handed

ID = "posthouse-id"
"""The frame's id, where no `ce_id` says it."""
DEFECT = "posthouse-defect"
"""In the place of headers that the driver cannot read."""
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


class Letter(NamedTuple):
    """What is sent for a frame beside its body. All frames of a key share a partition, the same as with Java's clients; those
    without a key spread out. `size` is that of the frame: headers and body."""

    headers: Headers
    key: bytes | None
    partition: int
    size: int


def is_topic(topic: str) -> bool:
    """Whether Kafka takes it as a name."""
    return _TOPIC.fullmatch(topic) is not None and topic not in (".", "..")


def letter_of(frame: Frame, partitions: int) -> Letter:
    """What is sent for a frame. Raises ValueError, in words, for what would not come back as it was."""
    headers: Headers = []
    size, said = len(frame.body), ""
    try:
        for name, value in frame.headers.items():
            if name.startswith(("ce-", "ce_")) or name in (ID, DEFECT):
                name, value = special(name, value)
                said = value if name == "ce_id" else said
            encoded = value.encode()
            size += len(name.encode()) + len(encoded)
            headers.append((name, encoded))
        id_, key = frame.id.encode(), None if frame.key is None else frame.key.encode()
    except UnicodeEncodeError:
        raise ValueError("the id, the key or a header is not valid Unicode text") from None
    if said != frame.id or not said:
        headers.append((ID, id_))
    return Letter(headers, key, murmur2(id_ if key is None else key, partitions), size)


def special(name: str, value: str) -> tuple[str, str]:
    """A CloudEvents header as Kafka's binding has it."""
    if not name.startswith("ce-"):
        raise ValueError(f"{name!r} cannot be the name of a header here")
    if _PLAIN.fullmatch(value):
        return record_name(name), value
    plain = unquote(value)
    if quoted(plain) != value:
        raise ValueError(f"the header {name!r} is not percent-encoded as CloudEvents headers are")
    return record_name(name), plain


def wire_size(letter: Letter) -> int:
    """The most bytes that it can need, as the server counts them."""
    ours = len(ID) + sum(len(value or b"") for name, value in letter.headers if name == ID)
    return BATCH + RECORD + letter.size + len(letter.key or b"") + ours + HEADER * len(letter.headers)


def delivery_of(message: Message, redelivered: bool, token: object) -> Delivery:
    """A record of ours, or of anybody: without an id of its own it gets its place as one."""
    topic, place = message.topic() or "", f"{message.partition()}:{message.offset()}"
    given = headers_of(message)
    return handed(
        partial(frame_of, topic, place, message, given),
        topic=topic,
        body=message.value(),
        position=place,
        stored_at=message.timestamp()[1] / 1000,
        redelivered=redelivered,
        token=token,
        defect=next((text(value) for name, value in given if name == DEFECT), ""),
    )


def headers_of(message: Message) -> Sequence[tuple[str, str | bytes | None]]:
    """For a name that is no UTF-8 the driver returns a list with a null pointer in it and an error that is set, keeps that list,
    and gives it out when it is asked again, which ends the process. A warm interpreter asks a method without a look at such an
    error, which is then raised by whatever is called next; a partial always looks, so it is raised here as SystemError. The
    list is replaced at once by what is to be known of it."""
    try:
        return partial(message.headers)() or ()  # type: ignore[return-value]  # never a dict
    except (SystemError, UnicodeError):
        message.set_headers([(DEFECT, b"the name of a header is no UTF-8")])
        return message.headers() or ()  # type: ignore[return-value]


def frame_of(topic: str, place: str, message: Message, given: Sequence[tuple[str, str | bytes | None]]) -> Frame:
    id_, headers = "", {}
    for name, value in given:
        if name == ID:
            id_ = text(value)
        else:
            name = frame_name(name)
            headers[name] = quoted(text(value)) if name.startswith("ce-") else text(value)
    if not id_:
        id_ = unquote(headers.get("ce-id", "")) or f"{topic}:{place}"
    key = message.key()
    return Frame(
        topic=topic,
        id=id_,
        key=None if key is None else text(key),
        body=message.value() or b"",
        headers=headers,
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
