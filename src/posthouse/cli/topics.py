"""`posthouse topics`: what a service writes, what it reads, and who reads it."""

from __future__ import annotations

from posthouse.app import app_of
from posthouse.cli.options import AsJson
from posthouse.cli.output import Cell, print_json, print_table, say
from posthouse.cli.target import Targets, load_all
from posthouse.service import Service


def topics(targets: Targets, as_json: AsJson = False) -> None:
    """Show the topics of one or several services, with their events and consumers."""
    services = load_all(targets)
    rows = [row for service in services for row in _rows(service)]
    if as_json:
        print_json({service.name: _facts(service) for service in services})
    elif rows:
        print_table(("SERVICE", "TOPIC", "EVENT", "KEY", "READ BY"), rows)
    else:
        say("no events are declared")


def _facts(service: Service) -> dict[str, object]:
    topology = app_of(service).opened.topology()
    return {
        "topics": topology.topics,
        "groups": topology.groups,
        "events": [
            {"type": event_type.name, "topic": event_type.topic, "key": event_type.key, "schema": event_type.schema}
            for event_type in service.declared.catalogue
        ],
    }


def _rows(service: Service) -> list[tuple[Cell, ...]]:
    return [
        (
            service.name,
            event_type.topic,
            event_type.name,
            event_type.key or "",
            ", ".join(_readers(service, event_type.name)),
        )
        for event_type in service.declared.catalogue
    ]


def _readers(service: Service, type_name: str) -> list[str]:
    return sorted(name for name, handlers in service.declared.consumers.items() if type_name in handlers)
