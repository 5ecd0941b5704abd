"""EventCatalog: a folder of pages for its site. Services belong to the domain of their namespace, events to the service that
says them, channels are topics, owners are teams, and flows and sagas can be stepped through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from posthouse.contracts.lock import EXTENSIONS
from posthouse.governance.bundle import schema_file
from posthouse.governance.document import EventEntry, TopicEntry
from posthouse.governance.exports.asyncapi.servers import server_of
from posthouse.governance.exports.flow_pages import flow_links, flow_pages
from posthouse.governance.exports.front_matter import Value
from posthouse.governance.exports.names import safe
from posthouse.governance.exports.pages import FIRST, Fields, called, domain_of, folder_of, page, version_of
from posthouse.governance.exports.prose import code, codes, paragraphs, text
from posthouse.governance.exports.routes import Route, received, sent, service_of, topics_by_name
from posthouse.governance.exports.source import Files, Source


def eventcatalog(source: Source) -> Files:
    """Versions of an event that are not the newest are in its `versioned` folder."""
    pages = [*_domains(source), *_services(source), *_events(source), *_channels(source), *_teams(source)]
    return dict(sorted([*pages, *flow_pages(source)]))


def _domains(source: Source) -> Iterator[tuple[str, str]]:
    members: dict[str, list[str]] = {}
    for service in source.document.services:
        members.setdefault(domain_of(source, service), []).append(service)
    for name, services in sorted(members.items()):
        listed = [{"id": safe(service), "version": FIRST} for service in services]
        fields: Fields = {"id": safe(name), "name": name, "version": FIRST, "services": listed}
        yield f"domains/{called(name)}/index.mdx", page(fields, f"Services: {codes(services)}.", "<NodeGraph />")


def _services(source: Source) -> Iterator[tuple[str, str]]:
    says, hears = sent(source.document), received(source.document)
    for service in source.document.services:
        fields: Fields = {
            "id": safe(service),
            "name": service,
            "version": FIRST,
            "owners": _owners(entry.owner for entry in source.document.events if entry.service == service),
            "sends": [one for route in says if route.service == service for one in _links(source, route, "to")],
            "receives": [one for route in hears if route.service == service for one in _links(source, route, "from")],
            "flows": flow_links(source, service),
        }
        yield f"{folder_of(source, service)}/index.mdx", page(fields, "<NodeGraph />")


def _events(source: Source) -> Iterator[tuple[str, str]]:
    newest: dict[str, int] = {}
    for entry in source.document.events:
        newest[entry.unversioned] = max(entry.version, newest.get(entry.unversioned, 0))
    for entry in source.document.events:
        folder = f"{folder_of(source, entry.service)}/events/{called(entry.unversioned)}"
        if entry.version != newest[entry.unversioned]:
            folder += f"/versioned/{version_of(entry)}"
        schema = f"schema{EXTENSIONS[entry.format]}"
        yield f"{folder}/index.mdx", _event(entry, schema, complete=source.complete)
        yield f"{folder}/{schema}", schema_file(entry).decode()


def _event(entry: EventEntry, schema: str, *, complete: bool) -> str:
    fields: dict[str, Value] = {
        "id": safe(entry.unversioned),
        "name": entry.unversioned,
        "version": version_of(entry),
        "summary": " ".join(entry.description.partition("\n\n")[0].split()),
        "owners": _owners([entry.owner]),
        "schemaPath": schema,
    }
    facts = [f"Type {code(entry.subject)}, on the topic {code(entry.topic)}."]
    if complete:
        fields["badges"] = [_badge(f"Kept {entry.retention}")]
        facts += [f"Ordered by {code(entry.key)}." if entry.key else "In no order."]
        facts += [f"Its data must not leave {text(entry.residency)}."] if entry.residency else []
        fields |= _deprecation(entry)
    return page(fields, paragraphs(entry.description), " ".join(facts), "<NodeGraph />", _shown(entry, schema))


def _shown(entry: EventEntry, schema: str) -> str:
    """JSON Schemas as a tree, others as they are."""
    return f'<{"SchemaViewer" if entry.format == "json" else "Schema"} file="{schema}" />'


def _deprecation(entry: EventEntry) -> Fields:
    if entry.deprecated is None:
        return {}
    said: Fields = {"date": entry.deprecated.isoformat()}
    return {"deprecated": {**said, "message": f"Use {entry.successor}."} if entry.successor else said}


def _channels(source: Source) -> Iterator[tuple[str, str]]:
    for topic in source.document.topics:
        fields: Fields = {
            "id": safe(topic.name),
            "name": topic.name,
            "version": FIRST,
            "owners": _owners(topic.owner.split(", ")),
            "address": topic.name,
            "protocols": _protocols(source, topic),
            "deliveryGuarantee": "at-least-once",
        }
        order = f"In order per tenant and {codes(topic.ordering)}." if topic.ordering else "In no order."
        rest = f"Each event is applied once per consumer. Dead letters go to {code(topic.dead_letters)}."
        yield f"channels/{called(topic.name)}/index.mdx", page(fields, f"{order} {rest}", "<NodeGraph />")


def _teams(source: Source) -> Iterator[tuple[str, str]]:
    """Owners must lead somewhere."""
    for name in sorted({entry.owner for entry in source.document.events} - {""}):
        yield f"teams/{safe(name)}.mdx", page({"id": safe(name), "name": name}, f"{text(name)} answers for events.")


def _protocols(source: Source, topic: TopicEntry) -> list[str]:
    services = {*topic.producers, *(service_of(source.document, group) for group in topic.consumers)}
    servers = (server_of(source.brokers[name]) for name in services if name in source.brokers)
    return sorted({server.protocol for server in servers if server is not None})


def _links(source: Source, route: Route, direction: str) -> list[Fields]:
    """Only to events and channels that have a page."""
    channel: Fields = {"id": safe(route.topic), "version": FIRST}
    known = [entry for entry in map(source.document.event, route.subjects) if entry is not None]
    place: Fields = {direction: [channel]} if route.topic in topics_by_name(source.document) else {}
    return [{"id": safe(entry.unversioned), "version": version_of(entry), **place} for entry in known]


def _owners(names: Iterable[str]) -> list[str]:
    return sorted({safe(name) for name in names if name})


def _badge(content: str) -> Fields:
    return {"content": content, "backgroundColor": "blue", "textColor": "blue"}
