"""Terraform for Google Pub/Sub. What is to be made is data in catalogue.tf; how it is made stands in main.tf, the same for all.

The names are the adapter's: topics as they are, `<group>.<topic>.sub`, and one topic for what Pub/Sub itself gives up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from importlib import resources

from posthouse.contracts.retention import CLASSES
from posthouse.errors import ConfigurationError
from posthouse.governance.document import Document, EventEntry, TopicEntry
from posthouse.governance.exports.routes import Route, received, sent
from posthouse.governance.exports.source import Files, Source
from posthouse.governance.exports.terraform.hcl import Value, assignment, quoted

FIXED = ("main.tf", "variables.tf")
CATALOGUE = "catalogue.tf"

REGIONS = """
variable "regions" {
  description = "The regions of Google Cloud that make up each place which data must not leave."
  type        = map(set(string))

  validation {
    condition     = length(setsubtract([PLACES], keys(var.regions))) == 0
    error_message = "Say the regions of each place that the catalogue names."
  }
}

# A topic whose events must stay in several places may be kept where these overlap.

locals {
  persistence = {
    for name, topic in local.topics :
    name => length(topic.residency) == 0 ? [] : sort(setintersection([for place in topic.residency : var.regions[place]]...))
  }
}
"""
NO_REGIONS = """
# No event of this catalogue must stay somewhere.

locals {
  persistence = { for name, topic in local.topics : name => [] }
}
"""

_NAME = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")
_SERVICE = re.compile(r"[a-z][a-z0-9_-]*")
_LABEL = re.compile(r"[^a-z0-9_-]+")
_IMPORT = re.compile(r"^\s*import\s", re.MULTILINE)
_MESSAGE = re.compile(r"^message\s", re.MULTILINE)

Group = dict[str, Value]


def terraform(source: Source) -> Files:
    """Raises ConfigurationError with a sentence for each name that Google does not take, and when the catalogue does not say
    where data must stay."""
    if not source.complete:
        raise ConfigurationError(
            "frozen files do not say which data must stay where, nor how long it is kept: name the services, or give "
            "--from a file that `posthouse catalog show --json` wrote"
        )
    refuse(source.document)
    here = resources.files(__package__)
    fixed = {name: here.joinpath(name).read_text(encoding="utf-8") for name in FIXED}
    return {CATALOGUE: _catalogue(source.document), **fixed}


def subscription_name(group: str, topic: str) -> str:
    return f"{group}.{topic}.sub"


def account_id(service: str) -> str:
    """6 to 30 letters, digits and hyphens: `orders-service`. One that is too long is cut and gets a mark."""
    name = f"{service.replace('_', '-').strip('-')}-service"
    if len(name) <= 30:
        return name
    return f"{name[:23].rstrip('-')}-{sha256(service.encode()).hexdigest()[:6]}"


def refuse(document: Document) -> None:
    """Raise ConfigurationError for names that cannot exist there."""
    topics = {name for topic in document.topics for name in (topic.name, topic.dead_letters)}
    names = topics | {subscription_name(route.party, route.topic) for route in received(document)}
    problems = [
        f"{name!r} cannot be the name of a topic or subscription of Pub/Sub: 3 to 255 letters, digits and -_.~+%, a letter "
        "first, and not goog"
        for name in sorted(names)
        if not _NAME.fullmatch(name)
    ]
    problems += [
        f"{name!r} cannot be the name of a service account: lower-case letters, digits, hyphens and underscores, a letter first"
        for name in _services(document)
        if not _SERVICE.fullmatch(name)
    ]
    accounts: dict[str, str] = {}
    for name in _services(document):
        other = accounts.setdefault(account_id(name), name)
        if other != name:
            problems.append(f"{other!r} and {name!r} would share the service account {account_id(name)}: rename one")
    if problems:
        raise ConfigurationError(*problems)


def _catalogue(document: Document) -> str:
    groups: dict[str, Group] = {
        "topics": _topics(document),
        "subscriptions": {
            subscription_name(route.party, route.topic): {
                "group": route.party,
                "service": route.service,
                "topic": route.topic,
            }
            for route in received(document)
        },
        "publishers": _grants(_writers(document)),
        "viewers": _grants({*_writers(document), *((route.service, route.topic) for route in received(document))}),
        "services": {name: account_id(name) for name in _services(document)},
        "schemas": {
            entry.subject: {"type": _kind(entry), "definition": entry.schema}
            for entry in document.events
            if entry.format != "json" and _is_accepted(entry)
        },
    }
    written = "\n\n".join(assignment(name, group, "  ") for name, group in groups.items())
    left_out = [entry for entry in document.events if entry.format != "json" and not _is_accepted(entry)]
    remarks = "".join(
        f"# The schema of {quoted(entry.subject)} is not here: Pub/Sub takes protobuf with one message and no imports.\n"
        for entry in left_out
    )
    return f"# Made from the catalogue: what there is to be.\n{remarks}\nlocals {{\n{written}\n}}\n{_regions(document)}"


def _topics(document: Document) -> Group:
    """Those that a listed service writes, and their dead letters where somebody reads them; as `posthouse topology` does. The
    topics of others are for them to make."""
    made: Group = {}
    for topic in document.topics:
        if topic.producers:
            settings = _settings(document, topic)
            made[topic.name] = settings
            if topic.consumers:
                made[topic.dead_letters] = settings
    return dict(sorted(made.items()))


def _settings(document: Document, topic: TopicEntry) -> Value:
    """The longest class of its events, and every place that some of them must not leave."""
    events = [entry for entry in document.events if entry.topic == topic.name]
    kept = max((entry.retention for entry in events), key=CLASSES.index, default=CLASSES[0])
    labels = {"posthouse_owner": _label(topic.owner), "posthouse_retention": kept}
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "retention": kept,
        "residency": _residencies(events),
    }


def _residencies(events: list[EventEntry]) -> list[str]:
    return sorted({entry.residency for entry in events if entry.residency})


def _regions(document: Document) -> str:
    """Which regions a residency means is for the user to say: there is no default for a limit."""
    names = _residencies(list(document.events))
    return REGIONS.replace("PLACES", ", ".join(map(quoted, names))) if names else NO_REGIONS


def _grants(pairs: Iterable[tuple[str, str]]) -> Group:
    """Of services and topics."""
    return {f"{service} {topic}": {"service": service, "topic": topic} for service, topic in sorted(pairs)}


def _writers(document: Document) -> list[tuple[str, str]]:
    """Services with the topics that they write to: their own, and the dead letters of what they read."""
    dead = {topic.name: topic.dead_letters for topic in document.topics}
    routes: list[Route] = received(document)
    found = {(route.service, route.topic) for route in sent(document)}
    return sorted(found | {(route.service, dead[route.topic]) for route in routes})


def _services(document: Document) -> list[str]:
    """Those that write or read something."""
    return sorted({service for service, _ in _writers(document)})


def _kind(entry: EventEntry) -> str:
    return "AVRO" if entry.format == "avro" else "PROTOCOL_BUFFER"


def _is_accepted(entry: EventEntry) -> bool:
    """A protobuf schema of Pub/Sub is one message at the top, and imports nothing."""
    if entry.format == "avro":
        return True
    return len(_MESSAGE.findall(entry.schema)) == 1 and not _IMPORT.search(entry.schema)


def _label(said: str) -> str:
    """Labels are lower-case letters, digits, hyphens and underscores, at most 63."""
    return _LABEL.sub("-", said.lower()).strip("-")[:63]
