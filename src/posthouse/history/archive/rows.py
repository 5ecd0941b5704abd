"""Rows: what the archive keeps of a delivery. The frame byte for byte; beside it what its envelope says, to be asked for."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from posthouse.broker import Delivery, Frame
from posthouse.clock import day_of
from posthouse.errors import DecodeError
from posthouse.events import PLATFORM, Event, decode_any
from posthouse.events.envelope import LAST
from posthouse.redaction import storable

UNREAD = "unread"
"""The class of what has no envelope that could be read: nobody knows how long it is to be kept, so it is kept."""
NO_KEY = ""
"""Of a frame that has no key although its event has one."""
LAST_OFFSET = 2**63


class Row(NamedTuple):
    """One line of a file; the columns are called and ordered like this."""

    retention: str
    topic: str
    partition: int
    offset: int
    position: str | None
    """As the broker says it, where `partition` and `offset` do not tell it."""
    received: int
    """Microseconds since 1970, by the log."""
    id: str
    type: str
    version: int | None
    source: str
    tenant: str
    key: str | None
    sequence: int | None
    lineage: int
    time: str
    correlation: str | None
    causation: str | None
    actor_kind: str | None
    actor_id: str | None
    producer: str | None
    content_type: str | None
    schema: str | None
    idempotency_key: str | None
    traceparent: str | None
    frame_id: str | None
    """Where it is not `id`."""
    frame_key: str | None
    """Where it is not made of tenant and key."""
    defect: str | None
    headers: list[tuple[str, str]]
    body: bytes
    digest: bytes
    exact: bytes | None
    """Id, key and headers of the frame as they travelled, where the columns cannot say them."""

    @property
    def weight(self) -> int:
        """Bytes in memory, about."""
        return len(self.body) + 400 + 40 * len(self.headers)

    @property
    def day(self) -> str:
        """Of the log, as its folder is called."""
        return day_of(self.received / 1e6).isoformat()

    @property
    def place(self) -> tuple[int, int]:
        """Its place in the order of its topic."""
        return (self.partition, self.offset)


def row_of(delivery: Delivery) -> Row:
    """The row of a delivery; it never raises: what cannot be read is kept as it is."""
    frame = delivery.frame
    event: Event[bytes] | None = None
    defect = delivery.defect or None
    try:
        if defect is None:
            event = decode_any(frame.headers, frame.body)
    except (DecodeError, UnicodeError) as error:
        defect = str(error)
    partition, offset, position = place_of(delivery)
    headers, frame_key = list(frame.headers.items()), None if frame.key is None else storable(frame.key)
    if not "".join(frame.headers.values()).isascii():
        headers = [(storable(name), storable(value)) for name, value in headers]
    if event is None:
        event = Event(id=storable(frame.id), type="", source="", data=b"", time="", tenant=PLATFORM)
    actor, said = event.actor, event.type.rpartition(".v")[2]
    return Row(
        UNREAD if defect is not None else event.metadata.retention,
        frame.topic,
        partition,
        offset,
        position,
        round(moment_of(delivery) * 1e6),
        event.id,
        event.type,
        int(said) if said.isdecimal() and len(said) < 9 else None,
        event.source,
        event.tenant,
        event.key,
        event.sequence,
        event.lineage,
        event.time,
        event.correlation,
        event.causation,
        None if actor is None else actor.kind,
        None if actor is None else actor.id,
        None if event.producer is None else event.producer.service,
        event.content_type,
        event.schema,
        event.idempotency_key,
        event.traceparent,
        None if frame.id == event.id else storable(frame.id),
        None if frame_key == event.ordering_key else NO_KEY if frame_key is None else frame_key,
        None if defect is None else storable(defect),
        headers,
        frame.body,
        digest_of(frame.topic, event.tenant, event.id if defect is None else frame.id, frame.body),
        exact_of(frame, headers, frame_key),
    )


def exact_of(frame: Frame, headers: Sequence[tuple[str, str]], key: str | None) -> bytes | None:
    """What the columns would rewrite, or could not tell from nothing; None where they say it all."""
    plain = frame.id == storable(frame.id) and frame.key == key and key != NO_KEY
    if plain and headers == list(frame.headers.items()):
        return None
    said = (_raw(frame.id), None if frame.key is None else _raw(frame.key))
    return msgspec.msgpack.encode((*said, [(_raw(name), _raw(value)) for name, value in frame.headers.items()]))


def travelled(exact: bytes) -> tuple[str, str | None, dict[str, str]]:
    """Id, key and headers of a frame, out of `exact_of`."""
    id, key, headers = msgspec.msgpack.decode(exact, type=tuple[bytes, bytes | None, list[tuple[bytes, bytes]]])
    return _text(id), None if key is None else _text(key), {_text(name): _text(value) for name, value in headers}


def _raw(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogatepass")


def digest_of(topic: str, tenant: str, id: str, body: bytes) -> bytes:
    """What tells events apart: another tenant's event of the same id, and the same id around another body, are others."""
    found = hashlib.blake2b(
        f"{len(topic)} {len(tenant)} {len(id)} {topic}{tenant}{id}".encode(errors="surrogatepass"), digest_size=16
    )
    found.update(body)
    return found.digest()


def place_of(delivery: Delivery) -> tuple[int, int, str | None]:
    """Partition and offset of a position, and its own words where these do not tell it."""
    position = delivery.position
    if isinstance(position, int):
        if 0 <= position < LAST_OFFSET:
            return 0, position, None
    else:
        partition, _, offset = position.partition(":")
        if partition.isdecimal() and offset.isdecimal() and position == f"{int(partition)}:{int(offset)}":
            return int(partition), int(offset), position if partition == "0" else None
    return 0, round(moment_of(delivery) * 1e6), str(position)


def moment_of(delivery: Delivery) -> float:
    """When the log took it, in seconds since 1970; the first moment that there is for what is none."""
    at = delivery.stored_at
    return min(max(at, 0.0), LAST) if math.isfinite(at) else 0.0
