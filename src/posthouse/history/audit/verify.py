"""Verify: whether a log is still what was signed, on its files alone, and what was done to it if not.

One pass over the events makes the tree again, and compares every file and every root on the way. Only where something differs is it
asked, in `differences.py`, which event it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from posthouse.history.audit.batches import EVENTS, BatchError, entries, first_in, read_batch, write_bundle
from posthouse.history.audit.checkpoints import Signed
from posthouse.history.audit.differences import differences, unsigned
from posthouse.history.audit.findings import Finding
from posthouse.history.audit.merkle import leaves
from posthouse.history.audit.notes import Verifier
from posthouse.history.audit.place import Place
from posthouse.history.audit.survey import survey
from posthouse.history.audit.tiles import WIDTH, Edge, Written, tile_path

Progress = Callable[[int], None]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` found. `events`: how many are in the log; `signed`: how many of them are under a checkpoint."""

    findings: Sequence[Finding]
    events: int
    signed: int
    checkpoints: int
    newest: Signed | None


def verify(
    place: Place, keys: Sequence[Verifier], second: Place | None = None, progress: Progress = lambda events: None
) -> Report:
    """Look at everything. `second` holds copies of checkpoints and tiles. AuditUnavailable where a place does not answer."""
    surveyed = survey(place, keys, second)
    signed, findings = surveyed.signed, [*surveyed.findings]
    limits = {place: max(signed, default=0)} | ({} if second is None else {second: surveyed.copied})
    listed = list(place.list(EVENTS))
    paths = [path for path in listed if first_in(path) is not None]
    findings += [
        Finding("file", f"{path} in {place.name} is no file of this log: somebody put it there")
        for path in listed
        if first_in(path) is None
    ]
    again = _Again(limits, signed)
    if not all(again.takes(path, progress) for path in paths) or not again.ends_well():
        findings += [*differences(limits, signed, paths), *unsigned(place, paths, max(signed, default=0))]
        if not findings:
            findings.append(Finding("unknown", f"{place.name} is not what was signed, and nobody can tell where"))
    newest = signed[max(signed)] if signed else None
    size = newest.checkpoint.size if newest else 0
    return Report(findings=findings, events=max(again.size, size), signed=size, checkpoints=len(signed), newest=newest)


class _Again:
    """The tree, made again from the events."""

    def __init__(self, limits: Mapping[Place, int], signed: Mapping[int, Signed]) -> None:
        self._limits = limits
        """The places, each with the number of events that it has files of."""
        self._place = next(iter(limits))
        self._signed = signed
        self._end = max(signed, default=0)
        self._edge = Edge()
        self._waiting: list[bytes] = []
        """Entries of the bundle that is not full yet."""
        self.size = 0

    def takes(self, path: str, progress: Progress) -> bool:
        """Whether the next batch is as it was signed, with all that follows from it; nothing is asked of one that is not signed yet."""
        try:
            batch = read_batch(self._place.get(path) or b"")
            fresh = entries(batch)
        except BatchError:
            return False
        if not batch.events or not batch.first == first_in(path) == self.size:
            return False
        begins, self.size = self.size, self.size + len(fresh)
        if begins < self._end < self.size:
            return False
        files = [*self._bundles(begins, fresh), *self._edge.add(leaves(fresh))]
        progress(self.size)
        return self.size > self._end or (self._there(files) and self._root_holds())

    def ends_well(self) -> bool:
        """Whether nothing that was signed is missing at the end."""
        return self.size >= self._end and (self.size > 0 or self._root_holds())

    def _bundles(self, begins: int, fresh: Sequence[bytes]) -> Iterator[Written]:
        number = begins // WIDTH
        self._waiting += fresh
        while len(self._waiting) >= WIDTH:
            yield tile_path("entries", number), write_bundle(self._waiting[:WIDTH])
            del self._waiting[:WIDTH]
            number += 1

    def _at_edge(self) -> Iterator[Written]:
        yield from self._edge.partial_tiles()
        if self._waiting:
            path = tile_path("entries", self.size // WIDTH, len(self._waiting))
            yield path, write_bundle(self._waiting)

    def _root_holds(self) -> bool:
        signed = self._signed.get(self.size)
        if signed is None:
            return True
        return signed.checkpoint.root == self._edge.root() and self._there(self._at_edge(), partial=True)

    def _there(self, files: Iterable[Written], *, partial: bool = False) -> bool:
        """Whether files are what they have to be, in every place that is so far. Partial tiles that were filled since are not needed."""
        return all(
            (found := place.get(path)) == data
            or (found is None and (self.size > limit or (partial and self.size < limit)))
            for path, data in files
            for place, limit in self._limits.items()
        )
