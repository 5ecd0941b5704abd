"""Verifying: whether an archive is what was written: its log, every file, and the numbers of every key."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from posthouse.errors import ArchiveDamaged
from posthouse.history.archive.counting import COLUMNS as COUNTED
from posthouse.history.archive.counting import counting
from posthouse.history.archive.files import File
from posthouse.history.archive.finding import Finding
from posthouse.history.archive.journal import read_marker
from posthouse.history.archive.log import Manifest, names_of
from posthouse.history.archive.places import Place
from posthouse.history.archive.reading import Range
from posthouse.history.archive.replaying import Replayed, replayed
from posthouse.history.archive.stretches import Stretch, overlapping, streams_of

COLUMNS = tuple(dict.fromkeys((*COUNTED, "retention", "topic", "partition", "offset", "digest")))


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at, and what was found."""

    generation: int
    files: int
    events: int
    bytes: int
    findings: Sequence[Finding]

    @property
    def sound(self) -> bool:
        """Nothing is wrong with it."""
        return not any(finding.fault for finding in self.findings)


def verify(
    place: Place,
    *,
    known: int = 0,
    planned: Callable[[], Sequence[str]] = tuple,
    told: Callable[[int, int], None] | None = None,
) -> Verified:
    """Read everything that is live, and list what lies there. `known`: the last entry of the log that a store knows; `planned` says
    which objects somebody is about to write, and is asked after they were listed. `told` hears how many files of how many were read.
    Raises ArchiveDamaged where there is no archive at all."""
    marker, listed = read_marker(place), [found.name for found in place.names("data/")]
    about = set(planned())
    log = replayed(place, known)
    if marker is None and not log.manifest.generation:
        raise ArchiveDamaged(
            f"{place.url} has no archive: name the place that `posthouse run --only archive` writes to"
        )
    findings = (
        [] if marker is not None else [Finding("marker", "archive.json", "it is missing: the archive is nobody's")]
    )
    manifest, events, bad = log.manifest, 0, list[File]()
    findings += log.findings
    findings += _of_listing(place, log, [name for name in listed if name not in about])
    files = sorted(manifest.files.values(), key=lambda file: (file.topic, file.day, file.name))
    with counting(log.expired) as count:
        for done, file in enumerate(files, start=1):
            table, found = _of_file(place, file)
            if table is not None:
                events += table.num_rows
                findings += count.add(file.topic, table)
            if found is not None:
                findings.append(found)
                bad.append(file)
            if told is not None:
                told(done, len(files))
        findings += count.findings()
    return Verified(
        generation=manifest.generation,
        files=len(files),
        events=events,
        bytes=sum(file.bytes for file in files),
        findings=[*findings, *_days(manifest, bad), *_holes(manifest)],
    )


def _of_listing(place: Place, log: Replayed, listed: Sequence[str]) -> Iterator[Finding]:
    """What was listed before the log was read, and is in none of its entries; what is gone meanwhile is no matter."""
    manifest = log.manifest
    once = names_of(log.entries) | {name for entry in log.entries for name in entry.abandoned}
    for name in listed:
        if name in manifest.files or name in manifest.gone or place.size(name) is None:
            continue
        if name not in once:
            yield Finding("foreign", name, "no entry that can be read names it, and nobody reads it")
        else:
            yield Finding("left over", name, "it was written after its plan had been given up, and nobody reads it")


def _of_file(place: Place, file: File) -> tuple[pa.Table | None, Finding | None]:
    """What is in it, as far as it can be read, and what is wrong with it."""
    size = place.size(file.name)
    if size is None:
        return None, Finding("missing", file.name, f"it is missing, with {file.rows:,} events")
    if size < file.bytes:
        return None, Finding("truncated", file.name, f"it has {size:,} bytes of {file.bytes:,}")
    with place.open(file.name, size) as source:
        data = source.read()
    if hashlib.sha256(data).hexdigest() != file.sha256:
        return None, Finding("changed", file.name, "its bytes are not those that were written")
    try:
        table = pq.read_table(io.BytesIO(data), columns=list(COLUMNS))
    except pa.ArrowException as error:
        return None, Finding("wrong", file.name, f"it cannot be read: {str(error).splitlines()[0][:200]}")
    wrong = _misfit(file, table)
    return table, Finding("wrong", file.name, wrong) if wrong else None


def _misfit(file: File, table: pa.Table) -> str:
    """What the log says of a file and is not so; empty where all of it is."""
    if table.num_rows != file.rows:
        return f"it has {table.num_rows:,} rows, and its entry in the log says {file.rows:,}"
    if (digests := len(table["digest"].unique())) != file.rows:
        return f"it has {file.rows - digests:,} events twice"
    if table["retention"].unique().to_pylist() != [file.retention] or table["topic"].unique().to_pylist() != [
        file.topic
    ]:
        return "it has events of another class or topic than its entry in the log says"
    spans = (
        table.group_by("partition").aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")]).to_pylist()
    )
    found = {each["partition"]: (each["offset_min"], each["offset_max"], each["offset_count"]) for each in spans}
    return "" if found == dict(file.partitions) else "it has other positions than its entry in the log says"


def _days(manifest: Manifest, bad: Sequence[File]) -> Iterator[Finding]:
    """Days of a topic of which no file is left."""
    every: dict[tuple[str, str], int] = {}
    for file in manifest.files.values():
        every[file.topic, file.day] = every.get((file.topic, file.day), 0) + 1
    lost: dict[tuple[str, str], list[File]] = {}
    for file in bad:
        lost.setdefault((file.topic, file.day), []).append(file)
    for (topic, day), files in sorted(lost.items()):
        if len(files) == every[topic, day]:
            events = sum(file.rows for file in files)
            yield Finding(
                "day", f"{topic} {day}", f"nothing of this day can be read: {events:,} events in {len(files):,} files"
            )


def _holes(manifest: Manifest) -> Iterator[Finding]:
    """Positions between files that are in none."""
    for stretches in streams_of(manifest, Range()):
        before: Stretch | None = None
        for together in overlapping(stretches):
            first = together[0]
            if before is not None and first.first > before.last + 1:
                where = f"{first.file.topic}, partition {first.partition}"
                days = (
                    before.file.day if before.file.day == first.file.day else f"{before.file.day} to {first.file.day}"
                )
                yield Finding("hole", where, f"{before.last + 1} to {first.first - 1} are in no file ({days})")
            before = max(together, key=lambda stretch: stretch.last)
