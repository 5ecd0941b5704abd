"""Pages of EventCatalog's folder: where each lies, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.contracts.normal.keywords import words
from posthouse.governance.document import EventEntry
from posthouse.governance.exports.front_matter import Value, front_matter
from posthouse.governance.exports.names import safe
from posthouse.governance.exports.source import Source

ANYWHERE = "platform"
"""The domain of services without a namespace."""
KINDS = words(
    "agents changelog channels commands containers custom-pages data-products diagrams docs domains entities events flows "
    "queries resources services subdomains systems teams ubiquitous-languages users versioned"
)
"""Names of folders that say what is in them: no other folder may be called so."""
FIRST = "1.0.0"
"""The version of pages about things that have none of their own."""

Fields = Mapping[str, Value]


def domain_of(source: Source, service: str) -> str:
    names = (entry.namespace for entry in source.document.events if entry.service == service and entry.namespace)
    return next(names, ANYWHERE)


def folder_of(source: Source, service: str) -> str:
    return f"domains/{called(domain_of(source, service))}/services/{called(service)}"


def called(name: str) -> str:
    """A folder's name."""
    return f"{name}_" if name in KINDS else safe(name)


def version_of(entry: EventEntry) -> str:
    return entry.semver or f"{entry.version}.0.0"


def page(fields: Fields, *parts: str) -> str:
    return "\n".join([front_matter(fields), *(f"{part}\n" for part in parts if part)])
