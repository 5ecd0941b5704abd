"""What a fact is: an immutable envelope around one payload."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Generic, Literal, TypeVar, cast

import msgspec

from posthouse.errors import EventError
from posthouse.events.limits import plain

P = TypeVar("P", covariant=True)
Q = TypeVar("Q")

DEFAULT_TENANT = "default"
"""The tenant of those who have one only."""


class Unnamed(str):
    """A tenant that nobody named: whoever has several must not take it for one."""

    __slots__ = ()


UNNAMED: Final = Unnamed(DEFAULT_TENANT)
PLATFORM = "platform"
"""The tenant of facts that belong to no tenant."""

Scalar = str | int | bool
"""What a CloudEvents extension may hold."""


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who caused the fact: kind is `user`, `system`, `service` or `api_key`."""

    kind: str
    id: str

    def __post_init__(self) -> None:
        if type(self.kind) is str and type(self.id) is str:  # those of every event that is read
            return
        for field, text in (("kind", self.kind), ("id", self.id)):
            if not isinstance(text, str):
                raise EventError(f"an actor has texts: write Actor(…, {field}={str(text)!r:.60}), not {text!r:.60}")
            if type(text) is not str:
                msgspec.structs.force_setattr(self, field, plain(text))


class Producer(msgspec.Struct, frozen=True, kw_only=True):
    """Where the fact was written, for forensics; empty text where not known."""

    service: str
    instance: str = ""
    commit: str = ""
    region: str = ""


class Metadata(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What travels beside the fact and routes nothing. At most 4 KiB on the wire."""

    retention: Literal["hot", "warm", "cold"] = "hot"
    residency: str | None = None
    offline_replay: bool = False
    ai_provenance: Mapping[str, object] | None = None
    outbox_id: str | None = None


class Event(msgspec.Struct, Generic[P], frozen=True, kw_only=True, gc=False):
    """One past-tense fact. `data` is the payload: typed in handlers, raw bytes between the codecs.

    `key` names the aggregate; facts of one (topic, tenant, key) carry a gapless `sequence` that starts at 1.
    `lineage` grows when the producer's database was restored or failed over, so that a re-used number can be told
    from a duplicate. `time` is RFC 3339 text exactly as written by the producer, empty when it gave none; `occurred_at`
    parses it. With a JSON content type (None counts as one) empty `data` means that there is none; `b"null"` is a null.
    `replayed` does not travel: it tells a handler that it is given the event once more, by an operator (`posthouse replay`).
    """

    id: str
    type: str
    source: str
    data: P
    time: str
    tenant: str = PLATFORM
    key: str | None = None
    sequence: int | None = None
    lineage: int = 1
    correlation: str | None = None
    causation: str | None = None
    actor: Actor | None = None
    producer: Producer | None = None
    schema: str | None = None
    content_type: str | None = "application/json"
    idempotency_key: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    metadata: Metadata = Metadata()
    extensions: Mapping[str, Scalar] = {}
    replayed: bool = False

    def __repr__(self) -> str:
        """All that is said of it. Raw data is not shown: nobody knows here what is personal in it."""
        said = ((name, getattr(self, name)) for name in self.__struct_fields__)
        shown = (
            f"{name}=<{len(value)} bytes>" if name == "data" and isinstance(value, bytes) else f"{name}={value!r}"
            for name, value in said
        )
        return f"Event({', '.join(shown)})"

    @property
    def occurred_at(self) -> datetime:
        """When the fact became true, by the producer's clock; the start of 1970 when it gave no time."""
        return moment(self.time) if self.time else EPOCH

    @property
    def ordering_key(self) -> str | None:
        """`tenant:key`, or None for facts without order."""
        return None if self.key is None else f"{self.tenant}:{self.key}"

    def with_data(self, data: Q) -> Event[Q]:
        """The same fact around another form of its payload."""
        return cast("Event[Q]", msgspec.structs.replace(self, data=data))


def moment(text: str) -> datetime:
    """RFC 3339 text as a time with its zone; ValueError for any other text. A leap second is the second after it."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        leap = text[16:19] == ":60"
        when = datetime.fromisoformat((text[:17] + "59" + text[19:] if leap else text).upper())
        if leap and when.year < 9999:
            when += timedelta(seconds=1)
    if when.tzinfo is None or text[4] != "-" or text[7] != "-" or text[13] != ":" or text[16] != ":":
        raise ValueError(f"{text!r} is not RFC 3339 with a time zone")
    return when


FIRST, LAST = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 to 9999 in seconds since 1970."""


def timestamp(seconds: float) -> str:
    """Seconds since 1970 as RFC 3339 text in UTC; the first or the last moment that it can say, for what is beyond."""
    if not FIRST <= seconds < LAST:
        return "0001-01-01T00:00:00.000000Z" if seconds < FIRST else "9999-12-31T23:59:59.999999Z"
    whole, microseconds = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_second(whole)}.{microseconds:06d}Z"


@lru_cache(maxsize=8)
def _second(whole: int) -> str:
    """Many facts happen in one second."""
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
