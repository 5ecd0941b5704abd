"""Retaining: how long topics keep frames, and what lets go of rows, as an App's settings say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posthouse.contracts.retention import CLASSES
from posthouse.history.audit.place import open_place
from posthouse.history.sweep import Sweep
from posthouse.service import Service
from posthouse.settings import Settings
from posthouse.store import CoreStore


def ages_of(services: Sequence[Service], settings: Settings) -> Mapping[str, float]:
    """For how many seconds the topics of some services keep frames, where somebody has said what the classes mean."""
    classes = settings.retention
    if classes is None:
        return {}
    topics = classes.of_topics(known for service in services for known in service.declared.own_events)
    return {topic: kept.log for topic, kept in topics.items()}


def longest_log(settings: Settings) -> float:
    """The longest time after which a frame may come again because a class keeps it so long."""
    classes = settings.retention
    return 0.0 if classes is None else max(classes.of(name).log for name in CLASSES)


def sweep_of(store: CoreStore, settings: Settings) -> Sweep:
    """What lets go of rows. ConfigurationError where they are to go to a place that cannot be."""
    folder = open_place(settings.archive_rows) if settings.archive_rows else None
    return Sweep(store, settings.inbox_retention, settings.held_retention, folder)
