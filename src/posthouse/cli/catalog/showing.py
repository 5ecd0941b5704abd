"""`posthouse catalog show`: events, topics and handlers, for people or as one JSON value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from posthouse.cli.catalog.freezing import Directory, versioned
from posthouse.cli.options import AsJson
from posthouse.cli.output import Cell, one_line, print_json, print_table, say, span
from posthouse.cli.target import Targets, load_all
from posthouse.governance.bundle import FOLDER
from posthouse.governance.document import EventEntry, HandlerEntry, RightsEntry, TopicEntry
from posthouse.governance.listing import catalogue_of

EVENTS = ("EVENT", "OWNER", "KEY", "KEPT", "STAYS IN", "VERSION", "WHAT")

RIGHTS = ("TOPIC", "MAY PUBLISH", "MAY READ", "MAY REPLAY", "KEPT BY")


def show(targets: Targets, folder: Directory = Path(FOLDER), as_json: AsJson = False) -> None:
    """Show the events, topics and handlers that services declare, with the versions of frozen ones. Nothing is opened or changed."""
    document = versioned(catalogue_of(load_all(targets)), folder)
    if as_json:
        print_json(document)
        return
    if not document.topics:
        say("no events are declared")
    _section("Events", EVENTS, [_event(e) for e in document.events])
    _section("Topics", ("TOPIC", "GUARANTEE", "DEAD LETTERS", "READ BY"), [_topic(t) for t in document.topics])
    _section(
        "Handlers",
        ("HANDLER", "CONSUMER", "RUNS", "WHEN DEAD", "READS", "PUBLISHES"),
        [row for handler in document.handlers for row in _handler(handler)],
    )
    _section("Rights", RIGHTS, [_rights(entry) for entry in document.rights])


def _section(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    if rows:
        say(title, "bold")
        print_table(columns, rows)
        say("")


def _event(entry: EventEntry) -> tuple[Cell, ...]:
    return (
        entry.subject,
        entry.owner or "nobody",
        entry.key or "",
        entry.retention,
        entry.residency or "",
        entry.semver,
        "; ".join(filter(None, (_end(entry), one_line(entry.description)))),
    )


def _end(entry: EventEntry) -> str:
    if entry.deprecated is None:
        return ""
    return f"deprecated from {entry.deprecated:%Y-%m-%d}{f', see {entry.successor}' if entry.successor else ''}"


def _topic(entry: TopicEntry) -> tuple[Cell, ...]:
    ordered = f"{entry.guarantee}: {', '.join(entry.ordering)}" if entry.ordering else entry.guarantee
    return entry.name, ordered, entry.dead_letters, ", ".join(entry.consumers) or "nobody listed"


def _rights(entry: RightsEntry) -> tuple[Cell, ...]:
    return (
        entry.topic,
        ", ".join(entry.publish) or "nobody listed",
        "whoever declares it" if entry.read is None else ", ".join(entry.read) or "nobody",
        "whoever reads it" if entry.replay is None else ", ".join(entry.replay) or "nobody",
        ", ".join(entry.services),
    )


def _handler(entry: HandlerEntry) -> list[tuple[Cell, ...]]:
    """One row for each subject that it reads; what is the same for all stands in the first."""
    policy = entry.reliability
    runs = f"{policy.max_attempts}, within {span(policy.deadline)}"
    first = (entry.name, entry.consumer, runs, policy.on_dead)
    rows: list[tuple[Cell, ...]] = []
    for number, reading in enumerate(entry.reads):
        fields = "any field" if reading.fields is None else ", ".join(reading.fields)
        head = first if number == 0 else ("", "", "", "")
        rows.append((*head, f"{reading.subject} ({fields})", ", ".join(entry.publishes) if number == 0 else ""))
    return rows
