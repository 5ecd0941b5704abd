"""Tree: events in the order in which one led to the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from posthouse.tracing.spot import Spot

DRAWN = 24
"""Lines are drawn for so many generations: what follows is told by its depth alone."""


class Branch(NamedTuple):
    """One event in the tree; `depth` is 0 for what nothing found here led to. `last` tells for it and its ancestors below
    the root, from the top down, whether it is the last of its siblings: enough to draw lines. `cause` is the id of an event
    that led to it and was not found."""

    spot: Spot
    depth: int
    last: tuple[bool, ...]
    has_children: bool
    cause: str | None = None


def branches(spots: Mapping[str, Spot]) -> list[Branch]:
    """Every event once, causes before what they caused, siblings in the order of time. No recursion: a chain may be as long
    as it likes, and one that bites its own tail is cut."""
    children: dict[str | None, list[Spot]] = {}
    for spot in sorted(spots.values(), key=lambda spot: (spot.at, spot.event.id)):
        cause = spot.event.causation
        known = cause in spots and cause != spot.event.id
        children.setdefault(cause if known else None, []).append(spot)
    seen: set[str] = set()
    found = list(_walk(children.get(None, ()), children, seen))
    for spot in spots.values():
        if spot.event.id not in seen:
            found += _walk([spot], children, seen)
    return [_with_cause(branch, spots) for branch in found]


def _walk(roots: Iterable[Spot], children: Mapping[str | None, list[Spot]], seen: set[str]) -> Iterator[Branch]:
    waiting: list[tuple[Spot, int, tuple[bool, ...]]] = [(root, 0, ()) for root in reversed(list(roots))]
    while waiting:
        spot, depth, last = waiting.pop()
        if spot.event.id in seen:
            continue
        seen.add(spot.event.id)
        below = children.get(spot.event.id, [])
        yield Branch(spot, depth, last, bool(below))
        for number, child in enumerate(reversed(below)):
            waiting.append((child, depth + 1, (*last, number == 0) if depth < DRAWN else last))


def _with_cause(branch: Branch, spots: Mapping[str, Spot]) -> Branch:
    cause = branch.spot.event.causation
    return branch._replace(cause=cause) if branch.depth == 0 and cause is not None and cause not in spots else branch
