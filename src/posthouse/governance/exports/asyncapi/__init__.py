"""AsyncAPI 3.0: servers, a channel for each topic, a message for each event, an operation for each route."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256

import msgspec

from posthouse.governance.document import EventEntry, TopicEntry, to_json
from posthouse.governance.exports.asyncapi.bindings import Bindings, of_channel, of_message, of_receiving
from posthouse.governance.exports.asyncapi.envelopes import body_of, content_type_of, correlation_of, headers_of
from posthouse.governance.exports.asyncapi.schemas import PLACE, components, name_of
from posthouse.governance.exports.asyncapi.servers import named
from posthouse.governance.exports.names import safe
from posthouse.governance.exports.routes import Route, received, sent, service_of
from posthouse.governance.exports.source import Files, Source

FILE = "asyncapi.json"
JSON = "application/vnd.aai.asyncapi+json;version=3.0.0"
FORMATS = {
    "avro": "application/vnd.apache.avro+json;version=1.9.0",
    "protobuf": "application/vnd.google.protobuf;version=3",
}

Part = dict[str, object]


def asyncapi(source: Source) -> Files:
    """One document for all services, as JSON, which every reader of AsyncAPI takes."""
    return {FILE: json.dumps(_document(source), indent=2, ensure_ascii=False) + "\n"}


def _document(source: Source) -> Part:
    document = source.document
    servers, places = named(source.brokers)
    protocols = {
        topic.name: {servers[name].protocol for name in _servers_of(source, topic, places)} for topic in document.topics
    }
    made: Part = {"asyncapi": "3.0.0", "info": _info(source)}
    if servers:
        made["servers"] = {name: msgspec.to_builtins(server) for name, server in sorted(servers.items())}
    made["channels"] = {
        safe(topic.name): _channel(source, topic, _servers_of(source, topic, places), protocols[topic.name])
        for topic in document.topics
    }
    made["operations"] = {
        **{_operation_name(route, "send"): _operation(source, route, "send", {}) for route in sent(document)},
        **{
            _operation_name(route, "receive"): _operation(
                source, route, "receive", of_receiving(route.party, route.topic, protocols[route.topic])
            )
            for route in received(document)
        },
    }
    made["components"] = {
        "messages": {
            name_of(entry): _message(entry, protocols.get(entry.topic, ()), complete=source.complete)
            for entry in document.events
        },
        "schemas": {
            name: schema
            for entry in document.events
            if entry.format == "json"
            for name, schema in components(entry).items()
        },
    }
    return made


def _info(source: Source) -> Part:
    """The version is a hash of the catalogue: it changes with what is said and with nothing else."""
    services = ", ".join(source.document.services)
    said = f"What these services say and hear: {services}. Each event is delivered at least once, and its effect is applied once per consumer."
    if not source.complete:
        said += " Made from frozen files: keys, retention and handlers are not known, and the envelope is taken to be structured."
    version = sha256(to_json(source.document)).hexdigest()[:12]
    return {"title": f"Events of {source.title}", "version": version, "description": said}


def _servers_of(source: Source, topic: TopicEntry, places: Mapping[str, str]) -> list[str]:
    """Those of the services that write or read it."""
    readers = {service_of(source.document, group) for group in topic.consumers}
    return sorted({places[name] for name in {*topic.producers, *readers} if name in places})


def _channel(source: Source, topic: TopicEntry, servers: Sequence[str], protocols: Collection[str]) -> Part:
    known = [name for name in topic.subjects if source.document.event(name) is not None]
    made: Part = {
        "address": topic.name,
        "description": _guarantee(topic),
        "messages": {safe(name): {"$ref": f"#/components/messages/{safe(name)}"} for name in known},
    }
    if servers:
        made["servers"] = [{"$ref": f"#/servers/{name}"} for name in servers]
    if topic.owner:
        made["tags"] = [_tag("owner", topic.owner)]
    if bindings := of_channel(topic.name, protocols):
        made["bindings"] = bindings
    made["x-posthouse"] = {
        "guarantee": topic.guarantee,
        "orderingKey": list(topic.ordering),
        "parallelism": topic.parallelism,
        "deadLetters": topic.dead_letters,
    }
    if foreign := [name for name in topic.subjects if name not in known]:
        made["x-foreign-messages"] = foreign
    return made


def _guarantee(topic: TopicEntry) -> str:
    order = f"In order per tenant and {' or '.join(topic.ordering)}" if topic.ordering else "In no order"
    return f"{order}; at least once, applied once per consumer. What cannot be applied goes to {topic.dead_letters}."


def _operation_name(route: Route, action: str) -> str:
    return safe(f"{route.party}.{action}.{route.topic}")


def _operation(source: Source, route: Route, action: str, bindings: Bindings) -> Part:
    """Foreign events have no schema here: they are in the summary only."""
    channel = f"#/channels/{safe(route.topic)}"
    verb = "says" if action == "send" else "hears"
    made: Part = {
        "action": action,
        "channel": {"$ref": channel},
        "summary": f"{route.party} {verb} {', '.join(route.subjects)}",
        "tags": [_tag("service", route.service)],
    }
    if known := [name for name in route.subjects if source.document.event(name) is not None]:
        made["messages"] = [{"$ref": f"{channel}/messages/{safe(name)}"} for name in known]
    return {**made, "bindings": bindings} if bindings else made


def _message(entry: EventEntry, protocols: Collection[str], *, complete: bool) -> Part:
    made: Part = {
        "name": entry.subject,
        "title": entry.subject,
        "contentType": content_type_of(entry),
        "headers": headers_of(entry),
        "payload": _payload(entry),
        "correlationId": {"location": correlation_of(entry)},
    }
    if entry.description:
        made |= {"summary": entry.description.partition("\n")[0], "description": entry.description}
    if tags := _tags(entry, complete=complete):
        made["tags"] = tags
    if bindings := of_message(entry, protocols):
        made["bindings"] = bindings
    return made


def _payload(entry: EventEntry) -> Part:
    """The body on the wire. Bytes that are not JSON travel in an envelope as base64, with their schema beside."""
    if entry.format == "json":
        own: Part = {"$ref": f"{PLACE}{name_of(entry)}"}
    elif entry.envelope == "binary":
        return {"schemaFormat": FORMATS[entry.format], "schema": _schema(entry)}
    else:
        own = {
            "type": "string",
            "contentEncoding": "base64",
            "contentMediaType": entry.content_type,
            "x-schema": {"schemaFormat": FORMATS[entry.format], "schema": _schema(entry)},
        }
    return {"schemaFormat": JSON, "schema": own if entry.envelope == "binary" else body_of(entry, own)}


def _schema(entry: EventEntry) -> object:
    return json.loads(entry.schema) if entry.format == "avro" else entry.schema


def _tags(entry: EventEntry, *, complete: bool) -> list[Part]:
    tags = [_tag("owner", entry.owner)] if entry.owner else []
    tags += [_tag("version", entry.semver)] if entry.semver else []
    if complete:
        tags.append(_tag("retention", entry.retention))
        tags += [_tag("residency", entry.residency)] if entry.residency else []
        tags += [_tag("deprecated", entry.deprecated.isoformat())] if entry.deprecated else []
    return tags


def _tag(kind: str, value: str) -> Part:
    return {"name": f"{kind}:{value}"}
