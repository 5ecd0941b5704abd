"""Catalogue: events with their schemas and versions, who reads what, and what a change would break."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path

import msgspec

from posthouse.app import App
from posthouse.console.asking import Ask, Refusal
from posthouse.console.catalogue import Catalogue
from posthouse.console.pages.home import everyone
from posthouse.contracts.schema import Schema
from posthouse.errors import ConfigurationError, SchemaError, did_you_mean
from posthouse.governance.bundle import FOLDER, Bundle, read_bundle
from posthouse.governance.comparing import compare_schemas
from posthouse.governance.document import Document, EventEntry, RightsEntry
from posthouse.governance.evolution import Mode
from posthouse.governance.folder import read_folder
from posthouse.governance.freezing import freeze
from posthouse.governance.gate import examine
from posthouse.governance.gate.objection import Objection
from posthouse.governance.gate.readers import Readers
from posthouse.store import VersionUse

FREEZE = (
    "`posthouse catalog freeze` writes it; start the console in the folder of your project to have it compared here."
)

LONGEST_SCHEMA = 20_000
"""Characters: it is asked for in an address."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one event, in the list."""

    subject: str
    service: str
    topic: str
    owner: str
    key: str | None
    version: int
    retention: str
    residency: str | None
    format: str
    deprecated: date | None
    successor: str | None
    readers: int
    description: str


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the payload, dots reaching inside. `readers` say that they read it; `perhaps` are those that never said what they
    read."""

    name: str
    type: str
    required: bool
    personal: bool
    readers: Sequence[str]
    perhaps: Sequence[str]


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """`fields` None: any of them. `last` is when the consumer applied one of this version last, as far as that was seen."""

    consumer: str
    handler: str
    fields: Sequence[str] | None
    last: datetime | None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What the way from one version to the next would break, had it been made without a new version."""

    old: str
    new: str
    outcome: str
    findings: Sequence[str]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    line: Line
    schema: str
    schema_uri: str
    hash: str
    content_type: str
    envelope: str
    cross_tenant: bool
    beside: str | None
    fields: Sequence[Field]
    readers: Sequence[Reader]
    published: Mapping[str, datetime | None]
    """By whom, and when last, as far as that was seen."""
    versions: Sequence[str]
    steps: Sequence[Step]
    rights: Sequence[RightsEntry]
    """Of its topic; none where no App has any."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An objection to what the code declares now, against what was frozen."""

    severity: str
    subject: str
    sentence: str
    way_out: str
    touched: Sequence[str]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What the code would change of the frozen catalogue, and whom that breaks."""

    sentence: str
    hint: str
    changed: int
    found: Sequence[Change]


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that another schema would do. `readers` would be touched for certain; `perhaps` are those that never said what they read."""

    path: str
    weight: str
    breaks: str
    sentence: str
    way_out: str
    readers: Sequence[str]
    perhaps: Sequence[str]


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of the event with another schema, under the same version."""

    outcome: str
    sentence: str
    findings: Sequence[Broken]


async def catalogue(ask: Ask) -> object:
    """All events and topics, by name, and who may publish, read and replay these."""
    everyone(ask)
    document = await ask.estate.part(Catalogue).document()
    return {
        "events": [_line(entry, document) for entry in document.events],
        "topics": document.topics,
        "flows": document.flows,
        "rights": document.rights,
    }


async def event(ask: Ask) -> Event:
    """One version of one event."""
    everyone(ask)
    document = await ask.estate.part(Catalogue).document()
    entry = _entry(document, ask.path["subject"])
    used = await ask.each(_usage)
    seen = [use for those in used.values() for use in those if use.subject == entry.subject]
    applied = {use.party: _when(use.last_at) for use in seen if use.role == "applied"}
    published: dict[str, datetime | None] = {entry.service: None}
    published |= {use.party: _when(use.last_at) for use in seen if use.role == "published"}
    versions = sorted(
        (one for one in document.events if one.unversioned == entry.unversioned), key=lambda one: one.version
    )
    return Event(
        subject=entry.subject,
        line=_line(entry, document),
        schema=entry.schema,
        schema_uri=entry.schema_uri,
        hash=entry.hash,
        content_type=entry.content_type,
        envelope=entry.envelope,
        cross_tenant=entry.cross_tenant,
        beside=entry.beside,
        fields=await asyncio.to_thread(_fields, entry, document, _personal(ask, entry)),
        readers=_readers(document, entry, applied),
        published=published,
        versions=[one.subject for one in versions],
        steps=await asyncio.to_thread(_steps, versions),
        rights=[one for one in document.rights if one.topic == entry.topic],
    )


def _readers(document: Document, entry: EventEntry, applied: Mapping[str, datetime | None]) -> list[Reader]:
    """A handler that reads it from several topics is one reader."""
    found: dict[tuple[object, ...], Reader] = {}
    for handler in document.handlers:
        for reading in handler.reads:
            if reading.subject == entry.subject:
                fields = None if reading.fields is None else tuple(reading.fields)
                found[handler.consumer, handler.name, fields] = Reader(
                    consumer=handler.consumer, handler=handler.name, fields=fields, last=applied.get(handler.consumer)
                )
    return list(found.values())


async def comparison(ask: Ask) -> Compared:
    """`?schema=` in the place of the one that is declared: what that would break, and whom. Nothing is kept of it."""
    everyone(ask)
    document = await ask.estate.part(Catalogue).document()
    entry, text = _entry(document, ask.path["subject"]), ask.query.get("schema", "").strip()
    if not text:
        raise Refusal(400, "There is no schema to compare.", "Paste the new schema of the event.")
    if len(text) > LONGEST_SCHEMA:
        raise Refusal(413, f"A schema of more than {LONGEST_SCHEMA:,} characters is not compared here.", FREEZE)
    try:
        return await asyncio.to_thread(_compared, entry, text, document)
    except SchemaError as error:
        raise Refusal(400, f"It cannot be compared: {error}", f"The event is declared as {entry.format}.") from error


def _compared(entry: EventEntry, text: str, document: Document) -> Compared:
    old, new = Schema(format=entry.format, text=entry.schema), Schema(format=entry.format, text=text)
    verdict = compare_schemas(old, new, Mode.ADDITIVE)
    readers = Readers(_frozen(document))
    found = []
    for one in verdict.findings:
        touched = readers.of(entry.subject, one.path)
        found.append(
            Broken(
                path=one.path,
                weight=str(one.weight.value),
                breaks=str(one.breaks.value),
                sentence=one.sentence,
                way_out=one.way_out,
                readers=sorted({reader.consumer for reader in touched if reader.certain}),
                perhaps=sorted({reader.consumer for reader in touched if not reader.certain}),
            )
        )
    return Compared(outcome=str(verdict.outcome.value), sentence=_judged(found, entry.subject), findings=found)


def _judged(found: Sequence[Broken], subject: str) -> str:
    grave = [one for one in found if one.weight != "note"]
    if not grave:
        return f"Nobody is broken: {subject} may have this schema without a new version."
    whom = sorted({consumer for one in grave for consumer in (*one.readers, *one.perhaps)})
    said = f", which {', '.join(whom[:5])}{' and others' if len(whom) > 5 else ''} would feel" if whom else ""
    return f"{len(grave):,} {'thing stands' if len(grave) == 1 else 'things stand'} against it{said}."


async def changes(ask: Ask) -> Changes:
    """The frozen folder against the code."""
    everyone(ask)
    document = await ask.estate.part(Catalogue).document()
    return await asyncio.to_thread(_changes, document, Path(FOLDER))


def _changes(document: Document, folder: Path) -> Changes:
    if not folder.is_dir():
        return Changes(
            sentence=f"There is no frozen catalogue here ({folder}), so nobody can tell what the code changes.",
            hint=FREEZE,
            changed=0,
            found=(),
        )
    try:
        frozen = read_folder(folder)
        report = examine(frozen, frozen, Mode.ADDITIVE, compare_schemas, code=document)
    except (ConfigurationError, SchemaError) as error:
        return Changes(sentence=f"The frozen catalogue cannot be compared: {error}", hint=FREEZE, changed=0, found=())
    found = [_change(one) for one in report.objections]
    said = f"{report.changed:,} of {report.schemas:,} schemas differ from the frozen ones"
    return Changes(
        sentence=f"{said}, and {len(found):,} things stand against that."
        if found
        else "The code says what was frozen: nobody is broken by it.",
        hint="",
        changed=report.changed,
        found=found,
    )


def _change(one: Objection) -> Change:
    return Change(
        severity=str(one.severity.value),
        subject=one.subject,
        sentence=one.sentence,
        way_out=one.way_out,
        touched=sorted({touched.consumer for touched in one.touched}),
    )


async def _usage(app: App) -> Sequence[VersionUse]:
    return await app.store.version_usage.seen()


def _entry(document: Document, subject: str) -> EventEntry:
    if (found := document.event(subject)) is None:
        known = {entry.subject for entry in document.events}
        raise Refusal(404, f"No event is called {subject!r} here.{did_you_mean(subject, known)}")
    return found


def _line(entry: EventEntry, document: Document) -> Line:
    return Line(
        subject=entry.subject,
        service=entry.service,
        topic=entry.topic,
        owner=entry.owner,
        key=entry.key,
        version=entry.version,
        retention=entry.retention,
        residency=entry.residency,
        format=entry.format,
        deprecated=entry.deprecated,
        successor=entry.successor,
        readers=len(
            {
                handler.consumer
                for handler in document.handlers
                if any(reading.subject == entry.subject for reading in handler.reads)
            }
        ),
        description=entry.description,
    )


def _personal(ask: Ask, entry: EventEntry) -> Sequence[str]:
    service = ask.estate.services.get(entry.service)
    return () if service is None else ask.estate.app(entry.service).opened.personal(entry.subject)


def _fields(entry: EventEntry, document: Document, personal: Sequence[str]) -> list[Field]:
    """Every field with who would be touched if it changed."""
    readers = Readers(_frozen(document))
    found = []
    for name, words, required in _properties(entry):
        touched = readers.of(entry.subject, "/" + name.replace(".", "/"))
        found.append(
            Field(
                name=name,
                type=words,
                required=required,
                personal=any(name == one or name.startswith(f"{one}.") for one in personal),
                readers=sorted({one.consumer for one in touched if one.certain}),
                perhaps=sorted({one.consumer for one in touched if not one.certain}),
            )
        )
    return found


def _frozen(document: Document) -> Bundle:
    return read_bundle(freeze(document, Bundle()).files)


def _properties(entry: EventEntry) -> Iterator[tuple[str, str, bool]]:
    """Name, type in words, and whether it must be there, of each field that the schema names; three levels deep at most."""
    schema = msgspec.json.decode(entry.schema)
    if entry.format == "avro":
        for field in schema.get("fields", ()):
            yield str(field["name"]), _word(field["type"]), "default" not in field
    elif entry.format == "json":
        yield from _inside(schema, schema, "", 3)


def _inside(
    schema: Mapping[str, object], root: Mapping[str, object], above: str, deep: int
) -> Iterator[tuple[str, str, bool]]:
    of = _resolved(schema, root)
    properties, required = of.get("properties"), of.get("required")
    for name, field in (properties if isinstance(properties, dict) else {}).items():
        known = _resolved(field, root) if isinstance(field, dict) else {}
        words = known.get("type") or ("one of several" if "anyOf" in known or "oneOf" in known else "any")
        yield f"{above}{name}", _word(words), isinstance(required, list) and name in required
        if deep > 1:
            yield from _inside(known, root, f"{above}{name}.", deep - 1)


def _resolved(schema: Mapping[str, object], root: Mapping[str, object]) -> Mapping[str, object]:
    """What a reference into the same text means."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: object = root
    for part in reference[2:].split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else schema


def _word(of: object) -> str:
    if isinstance(of, list):
        return " or ".join(_word(one) for one in of)
    return str(of.get("type", "record")) if isinstance(of, dict) else str(of)


def _steps(versions: Sequence[EventEntry]) -> list[Step]:
    found = []
    for old, new in pairwise(versions):
        try:
            verdict = compare_schemas(
                Schema(format=old.format, text=old.schema), Schema(format=new.format, text=new.schema), Mode.FULL
            )
            said = [one.sentence for one in verdict.findings]
            found.append(Step(old=old.subject, new=new.subject, outcome=str(verdict.outcome.value), findings=said))
        except SchemaError as error:
            found.append(Step(old=old.subject, new=new.subject, outcome="unjudged", findings=[str(error)]))
    return found


def _when(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


PAGES = {
    "/catalogue": catalogue,
    "/catalogue/changes": changes,
    "/catalogue/events/{subject}": event,
    "/catalogue/events/{subject}/comparison": comparison,
}
