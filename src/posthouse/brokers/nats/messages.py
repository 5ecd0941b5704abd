"""Frames as NATS messages, and back. Pure: names, subjects and headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote
from zlib import crc32

from posthouse.broker import Frame

MSG_ID = "Nats-Msg-Id"
KEY = "Posthouse-Key"
NAME = re.compile(r"[!-9;-~]+")
"""What may be a header's name: printable, without a colon."""
_plain = re.compile(r"[A-Za-z0-9_-]+")
_words = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")


class Place(NamedTuple):
    """Where a message is: `sequence` in its stream, `number` of those that one reader got, `at` in seconds."""

    sequence: int
    number: int
    at: float


def is_topic(topic: str) -> bool:
    """Whether it can be a subject: words between dots, no blanks and no wildcards."""
    return _words.fullmatch(topic) is not None and "/" not in topic and "\\" not in topic


def stream_of(topic: str) -> str:
    """The name of a topic's stream: dots cannot be in one."""
    return topic.replace(".", "_")


def subjects_of(topic: str, partitions: int) -> list[str]:
    """One for each partition, and the topic itself for publishers that know nothing of partitions."""
    return [*(f"{topic}.{partition}" for partition in range(partitions)), topic]


def subject_of(frame: Frame, partitions: int) -> str:
    """All frames of a key share a partition; those without one spread out."""
    return f"{frame.topic}.{crc32((frame.id if frame.key is None else frame.key).encode()) % partitions}"


def word(text: str) -> str:
    """Any text as one word of a subject, and no two texts as the same."""
    if _plain.fullmatch(text):
        return text
    return "".join(c if _plain.fullmatch(c) else "".join(f"={byte:02X}" for byte in c.encode()) for c in text)


def text_of(word: str) -> str:
    """The text that a word was made from."""
    return unquote(word.replace("=", "%"))


def headers_of(frame: Frame) -> dict[str, str]:
    """The id is remembered per stream, so the destination is part of it: one event may go to two topics."""
    headers = {**frame.headers, MSG_ID: f"{line(frame.id)}:{frame.topic}"}
    if frame.key is not None:
        headers[KEY] = line(frame.key)
    return headers


def line(text: str) -> str:
    """Any text as one header line."""
    return text if text.isascii() and text.isprintable() and " " not in text and "%" not in text else quote(text)


def misfit(frame: Frame) -> str:
    """What a NATS header cannot carry as it is, in words; empty when all is well."""
    for name, value in frame.headers.items():
        if not is_name(name):
            return f"{name!r} cannot be the name of a header here"
        if value != value.strip() or "\r" in value or "\n" in value:
            return f"the header {name!r} has a line break, or a blank at one end"
    return ""


@lru_cache(maxsize=1024)
def is_name(name: str) -> bool:
    """Whether a header may be called so: not as the server's or ours are."""
    return NAME.fullmatch(name) is not None and not name.lower().startswith(("nats-", KEY.lower()))


def wire_size(headers: Mapping[str, str], body: bytes) -> int:
    """The bytes that the server counts: headers with their punctuation, and the body."""
    return 12 + len(body) + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())


def frame_of(topic: str, sequence: int, headers: Mapping[str, str] | None, body: bytes) -> Frame:
    """A message of ours, or of anybody: without an id of its own it gets its place as one."""
    id_, key, kept = "", None, {}
    for name, value in (headers or {}).items():
        if name == MSG_ID:
            id_ = unquote(value.removesuffix(f":{topic}"))
        elif name == KEY:
            key = unquote(value)
        elif not name.startswith("Nats-"):
            kept[name.lower()] = value
    return Frame(topic=topic, id=id_ or kept.get("ce-id") or f"{topic}:{sequence}", key=key, body=body, headers=kept)


def place_of(reply: str) -> Place:
    """From the subject that an acknowledgement would go to; newer servers put domain and account into it."""
    words = reply.split(".")
    first = 5 if len(words) == 9 else 7
    return Place(int(words[first]), int(words[first + 1]), int(words[first + 2]) / 1e9)


def moment(text: str) -> float:
    """A time as the server writes it, with up to nine digits of a second."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
