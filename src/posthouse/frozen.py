"""Frozen: what a running service asks of the folder of frozen schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path

from posthouse.contracts import EventType
from posthouse.contracts.lock import LOCK, Lock, read_lock
from posthouse.contracts.retirement import RETIRED, read_retired
from posthouse.errors import ConfigurationError


def lock_in(folder: Path) -> Lock:
    """The lock of a bundle, without its schemas. Raises ConfigurationError, also when there is none."""
    try:
        return read_lock((folder / LOCK).read_bytes())
    except OSError as error:
        raise ConfigurationError(
            f"{folder} holds no frozen catalogue ({error.strerror}): run `posthouse catalog freeze --dir {folder}`"
        ) from error


def retired_in(folder: Path) -> Mapping[str, date]:
    """The subjects that were retired, by the folder's list, and when. Raises ConfigurationError."""
    try:
        return read_retired((folder / RETIRED).read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigurationError(f"cannot read {folder / RETIRED}: {error.strerror}") from error


def unfrozen(folder: Path, events: Iterable[EventType[object]]) -> list[str]:
    """Why these events must not be published: their schemas are not the frozen ones, so that readers would hold them."""
    try:
        locked = {entry.subject: entry.hash for entry in lock_in(folder).schemas.values()}
    except ConfigurationError as error:
        return list(error.problems)
    return [
        f"{event_type.name} is {'not as ' if event_type.name in locked else 'not '}frozen in {folder}: run `posthouse catalog "
        f"freeze --dir {folder}` and publish the result"
        for event_type in events
        if locked.get(event_type.name) != event_type.payload.schema.hash
    ]
