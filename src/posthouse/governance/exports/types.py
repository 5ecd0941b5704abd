"""CloudEvents types: every type with its source, schema and attributes, as one JSON file for routers and filters."""

from __future__ import annotations

import json

from posthouse.governance.document import EventEntry
from posthouse.governance.exports.source import Files, Source

FILE = "cloudevents-types.json"


def cloudevents_types(source: Source) -> Files:
    types = [_type(entry, complete=source.complete) for entry in source.document.events]
    return {FILE: json.dumps({"specversion": "1.0", "types": types}, indent=2, ensure_ascii=False) + "\n"}


def source_of(entry: EventEntry) -> str:
    """The `source` attribute of its events: `/shop/orders`."""
    return "/" + "/".join(filter(None, (entry.namespace, entry.service)))


def _type(entry: EventEntry, *, complete: bool) -> dict[str, object]:
    said: dict[str, object] = {
        "type": entry.subject,
        "source": source_of(entry),
        "dataschema": entry.schema_uri,
        "datacontenttype": entry.content_type,
        "topic": entry.topic,
        "owner": entry.owner,
        "description": entry.description,
    }
    if complete:
        said |= {
            "key": entry.key,
            "retentionclass": entry.retention,
            "dataresidency": entry.residency,
            "deprecated": entry.deprecated and entry.deprecated.isoformat(),
            "successor": entry.successor,
        }
    return {name: value for name, value in said.items() if value not in (None, "")}
