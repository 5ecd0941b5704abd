"""Aligning: events as they were logged beside events as they are there, and what must have been done to get from one to the other.
Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from posthouse.history.audit.batches import DIGEST, entry
from posthouse.history.audit.findings import Finding, Kind
from posthouse.history.audit.merkle import leaf

MANY = 16
"""More events than this that were done the same to, side by side, are told as one."""


class Logged(msgspec.Struct, frozen=True, gc=False):
    """What was signed at a position. `entry`: None where no copy of it is left; `salt`: the one that is there for the position."""

    position: int
    leaf: bytes
    entry: bytes | None
    salt: bytes | None

    @property
    def id(self) -> str | None:
        return None if self.entry is None else self.entry[DIGEST:].decode(errors="replace")


class There(msgspec.Struct, frozen=True, gc=False):
    """An event that is there: where it stands, its id, and the salt beside it; the id is None where it cannot be read."""

    position: int
    id: str | None
    salt: bytes | None
    event: bytes


class Change(msgspec.Struct, frozen=True):
    """What was done to one event: `position` is where it was logged, or where it stands if it never was."""

    kind: Kind
    position: int
    id: str | None
    now: int | None = None


def align(logged: Sequence[Logged], there: Sequence[There]) -> list[Change]:
    """What was done, in the order of positions."""
    by_id = {one.id: one for one in reversed(logged) if one.entry is not None}
    by_leaf = {one.leaf: one for one in logged}
    pairs: list[tuple[Logged, There]] = []
    extra: list[There] = []
    taken: set[int] = set()
    for event in there:
        match = by_leaf.get(_leaf(event)) or (None if event.id is None else by_id.get(event.id))
        if match is None or match.position in taken:
            extra.append(event)
        else:
            taken.add(match.position)
            pairs.append((match, event))
    gone = [one for one in logged if one.position not in taken]
    pairs += (renamed := list(_renamed(gone, extra)))
    pairs.sort(key=lambda pair: pair[1].position)
    lost, new = {one.position for one, _ in renamed}, {event.position for _, event in renamed}
    in_order = _longest_rising([one.position for one, _ in pairs])
    changes = [Change("removed", one.position, one.id) for one in gone if one.position not in lost]
    changes += [Change("added", event.position, event.id) for event in extra if event.position not in new]
    for one, event in pairs:
        if not _is(one, event):
            changes.append(Change("changed", one.position, one.id or event.id))
        elif one.position not in in_order:
            changes.append(Change("reordered", one.position, one.id or event.id, event.position))
    return sorted(changes, key=lambda change: change.position)


def _renamed(gone: Iterable[Logged], extra: Iterable[There]) -> Iterator[tuple[Logged, There]]:
    """An event whose id is another one now stands where it was logged."""
    at = {event.position: event for event in extra}
    return ((one, at[one.position]) for one in gone if one.position in at)


def _is(one: Logged, event: There) -> bool:
    """Whether an event is the one that was logged, under either salt that may be its own."""
    salts = [salt for salt in (event.salt, one.salt) if salt is not None]
    return event.id is not None and any(leaf(entry(salt, event.event, event.id)) == one.leaf for salt in salts)


def _leaf(event: There) -> bytes:
    return b"" if event.salt is None or event.id is None else leaf(entry(event.salt, event.event, event.id))


def _longest_rising(positions: Sequence[int]) -> set[int]:
    """The most of them that stand in order: the others were moved."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for at, position in enumerate(positions):
        length = bisect_left(tails, position)
        before.append(ends[length - 1] if length else -1)
        tails[length : length + 1] = [position]
        ends[length : length + 1] = [at]
    found: set[int] = set()
    at = ends[-1] if ends else -1
    while at >= 0:
        found.add(positions[at])
        at = before[at]
    return found


def told(changes: Sequence[Change]) -> Iterator[Finding]:
    """Changes in words. Where an event is missing in one place and too many in another, it was moved."""
    removed = {change.id: change for change in changes if change.kind == "removed" and change.id is not None}
    added = {change.id: change for change in changes if change.kind == "added" and change.id in removed}
    left = [c for c in changes if c.id not in added or c.kind not in ("removed", "added")]
    left += [Change("reordered", removed[id].position, id, new.position) for id, new in added.items()]
    for run in _runs(sorted(left, key=lambda change: (change.position, change.kind))):
        if len(run) > MANY:
            yield _many(run)
        else:
            yield from map(_one, run)


def _runs(changes: Sequence[Change]) -> Iterator[list[Change]]:
    run: list[Change] = []
    for change in changes:
        if run and (change.kind != run[-1].kind or change.position != run[-1].position + 1):
            yield run
            run = []
        run.append(change)
    if run:
        yield run


def _one(change: Change) -> Finding:
    who = f"event {change.id}" if change.id is not None else "an event whose id nobody knows any more"
    what = {
        "changed": f"{who} at position {change.position:,} was changed",
        "removed": f"{who} at position {change.position:,} was removed",
        "added": f"{who} was added at position {change.position:,}: it was never signed",
        "reordered": f"{who} was moved: it was logged at position {change.position:,}, and stands at {change.now or 0:,}",
    }[change.kind]
    return Finding(change.kind, what, change.id, change.position)


def _many(run: Sequence[Change]) -> Finding:
    first, last = run[0], run[-1]
    words = f"{len(run):,} events at positions {first.position:,} to {last.position:,} were {first.kind}"
    return Finding(first.kind, f"{words}: {first.id or '?'} to {last.id or '?'}", first.id, first.position)
