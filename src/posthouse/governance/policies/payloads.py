"""Rules about payloads: a contract of its own, small enough to travel, and typed."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.governance.document import EventEntry
from posthouse.governance.policies.facts import Facts
from posthouse.governance.policies.finding import Found, Severity
from posthouse.governance.policies.rule import Rule
from posthouse.governance.policies.shapes import Field, largest_json
from posthouse.governance.policies.words import one_of, words

ORMS = (
    "sqlalchemy.",
    "sqlmodel.",
    "django.db.",
    "tortoise.",
    "peewee.",
    "pony.orm.",
    "mongoengine.",
    "beanie.",
    "odmantic.",
)
ROW_FIELDS = frozenset({("created", "at"), ("updated", "at"), ("deleted", "at"), ("is", "deleted"), ("modified", "at")})
BULKY = one_of("attachment base64 blob body content document file html image pdf photo raw")
REFERENCE = one_of("checksum hash href id key length link name path ref reference sha256 size type uri url version")
ENVELOPE = frozenset(
    {
        ("event", "id"), ("event", "type"), ("event", "version"), ("schema", "version"), ("correlation", "id"),
        ("causation", "id"), ("idempotency", "key"), ("traceparent",), ("ordering", "key"),
    }
)  # fmt: skip


def orm_shape(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        if why := _why_orm(entry, facts):
            yield Found(where=entry.subject, sentence=f"{entry.subject} {why}", place=facts.place_of(entry))


def _why_orm(entry: EventEntry, facts: Facts) -> str:
    declared = facts.classes.get(entry.subject)
    models = [name for name in (declared.ancestors if declared else ()) if name.startswith(ORMS)]
    if models:
        return f"is a database model: its class inherits {models[0]}"
    top = [field.name for field in facts.fields[entry.subject] if "." not in field.path]
    if private := [name for name in top if name.startswith("_")]:
        return f"carries {private[0]!r}, which is internal to a library"
    columns = [name for name in top if words(name) in ROW_FIELDS]
    has_id = any(words(name)[-1:] == ("id",) for name in top)
    return f"looks like a row of a table: {', '.join(columns)} beside an id" if has_id and len(columns) > 1 else ""


def payload_grows(facts: Facts) -> Iterator[Found]:
    limit = facts.settings.payload_limit
    for entry in facts.document.events:
        if (most := largest_json(entry)) > limit:
            sentence = f"{entry.subject} may be {most:,} bytes by its own bounds, and {limit:,} is the limit"
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))
        for field in facts.fields[entry.subject]:
            if why := _why_grows(field):
                sentence = f"{entry.subject}: {field.path} {why}, so the event may pass {limit:,} bytes"
                yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def _why_grows(field: Field) -> str:
    if field.most is not None:
        return ""
    if "array" in field.kinds:
        return "is a list of any length"
    if "map" in field.kinds:
        return "is a map of any size"
    if "bytes" in field.kinds:
        return "holds bytes of any number"
    parts = words(field.name)
    bulky = "string" in field.kinds and BULKY.intersection(parts) and not REFERENCE.intersection(parts)
    return "is a text of any length that sounds like a document" if bulky and not field.format else ""


def whole_aggregate(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        top = sum("." not in field.path for field in facts.fields[entry.subject])
        if top > facts.settings.most_fields:
            sentence = f"{entry.subject} has {top} fields: it looks like the whole {entry.aggregate or 'aggregate'}, not like a fact"
            yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def untyped_field(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        for field in facts.fields[entry.subject]:
            if "any" in field.kinds:
                sentence = f"{entry.subject}: {field.path} may be anything, so nothing is checked when it comes"
                yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


def envelope_in_payload(facts: Facts) -> Iterator[Found]:
    for entry in facts.document.events:
        for field in facts.fields[entry.subject]:
            if "." not in field.path and words(field.name) in ENVELOPE:
                sentence = f"{entry.subject}: {field.path} stands in the envelope already, and the two may contradict"
                yield Found(where=entry.subject, sentence=sentence, place=facts.place_of(entry))


RULES = (
    Rule(
        id="orm-shape",
        severity=Severity.ERROR,
        title="A payload that is a row of your database",
        sees="Payload classes that inherit from SQLAlchemy, SQLModel, Django and other mappers; fields that begin with `_`, such as "
        "`_sa_instance_state`; two or more of `created_at`, `updated_at`, `deleted_at`, `is_deleted` beside an id.",
        why="Each migration of your table becomes a breaking change for every consumer.",
        fix="Declare a class for the fact, with the fields that others need, and fill it by hand.",
        seeds="C §13 (leaky payloads) and §2; B Outbox vs. CDC",
        look=orm_shape,
    ),
    Rule(
        id="payload-grows",
        severity=Severity.WARNING,
        title="A payload that can grow past 256 KiB",
        sees="Lists and maps without a bound, bytes without a bound, texts without a bound whose names sound like documents, and bounds "
        "that add up to more than `payload_limit`. Other texts are taken to be short.",
        why="It works until a customer has many of them; then publishing is refused, in the middle of a transaction.",
        fix="Bound it, as with `Annotated[list[Line], msgspec.Meta(max_length=200)]`; or store it elsewhere and send a reference.",
        seeds="A Fat Events and Anti-Patterns; C §2",
        look=payload_grows,
    ),
    Rule(
        id="whole-aggregate",
        severity=Severity.INFO,
        title="A payload with very many fields",
        sees="More fields than `most_fields` of the settings (30) at the top of the payload.",
        why="Everything that you publish will be used, and can then no longer change.",
        fix="Say what happened and what is needed to act on it; give a reference for the rest.",
        seeds="C §2 (event sizing)",
        look=whole_aggregate,
    ),
    Rule(
        id="untyped-field",
        severity=Severity.WARNING,
        title="A field that may hold anything",
        sees="Fields of type `Any`, and lists and maps of it.",
        why="Neither side can check it: the first wrong value is found in a handler, in production.",
        fix="Give it a type; where there are several shapes, a tagged union.",
        seeds="A Anti-Patterns (missing schema validation); C §13",
        look=untyped_field,
    ),
    Rule(
        id="envelope-in-payload",
        severity=Severity.WARNING,
        title="A payload that repeats the envelope",
        sees="Payload fields `event_id`, `event_type`, `event_version`, `schema_version`, `correlation_id`, `causation_id`, "
        "`idempotency_key`, `ordering_key`, `traceparent`.",
        why="There are two answers to one question, and after a replay or a new version they differ.",
        fix="Read it from the event: `event.id`, `event.correlation`, and the version from its subject.",
        seeds="B Executive Summary (versions in the envelope, never in payload keys); D §4",
        look=envelope_in_payload,
    ),
)
