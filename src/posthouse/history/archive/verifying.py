"""Verifying: whether an archive is what was written: its log, every file, and the numbers of every key."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from posthouse.errors import ArchiveDamaged
from posthouse.history.archive.files import File
from posthouse.history.archive.journal import read_marker
from posthouse.history.archive.log import LOG, Entry, Manifest, entry_name, names_of, read_log
from posthouse.history.archive.places import Place
from posthouse.history.archive.reading import Range
from posthouse.history.archive.stretches import Stretch, overlapping, streams_of

Kind = Literal[
    "missing", "truncated", "changed", "wrong", "foreign", "log", "marker", "numbers", "day", "hole", "left over"
]
"""A `hole` and what is `left over` are told and are no fault: events that came twice are archived once, and leave a hole."""
HARMLESS: frozenset[Kind] = frozenset(("hole", "left over"))
NAMED = 20
"""So many keys of a topic are named whose numbers are not whole."""
KEYS = ("tenant", "key", "lineage")
COLUMNS = (*KEYS, "sequence", "retention", "topic", "partition", "offset", "received", "digest")


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be, and what it is."""

    kind: Kind
    name: str
    words: str

    @property
    def fault(self) -> bool:
        """Whether the archive is not sound because of it."""
        return self.kind not in HARMLESS


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


def verify(place: Place, *, planned: Sequence[str] = (), told: Callable[[int, int], None] | None = None) -> Verified:
    """Read everything that is live, and list what lies there. `planned`: objects that somebody is about to write. `told` hears how many
    files of how many were read. Raises ArchiveDamaged where there is no archive at all."""
    marker = read_marker(place)
    entries = read_log(place)
    if marker is None and not entries:
        raise ArchiveDamaged(
            f"{place.url} has no archive: name the place that `posthouse run --only archive` writes to"
        )
    findings = (
        [] if marker is not None else [Finding("marker", "archive.json", "it is missing: the archive is nobody's")]
    )
    manifest = Manifest()
    for entry in entries:
        manifest = manifest.after(entry)
    findings += _of_log(place, entries)
    findings += _of_listing(place, entries, manifest, planned)
    numbers, events = _Numbers(), 0
    bad: list[File] = []
    files = sorted(manifest.files.values(), key=lambda file: (file.topic, file.day, file.name))
    for done, file in enumerate(files, start=1):
        table, found = _of_file(place, file)
        if table is not None:
            events += table.num_rows
            numbers.add(file.topic, table)
        if found is not None:
            findings.append(found)
            bad.append(file)
        if told is not None:
            told(done, len(files))
    expired = {name.split("/")[2] for entry in entries if entry.why == "expired" for name in entry.remove}
    thinned = {file.topic for file in files if quote(file.topic, safe="") in expired}
    findings += [*_days(manifest, bad), *numbers.findings(thinned), *_holes(manifest)]
    return Verified(
        generation=manifest.generation,
        files=len(files),
        events=events,
        bytes=sum(file.bytes for file in files),
        findings=findings,
    )


def _of_log(place: Place, entries: Sequence[Entry]) -> Iterator[Finding]:
    """Entries behind a number that is not there were written, and nobody reads them."""
    names = {found.name for found in place.names(LOG)}
    known = {entry_name(entry.generation) for entry in entries}
    if beyond := sorted(names - known):
        lacking = entry_name(len(entries) + 1)
        yield Finding(
            "log",
            lacking,
            f"it is missing, and {len(beyond):,} entries behind it, from {beyond[0]} on, count for nothing",
        )


def _of_listing(
    place: Place, entries: Sequence[Entry], manifest: Manifest, planned: Sequence[str]
) -> Iterator[Finding]:
    once = names_of(entries) | {name for entry in entries for name in entry.abandoned}
    for found in place.names("data/"):
        if found.name in manifest.files or found.name in planned:
            continue
        if found.name not in once:
            yield Finding("foreign", found.name, "nobody of this archive wrote it, and nobody reads it")
        elif found.name not in manifest.gone:
            yield Finding(
                "left over", found.name, "it was written after its plan had been given up, and nobody reads it"
            )


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


class _Numbers:
    """The numbers of every key, which have no gaps in one lineage: what lacks between two that are there was lost, or was never
    brought here."""

    def __init__(self) -> None:
        self._topics: dict[str, pa.Table] = {}

    def add(self, topic: str, table: pa.Table) -> None:
        """The events of one file."""
        plain = table.select([*KEYS, "sequence"]).filter(table["sequence"].is_valid())
        plain = plain.set_column(0, "tenant", plain["tenant"].cast(pa.string()))
        found = plain.group_by(list(KEYS)).aggregate([("sequence", "min"), ("sequence", "max"), ("sequence", "count")])
        found = found.rename_columns([name.removeprefix("sequence_") for name in found.column_names])
        if (before := self._topics.get(topic)) is not None:
            found = _summed(pa.concat_tables([before, found.select(before.column_names)]))
        self._topics[topic] = found

    def findings(self, thinned: set[str]) -> Iterator[Finding]:
        """Keys whose numbers are not whole, some of each topic. Where a class has expired, numbers may rightly lack."""
        for topic, table in sorted(self._topics.items()):
            if topic in thinned:
                continue
            broken = [row for row in table.to_pylist() if row["max"] - row["min"] + 1 != row["count"]]
            for row in broken[:NAMED]:
                yield Finding("numbers", f"{topic} {row['tenant']}:{row['key']}", _lacking(row))
            if len(broken) > NAMED:
                yield Finding("numbers", topic, f"and {len(broken) - NAMED:,} more keys")


def _summed(table: pa.Table) -> pa.Table:
    found = table.group_by(list(KEYS)).aggregate([("min", "min"), ("max", "max"), ("count", "sum")])
    names = {"min_min": "min", "max_max": "max", "count_sum": "count"}
    return found.rename_columns([names.get(name, name) for name in found.column_names])


def _lacking(row: Mapping[str, int]) -> str:
    lacks = row["max"] - row["min"] + 1 - row["count"]
    between = f"between {row['min']} and {row['max']} of lineage {row['lineage']}"
    return f"{lacks:,} numbers lack {between}" if lacks > 0 else f"{-lacks:,} numbers are there twice {between}"
