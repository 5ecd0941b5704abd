"""The catalogue as one value: everything that some services declare, ready to be shown, frozen, compared and exported."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Literal

import msgspec

from posthouse.clock import lasting
from posthouse.contracts.terms import Idempotency, Retention, SchemaFormat
from posthouse.errors import ConfigurationError
from posthouse.events.limits import UNREADABLE

Guarantee = Literal["ordered per key", "unordered"]
"""Each event is delivered at least once and its effect is applied once per consumer; `ordered per key` adds that the
effects of one (tenant, key) are applied in commit order."""

Parallelism = Literal["one per key", "in flight"]
"""How many events of a topic one consumer applies side by side: one for each key, or whatever its `in_flight` allows."""


class EventEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one fact, as the service that owns it declares it.

    `owner` is the team, empty where nobody said; `key` the payload field that orders it, None without order;
    `schema_uri` is what stands in the envelope and ends in `hash`; `schema` is the canonical text that the hash is of.
    `deprecated` is the day from which no new consumer should start; `successor` the next version that is declared;
    `beside` the newer version with each of which it is published, None where it is said by itself.
    `envelope` is what is around its payload: `structured`, `binary`, or one that is plugged in.
    """

    subject: str
    service: str
    namespace: str | None
    aggregate: str | None
    verb: str
    version: int
    topic: str
    owner: str
    key: str | None
    retention: Retention
    residency: str | None
    content_type: str
    schema_uri: str
    hash: str
    format: SchemaFormat
    schema: str
    deprecated: date | None = None
    successor: str | None = None
    beside: str | None = None
    description: str = ""
    envelope: str = "structured"
    cross_tenant: bool = False
    """It is about several tenants, or for readers of all."""
    idempotency: Idempotency = "optional"
    """`required`: a fact without an idempotency key is refused before it is said."""
    semver: str = ""
    """`1.2.0`, of a schema that is frozen as it is here; empty where that is not known."""

    @property
    def unversioned(self) -> str:
        """The subject without its version: what a new version has in common with this one."""
        return self.subject.rpartition(".")[0]


class TopicEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One topic. `owner` is empty and `producers` too where it belongs to a service that is not listed; `ordering` are
    the payload fields that order its events; `consumers` are consumer groups."""

    name: str
    owner: str
    ordering: tuple[str, ...]
    guarantee: Guarantee
    parallelism: Parallelism
    dead_letters: str
    subjects: tuple[str, ...]
    producers: tuple[str, ...]
    consumers: tuple[str, ...]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler takes from one subject. `fields` are payload fields, dots reaching inside; None means unknown: any of
    them. `schema` is the reader's own declaration of a foreign fact, canonical text; None where it reads the owner's."""

    subject: str
    fields: tuple[str, ...] | None = None
    schema: str | None = None


class Reliability(msgspec.Struct, frozen=True, kw_only=True):
    """How a handler's failures are answered. Durations are seconds; `in_flight` bounds the events that its consumer has
    accepted and not yet applied, and is its back-pressure."""

    max_attempts: int
    first_delay: float
    last_delay: float
    deadline: float
    order: Literal["key", "none"]
    on_dead: Literal["stop", "skip"]
    in_flight: int


class HandlerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One function of one consumer group. `publishes` are the subjects that it is known to publish: from its return
    annotation, and from what was declared."""

    name: str
    service: str
    consumer: str
    reads: tuple[Reading, ...]
    publishes: tuple[str, ...]
    reliability: Reliability


class RightsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who may do what with a topic, as the rights of the Apps say that run `services`. Services, accounts of other makers and patterns
    of both; None where nobody is listed: then whoever declares a handler reads, and whoever reads may be sent back."""

    topic: str
    publish: tuple[str, ...]
    read: tuple[str, ...] | None
    replay: tuple[str, ...] | None
    services: tuple[str, ...]


class FlowEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that handlers make together, as the service that owns it declares it. `then` must follow from `starts`, `may`
    may; `subjects` are all three together."""

    name: str
    service: str
    subjects: tuple[str, ...] = ()
    starts: str = ""
    then: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    description: str = ""


MethodKind = Literal["starts", "step", "join", "on", "late", "undo", "deadline", "partial_retry", "partial_resume"]
"""starts: the first step. step: a part that may be undone. join: a step that follows the last of others. on: a reaction. late: takes what comes when all is over.
undo: compensates a step. deadline: time has passed. partial_retry: what an operator's retry runs.
partial_resume: what runs when an operator says that a part was done by hand."""


class MethodEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One method of a saga. `takes` are the subjects that lead to it, of an undo the fact that it waits for, at most
    `seconds`; those of a deadline are its own. `after` are the steps that a step or a join waits for, `undoes` names the step of an undo. The rest was read from its source: what it
    publishes, which deadlines it sets and clears, and what it may decide (`complete`, `compensate`, `partial`)."""

    name: str
    kind: MethodKind
    takes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    undoes: str = ""
    seconds: float = 0.0
    working: str = ""
    """Of a deadline by a calendar, in words: `3 working days`."""
    by: str = ""
    """The role of the people who bring a step about."""
    publishes: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    """The classes of the sagas that it starts, its children."""
    sets: tuple[str, ...] = ()
    clears: tuple[str, ...] = ()
    decides: tuple[str, ...] = ()

    @property
    def wait(self) -> str:
        """What a deadline or an undo waits for, in words."""
        return self.working or (lasting(self.seconds) if self.seconds else "a time of its own")


class SagaEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A saga. `correlate` is the field that holds its id; `methods` stand in the order of the class, by their kinds."""

    name: str
    service: str
    consumer: str
    correlate: str
    methods: tuple[MethodEntry, ...] = ()
    description: str = ""

    def of_kind(self, *kinds: MethodKind) -> tuple[MethodEntry, ...]:
        """Its methods of these kinds."""
        return tuple(method for method in self.methods if method.kind in kinds)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What some services say and hear. Every list is sorted, so that the same declarations give the same bytes."""

    services: tuple[str, ...] = ()
    events: tuple[EventEntry, ...] = ()
    topics: tuple[TopicEntry, ...] = ()
    handlers: tuple[HandlerEntry, ...] = ()
    flows: tuple[FlowEntry, ...] = ()
    sagas: tuple[SagaEntry, ...] = ()
    rights: tuple[RightsEntry, ...] = ()
    """Of each topic; none where no App has rights."""

    def event(self, subject: str) -> EventEntry | None:
        """The entry of a full subject, if a listed service owns it."""
        return next((entry for entry in self.events if entry.subject == subject), None)

    def readers(self, subject: str) -> Mapping[str, Reading]:
        """What each handler takes from a subject, by the handler's name."""
        return {
            handler.name: reading
            for handler in self.handlers
            for reading in handler.reads
            if reading.subject == subject
        }


def to_json(document: Document) -> bytes:
    """The document as JSON text, two spaces deep, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def from_json(text: bytes) -> Document:
    """Read it back. Raises ConfigurationError, which names the place."""
    try:
        return msgspec.json.decode(text, type=Document)
    except UNREADABLE as error:
        raise ConfigurationError(f"this is not a catalogue: {error}") from error
