"""Gathering: from services, their code and the project's settings to the facts that the rules look at."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec

from posthouse.app import app_of, apps_of
from posthouse.cli.check.sources import sources_in, sources_of
from posthouse.contracts import EventType
from posthouse.contracts.personal import classes_inside, marked_attributes, personal_fields, personal_places
from posthouse.contracts.whose import owner_of
from posthouse.errors import ConfigurationError
from posthouse.governance.entitled import rights_kept
from posthouse.governance.listing import catalogue_of
from posthouse.governance.policies import RULES, Facts, Identifier, PayloadClass, Settings, read, settings_of
from posthouse.governance.policies.facts import LogAge
from posthouse.processes import Saga
from posthouse.processes.saga.declared import SagaType
from posthouse.service import Service
from posthouse.trust.rights import Party

PER_TOPIC = ("kafka", "nats")
"""Brokers on which each topic has an age of its own, which the classes set."""


def facts_of(
    services: Sequence[Service], settings: Settings, *, root: Path, today: date, modules: Iterable[str] = ()
) -> Facts:
    """Everything that can be known without opening a store or a broker. Files are named from `root`; `modules` are read beside
    those that declare something."""
    not_past = tuple(fact for service in services for fact in service.not_past)
    settings = msgspec.structs.replace(settings, not_past=(*settings.not_past, *not_past))
    sources = sources_in(settings.sources, root) if settings.sources else sources_of(services, modules, root)
    return Facts(
        document=catalogue_of(services),
        today=today,
        settings=settings,
        classes={known.name: _class(known) for known in _own_events(services)},
        inbox_retention={service.name: app_of(service).settings.inbox_retention for service in services},
        logs=tuple(_logs(services)),
        sagas=frozenset(_saga_classes(services)),
        identifiers=tuple(_identifiers(services)),
        schedules=frozenset(one.handler.name for service in services for one in service.declared.schedules),
        code=read(sources),
        parties={service.name: Party(service.name, service.namespace) for service in services},
        rights=tuple(rights for rights, _ in rights_kept(services)),
    )


def settings_in(folder: Path) -> tuple[Settings, Path]:
    """The settings of the nearest pyproject.toml, in the folder or above it, and where that lies; the folder itself where
    there is none."""
    for place in (folder, *folder.parents):
        if (file := place / "pyproject.toml").is_file():
            return settings_of(_table(file), RULES), place
    return Settings(), folder


def _own_events(services: Iterable[Service]) -> Iterable[EventType[object]]:
    return (known for service in services for known in service.declared.catalogue if not known.external)


def _logs(services: Iterable[Service]) -> Iterator[LogAge]:
    """Of brokers that keep all topics alike. One that was given as an object is not asked: that would open it."""
    for app in apps_of(list(services)):
        classes, url = app.settings.retention, urlsplit(app.opened.ports.broker_url)
        said = dict(parse_qsl(url.query)).get("retention")
        if classes is None or said is None or url.scheme in PER_TOPIC or (seconds := _number(said)) is None:
            continue
        for topic, kept in classes.of_topics(k for one in app.services for k in one.declared.own_events).items():
            yield LogAge(topic=topic, said=seconds, log=kept.log, archive=kept.archive)


def _number(said: str) -> float | None:
    try:
        return float(said)
    except ValueError:  # whoever opens it says so
        return None


def _saga_classes(services: Iterable[Service]) -> Iterable[str]:
    types = (of for service in services for of in service.declared.saga_types.values())
    return (_full_name(base) for of in types for base in of.cls.__mro__ if issubclass(base, Saga) and base is not Saga)


def _class(event_type: EventType[object]) -> PayloadClass:
    cls = event_type.payload.cls
    return PayloadClass(
        name=_full_name(cls),
        ancestors=tuple(_full_name(base) for base in cls.__mro__[1:]),
        personal=personal_fields(cls),
        marked=frozenset(
            {path.rpartition(".")[2] for path in personal_fields(cls)}.union(
                *map(marked_attributes, classes_inside(cls))
            )
        ),
    )


def _identifiers(services: Iterable[Service]) -> Iterator[Identifier]:
    for service in services:
        for known in service.declared.catalogue:
            if not known.external:
                yield from _of_event(known)
        for of in service.declared.saga_types.values():
            yield from _of_saga(of)


def _of_event(known: EventType[object]) -> Iterator[Identifier]:
    cls = known.payload.cls
    where, owner = known.name, _full_name(cls)
    if known.key is not None:
        marked = _is_marked(cls, known.key)
        yield Identifier(where=where, owner=owner, field=known.key, role=f"{where} is ordered by", marked=marked)
    whose = {owner_of(place, known.about) for place in personal_places(cls)} | {known.about}
    for field in sorted(whose - {""}):
        yield Identifier(where=where, owner=owner, field=field, role=f"{where} says whom it is about by")


def _of_saga(of: SagaType) -> Iterator[Identifier]:
    owner = _full_name(of.cls)
    marked = _is_marked(of.cls, of.correlate)
    yield Identifier(where=owner, owner=owner, field=of.correlate, role=f"{owner} is known by", marked=marked)
    for known, field in of.correlated:
        marked = _is_marked(known.payload.cls, field)
        yield Identifier(
            where=owner, owner=owner, field=field, role=f"{owner} is found by {known.name}'s", marked=marked
        )


def _is_marked(cls: type, field: str) -> bool:
    return field in personal_fields(cls) or field in marked_attributes(cls)


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _table(file: Path) -> Mapping[str, object]:
    try:
        table: object = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from error
    for name in ("tool", "posthouse", "check"):
        table = table.get(name, {}) if isinstance(table, Mapping) else {}
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{file}: tool.posthouse.check must be a table")
    return table
