"""What was sent and what was delivered, made comparable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from posthouse.broker import Delivery, Frame


def ids(deliveries: Iterable[Delivery]) -> set[str]:
    return {delivery.frame.id for delivery in deliveries}


def ids_of(frames: Iterable[Frame]) -> set[str]:
    return {frame.id for frame in frames}


def by_key(frames: Iterable[Frame]) -> dict[str | None, list[str]]:
    """The ids of each key, in order."""
    keys: dict[str | None, list[str]] = defaultdict(list)
    for frame in frames:
        keys[frame.key].append(frame.id)
    return keys


def first_by_key(deliveries: Iterable[Delivery]) -> dict[str | None, list[str]]:
    """The ids of each key in the order in which they came first; repeats do not count."""
    keys: dict[str | None, dict[str, None]] = defaultdict(dict)
    for delivery in deliveries:
        keys[delivery.frame.key][delivery.frame.id] = None
    return {key: list(found) for key, found in keys.items()}
