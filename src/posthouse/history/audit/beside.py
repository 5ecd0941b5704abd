"""Beside: whether an archive still holds what was logged. The log is signed, and the archive is what is queried and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from posthouse.errors import AuditDamaged
from posthouse.history.archive.reading import ArchiveReader, Range
from posthouse.history.audit.batches import EVENTS, BatchError, first_in, id_of, read_batch, travelled
from posthouse.history.audit.findings import Finding
from posthouse.history.audit.place import Place


async def beside(place: Place, archive: ArchiveReader) -> list[Finding]:
    """Logged events that the archive does not hold, or not as they were logged. What it holds beside them is not asked about: a log need
    not have every class. In memory: some hundred bytes for each logged event."""
    missing: dict[bytes, tuple[str, int]] = {}
    missing.update(_logged(place))
    ids = {id for id, _ in missing.values()}
    others: set[str] = set()
    async for page in archive.read(Range()):
        for one in page:
            if missing.pop(sha256(travelled(one.frame)).digest(), None) is None and one.frame.id in ids:
                others.add(one.frame.id)
    return [
        Finding("changed", f"event {id}, logged at position {position:,}, is another one in the archive", id, position)
        if id in others
        else Finding("removed", f"event {id}, logged at position {position:,}, is not in the archive", id, position)
        for id, position in missing.values()
    ]


def _logged(place: Place) -> Iterator[tuple[bytes, tuple[str, int]]]:
    for path in place.list(EVENTS):
        if first_in(path) is None:
            continue
        try:
            batch = read_batch(place.get(path) or b"")
            for position, event in enumerate(batch.events, batch.first):
                yield sha256(event).digest(), (id_of(event), position)
        except BatchError as error:
            raise AuditDamaged(f"{path} in {place.name}: {error}") from error
