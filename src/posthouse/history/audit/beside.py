"""Beside: whether an archive still holds what was logged. The log is signed, and the archive is what is queried and replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from posthouse.errors import AuditDamaged
from posthouse.history.archive.reading import ArchiveReader, Range
from posthouse.history.audit.batches import (
    EVENTS,
    BatchError,
    Travelled,
    first_in,
    read_batch,
    read_travelled,
    travelled,
)
from posthouse.history.audit.findings import Finding
from posthouse.history.audit.place import Place


async def beside(place: Place, archive: ArchiveReader) -> list[Finding]:
    """Logged events that the archive does not hold, or not as they were logged, and in what they differ. What it holds beside them is
    not asked about: a log need not have every class. In memory: some hundred bytes for each logged event, and those that differ."""
    missing = {sha256(event).digest(): position for position, event in _logged(place)}
    async for page in archive.read(Range()):
        for one in page:
            missing.pop(sha256(travelled(one.frame)).digest(), None)
    if not missing:
        return []
    positions = set(missing.values())
    logged = {position: _read(event) for position, event in _logged(place) if position in positions}
    ids = {event.id for event in logged.values()}
    others: dict[str, list[Travelled]] = {}
    async for page in archive.read(Range()):
        for one in page:
            if one.frame.id in ids:
                others.setdefault(one.frame.id, []).append(_read(travelled(one.frame)))
    return [_told(position, event, others.get(event.id, ())) for position, event in logged.items()]


def _told(position: int, event: Travelled, others: Sequence[Travelled]) -> Finding:
    who = f"event {event.id}, logged at position {position:,},"
    if not others:
        return Finding("removed", f"{who} is not in the archive", event.id, position)
    parts = min((_parts(event, other) for other in others), key=len)
    return Finding("changed", f"{who} is another one in the archive: {'; '.join(parts)}", event.id, position)


def _parts(event: Travelled, other: Travelled) -> list[str]:
    """In what two events of one id differ; no value of a header or a body is said, it may be secret."""
    ours, theirs = dict(event.headers), dict(other.headers)
    found = [
        f"its {name} is {there!r} there, and {here!r} was logged"
        for name, here, there in (("topic", event.topic, other.topic), ("key", event.key, other.key))
        if here != there
    ]
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in theirs:
            found.append(f"its header {name!r} is missing there")
        elif name not in ours:
            found.append(f"its header {name!r} was not logged")
        elif ours[name] != theirs[name]:
            found.append(f"its header {name!r} has another value")
    if event.body != other.body:
        found.append(f"its body of {len(event.body):,} bytes is one of {len(other.body):,} there")
    return found


def _read(event: bytes) -> Travelled:
    try:
        return read_travelled(event)
    except BatchError as error:
        raise AuditDamaged(f"an event of the log: {error}") from error


def _logged(place: Place) -> Iterator[tuple[int, bytes]]:
    for path in place.list(EVENTS):
        if first_in(path) is None:
            continue
        try:
            batch = read_batch(place.get(path) or b"")
        except BatchError as error:
            raise AuditDamaged(f"{path} in {place.name}: {error}") from error
        yield from enumerate(batch.events, batch.first)
