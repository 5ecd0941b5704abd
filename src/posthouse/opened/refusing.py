"""Refusing: what was declared and cannot work on this store and this broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from posthouse.opened.ports import Ports
from posthouse.opened.retaining import longest_log
from posthouse.opened.writing import residency_of
from posthouse.receiving.readers import problems_of, topics_of
from posthouse.seam import Seam
from posthouse.service import Service
from posthouse.settings import Settings
from posthouse.store import CoreStore, has_process_tables
from posthouse.trust.rights import Keeper


def clashes(services: Sequence[Service]) -> list[str]:
    """What keeps services from sharing a store: names under which something is stored."""
    named = Counter(("service", service.name) for service in services)
    for declared in (service.declared for service in services):
        named.update(("saga", name) for name in declared.saga_types)
        named.update(("aggregate", name) for name in declared.aggregates)
        named.update(("projection", projection.name) for projection in declared.projections.values())
    return [
        f"{count} of the services of one App have the {kind} {name!r}: rename one, or give each an App with a store of its own"
        for (kind, name), count in named.items()
        if count > 1
    ]


def beyond(services: Sequence[Service], store: CoreStore) -> list[str]:
    """What services declare that this store has no tables for."""
    if has_process_tables(store):
        return []
    return [
        f"{service.name} declares the {kind} {name!r}, and {type(store).__name__} has the core of a store alone, without tables "
        "for sagas, schedules, aggregates and projections: use another store, such as sqlite:/// or postgresql://"
        for service in services
        for kind, names in (
            ("saga", service.declared.saga_types),
            ("schedule", [schedule.name for schedule in service.declared.schedules]),
            ("aggregate", service.declared.aggregates),
            ("projection", service.declared.projections),
        )
        for name in names
    ]


def reading_problems(
    services: Sequence[Service], groups: Mapping[str, Sequence[str]], keeper: Keeper | None
) -> list[str]:
    """What keeps groups of the archive and of the audit log from reading: a topic that none of the services may read, a name that is
    taken."""
    problems = []
    for group, topics in groups.items():
        taken = [service.name for service in services if group in service.declared.consumers]
        problems += [
            f"{name} has a consumer {group}, as a group of the App itself is called: rename it" for name in taken
        ]
        if keeper is None:
            continue
        for topic in topics:
            found = [keeper.read_problems(service.name, group, [topic]) for service in services]
            problems += found[0] if all(found) else []
    return problems


def problems_here(service: Service, ports: Ports, settings: Settings, seam: Seam, keeper: Keeper | None) -> list[str]:
    """What was declared and cannot work here."""
    problems = service.declared.problems()
    for event_type in service.declared.publishable:
        region, residency = ports.broker.sheet.region, residency_of(settings)
        problems += seam.rules.problems(event_type, region, residency)
    if ports.store.isolated:
        problems += [
            f"the store of {service.name} keeps tenants apart (isolation=true): say for whom the schedule {schedule.name} runs, "
            "with tenants=[…] or an async function of a Tx"
            for schedule in service.declared.schedules
            if not schedule.whose
        ]
    remembers, redelivery = settings.inbox_retention, max(ports.broker.sheet.redelivery_s, longest_log(settings))
    for name, handlers in service.declared.consumers.items():
        if keeper is not None:
            problems += keeper.read_problems(service.name, name, topics_of(handlers))
        problems += problems_of(name, handlers, ports.store, remembers=remembers, redelivery=redelivery)
    return problems
