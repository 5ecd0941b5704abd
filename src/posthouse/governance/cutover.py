"""Cut-over: which versions are published and applied by whom, when last; and whether one may be retired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import date

import msgspec

from posthouse.app import app_of, apps_of
from posthouse.contracts.retirement import Dual, Evidence, Use, Watch
from posthouse.governance.document import Document, TopicEntry
from posthouse.governance.listing import catalogue_of
from posthouse.service import Service
from posthouse.store import HeldFilter, VersionUse


class VersionLine(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one fact. `producers` and `consumers` are those that declare it or were seen with it; each with the
    time that it was last published or applied, in seconds since 1970, None when that was never seen. Versions of facts
    that have no other version and no date are not watched at their producer."""

    subject: str
    producers: Mapping[str, float | None]
    consumers: Mapping[str, float | None]
    beside: str | None = None
    """The newer version that it is published beside."""
    successor: str | None = None
    deprecated: date | None = None
    retired: date | None = None


async def versions_of(services: Sequence[Service], retired: Mapping[str, date]) -> Sequence[VersionLine]:
    """What these services declare and what their stores have seen, sorted by fact and version."""
    document = catalogue_of(services)
    seen = [use for app in apps_of(services) for use in await app.store.version_usage.seen()]
    beside = {old: new for service in services for old, new in service.declared.published_beside.items()}
    subjects = {entry.subject for entry in document.events} | {s.subject for s in seen if s.subject}
    subjects |= {reading.subject for handler in document.handlers for reading in handler.reads}
    return [
        _line(subject, document, seen, beside.get(subject), retired.get(subject))
        for subject in sorted(subjects, key=_by_version)
    ]


async def evidence_of(
    subject: str, services: Sequence[Service], topics: Sequence[TopicEntry], unseen: Collection[str]
) -> Evidence:
    """What is known about the use of a subject. `topics` are the frozen ones: they name the consumers of services that are
    not at hand; of these, `unseen` are vouched for."""
    seen = {service.name: await app_of(service).store.version_usage.seen() for service in services}
    found = {use for usage in seen.values() for use in usage if use.subject == subject}  # services may share a store
    uses = [Use(who=use.party, what=use.role, at=use.last_at) for use in sorted(found, key=lambda use: use.party)]
    places = (subject, subject.rpartition(".v")[0].rpartition(".")[0])  # a topic per subject, or per aggregate
    readers = {reader for entry in topics if entry.name in places for reader in entry.consumers}
    names = [service.name for service in services]
    return Evidence(
        subject=subject,
        uses=uses,
        watched=[Watch(service=service.name, since=_since(seen[service.name], service.name)) for service in services],
        beside=[service.name for service in services if subject in service.declared.published_beside],
        unasked=[name for name in readers if name.partition(".")[0] not in names and name not in unseen],
        held=await _held(subject, services),
        dual=_dual(subject, services, [use for usage in seen.values() for use in usage if use.role == "published"]),
    )


def _line(
    subject: str, document: Document, seen: Sequence[VersionUse], beside: str | None, retired: date | None
) -> VersionLine:
    entry = document.event(subject)
    producers: dict[str, float | None] = {} if entry is None else {entry.service: None}
    consumers: dict[str, float | None] = dict.fromkeys(
        handler.consumer
        for handler in document.handlers
        if any(reading.subject == subject for reading in handler.reads)
    )
    for use in seen:
        if use.subject == subject:
            party = producers if use.role == "published" else consumers
            party[use.party] = use.last_at
    return VersionLine(
        subject=subject,
        producers=dict(sorted(producers.items())),
        consumers=dict(sorted(consumers.items())),
        beside=beside,
        successor=None if entry is None else entry.successor,
        deprecated=None if entry is None else entry.deprecated,
        retired=retired,
    )


def _dual(subject: str, services: Sequence[Service], published: Sequence[VersionUse]) -> Dual | None:
    """By what relays have noted. The version that counts is the next one."""
    fact, number = _by_version(subject)
    newer = sorted(
        (version, other)
        for other in {entry.subject for entry in catalogue_of(services).events} | {use.subject for use in published}
        for name, version in [_by_version(other)]
        if name == fact and version > number
    )
    until = max((use.last_at for use in published if use.subject == subject), default=None)
    if not newer or until is None:
        return None
    successor = newer[0][1]
    since = min((use.first_at for use in published if use.subject == successor), default=None)
    return Dual(newer=successor, since=since, until=until)


def _since(usage: Sequence[VersionUse], service: str) -> float | None:
    return next((s.first_at for s in usage if s.role == "running" and s.party == service), None)


async def _held(subject: str, services: Sequence[Service]) -> Mapping[str, int]:
    """How many events of a subject each consumer holds and has not given up."""
    held: Counter[str] = Counter()
    for app in apps_of(services):
        async for event in app.held.find(HeldFilter()):
            if event.type == subject and event.state != "skipped":
                held[event.consumer] += 1
    return held


def _by_version(subject: str) -> tuple[str, int]:
    unversioned, _, version = subject.rpartition(".v")
    return unversioned, int(version) if version.isdecimal() else 0
