"""Frames as Pub/Sub messages and back. Pure."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping

from google.pubsub_v1.types import PubsubMessage

from posthouse.broker import Frame

ID = "posthouse-id"
WHOLE_KEY = "posthouse-key"
"""Has the key where it is too long for an ordering key, which is its digest then."""
MOST = 100
"""Attributes that a message may have, the id among them."""
NAME, VALUE, KEY = 256, 1024, 1024
"""The largest name and value of an attribute, and the largest ordering key, in bytes. A key of ours, `tenant:key`, may have
1,281."""

EVENT_ID = "eventId"
SPELT = {
    "eventtype": "eventType", "eventversion": "eventVersion", "tenantid": "tenantId", "idempotencykey": "idempotencyKey",
}  # fmt: skip
"""How headers that tell what readers route by are spelt as attributes; with them goes the event's id."""

Message = PubsubMessage.pb()
"""The bare protobuf class: its wrapper costs more than the call."""


def misfit(frame: Frame) -> str:
    """Why Pub/Sub can never take the frame; "" when it can. Its text is known to be Unicode."""
    if frame.key == "":
        return "the key is empty, which Pub/Sub does not take as an ordering key"
    if not frame.id or len(frame.id.encode()) > VALUE:
        return f"the id is empty or longer than {VALUE:,} bytes, which Pub/Sub does not take as an attribute"
    for name in frame.headers:
        if (
            not name
            or len(name.encode()) > NAME - 4
            or name.startswith("goog")
            or name in (ID, WHOLE_KEY)
            or "~" in name
        ):
            return f"the header name {name[:40]!r} is taken, empty, too long or has a ~ in it"
    attributes = len(_attributes(frame))
    return f"headers for {attributes} attributes: Pub/Sub takes {MOST}, the id among them" if attributes > MOST else ""


def message_of(frame: Frame) -> PubsubMessage:
    """Headers are attributes under their own names, which is the CloudEvents binding; the key is the ordering key. The
    rest of a value that is too long for one attribute is in `name~1`, `name~2` …"""
    key = frame.key or ""
    ordering_key = hashlib.sha256(key.encode()).hexdigest() if _is_long(key) else key
    message: PubsubMessage = Message(data=frame.body, attributes=_attributes(frame), ordering_key=ordering_key)
    return message


def frame_of(topic: str, message: PubsubMessage) -> Frame:
    return frame_from(
        topic,
        message.data,
        attributes=message.attributes,
        ordering_key=message.ordering_key,
        message_id=message.message_id,
    )


def frame_from(topic: str, data: bytes, *, attributes: Mapping[str, str], ordering_key: str, message_id: str) -> Frame:
    """A message of somebody else has no id of ours: its `ce-id`, or the id that Pub/Sub gave it."""
    headers = {name.lower(): value for name, value in attributes.items()}
    for name in [name for name in headers if name.endswith("~1") and name[:-2] in headers]:
        for number in itertools.count(1):
            piece = headers.pop(f"{name[:-2]}~{number}", None)
            if piece is None:
                break
            headers[name[:-2]] += piece
    if headers.get(ID) == headers.get(EVENT_ID.lower()) and "eventtype" in headers:  # said twice, by us
        headers.pop(EVENT_ID.lower())
    id_ = headers.pop(ID, None) or headers.get("ce-id") or message_id
    key = headers.pop(WHOLE_KEY, None) or ordering_key or None
    return Frame(topic=topic, id=id_, key=key, body=data, headers=headers)


def _attributes(frame: Frame) -> dict[str, str]:
    attributes = {ID: frame.id, EVENT_ID: frame.id} if "eventtype" in frame.headers else {ID: frame.id}
    long = {WHOLE_KEY: frame.key} if frame.key is not None and _is_long(frame.key) else {}
    for said, value in (*frame.headers.items(), *long.items()):
        name = SPELT.get(said, said)
        if len(value) <= VALUE // 4:  # no character takes more than four bytes
            attributes[name] = value
            continue
        for number, piece in enumerate(_pieces(value.encode())):
            attributes[f"{name}~{number}" if number else name] = piece
    return attributes


def _is_long(key: str) -> bool:
    return len(key) > KEY // 4 and len(key.encode()) > KEY


def _pieces(value: bytes) -> Iterator[str]:
    """At most VALUE bytes each, cut between characters."""
    first = 0
    while first < len(value):
        last = min(first + VALUE, len(value))
        while last < len(value) and value[last] & 0xC0 == 0x80:
            last -= 1
        yield value[first:last].decode()
        first = last
