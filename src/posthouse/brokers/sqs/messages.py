"""Frames as SNS entries, SQS messages as frames, and what things are called on AWS. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

from posthouse.broker import Frame
from posthouse.events.limits import UNREADABLE

ATTRIBUTE = "posthouse"
"""The one attribute that we add: SQS takes ten, and a frame may have more headers."""
ENTRY_OVERHEAD = 64
"""Bytes of a message that are neither body nor value: the attribute's name and type."""
LONGEST_QUEUE = 75
LONGEST_TOPIC = 200
LONGEST_TAG = 256
_name = re.compile(r"[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*")
_token = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_odd = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What a message cannot hold as it is: XML's characters are allowed, and a carriage return may be changed on the way."""


class Slip(msgspec.Struct, frozen=True, omit_defaults=True):
    """The attribute of ours, as JSON. `body` says what was done to the body: nothing, base64, or that it is empty."""

    id: str
    key: str | None = None
    headers: dict[str, str] = {}
    body: str = ""


class Value(msgspec.Struct, frozen=True):
    """A message attribute."""

    string: str | None = msgspec.field(name="StringValue", default=None)


class Message(msgspec.Struct, frozen=True):
    """What ReceiveMessage gives; `system` is what SQS itself knows about it."""

    receipt: str = msgspec.field(name="ReceiptHandle")
    body: str = msgspec.field(name="Body")
    system: dict[str, str] = msgspec.field(name="Attributes")
    attributes: dict[str, Value] = msgspec.field(name="MessageAttributes", default_factory=dict)


class Letter(NamedTuple):
    """A frame as one entry of PublishBatch, without its number, and the bytes that AWS counts."""

    entry: dict[str, object]
    size: int


def is_topic(topic: str) -> bool:
    """Whether it can be the name of a topic here: letters, digits and underscores between dots or hyphens."""
    return _name.fullmatch(topic) is not None and len(topic) <= LONGEST_TOPIC


def topic_name(topic: str) -> str:
    """Dots become hyphens. A name that has hyphens of its own gets a number, so that no two topics share one."""
    return f"{_plain(topic)}.fifo"


def queue_name(group: str, topic: str) -> str:
    """`billing__shop-orders-order.fifo`. What is too long is cut, and then has a number."""
    words, plain = f"{group}__{topic}", f"{_plain(group)}__{_plain(topic)}"
    if len(plain) <= LONGEST_QUEUE and words.count("__") == 1 and "___" not in words and is_topic(group):
        return f"{plain}.fifo"
    mark = sha256(f"{group}\n{topic}".encode()).hexdigest()[:12]
    return f"{re.sub('[^A-Za-z0-9_]', '-', words)[: LONGEST_QUEUE - 13]}-{mark}.fifo"


def tagged(group: str) -> str:
    """A group's name as a tag's value, which takes few signs; empty where it is too long, and then nobody finds it by its tag."""
    value = quote(group, safe=" +.:/@").replace("~", "%7E").replace("%", "=")
    return value if len(value) <= LONGEST_TAG else ""


def untagged(value: str) -> str:
    return unquote(value.replace("=", "%"))


def token(text: str) -> str:
    """A message group or a deduplication id: the text itself where SQS allows it."""
    return text if _token.fullmatch(text) else f"sha256:{sha256(text.encode()).hexdigest()}"


def letter_of(frame: Frame) -> Letter:
    """A frame without a key is a message group of its own."""
    body, how = _text(frame.body)
    slip = msgspec.to_builtins(Slip(frame.id, frame.key, dict(frame.headers), how))
    note = json.dumps(slip, separators=(",", ":"))  # ASCII, whatever the headers hold
    entry: dict[str, object] = {
        "Message": body,
        "MessageGroupId": token(frame.id if frame.key is None else frame.key),
        "MessageDeduplicationId": token(frame.id),
        "MessageAttributes": {ATTRIBUTE: {"DataType": "String", "StringValue": note}},
    }
    return Letter(entry, len(body.encode()) + len(note) + ENTRY_OVERHEAD)


def frame_of(topic: str, message: Message) -> Frame:
    """A message of ours, or of anybody: their attributes are its headers, their message group is its key."""
    slip = _slip(message.attributes)
    if slip is None:
        headers = {name.lower(): value.string or "" for name, value in message.attributes.items()}
        id_ = headers.get("ce-id") or message.system.get("MessageDeduplicationId", "")
        key = message.system.get("MessageGroupId")
        return Frame(topic=topic, id=id_, key=key, body=message.body.encode(), headers=headers)
    return Frame(topic=topic, id=slip.id, key=slip.key, body=_bytes(message.body, slip.body), headers=slip.headers)


def _plain(name: str) -> str:
    plain = name.replace(".", "-")
    return f"{plain}-{sha256(name.encode()).hexdigest()[:12]}" if "-" in name else plain


def _text(body: bytes) -> tuple[str, str]:
    """The body as SNS takes it, which is text and never empty, and what was done to it."""
    if not body:
        return "-", "empty"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\x00"
    return (base64.b64encode(body).decode(), "base64") if _odd.search(text) else (text, "")


def _bytes(text: str, how: str) -> bytes:
    """Whoever said base64 and sent none is handed on as it is: reading events is done elsewhere."""
    if how == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            return text.encode()
    return b"" if how == "empty" else text.encode()


def _slip(attributes: Mapping[str, Value]) -> Slip | None:
    note = attributes.get(ATTRIBUTE)
    try:
        return msgspec.json.decode(note.string or "", type=Slip) if note else None
    except UNREADABLE:
        return None
