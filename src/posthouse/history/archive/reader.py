"""Reader: the events of an archive again, from its files alone.

Each partition of a topic is a stream in the order of its offsets; streams are merged by the time of the log, which never changes the
order inside one. Of each stream one group of rows is in memory.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from posthouse.history.archive.files import File, events_of, groups_of, opened
from posthouse.history.archive.log import Manifest, read_manifest
from posthouse.history.archive.places import Place
from posthouse.history.archive.reading import Archived, Range, Reach
from posthouse.history.archive.stretches import Stretch, overlapping, streams_of

MOST_STREAMS = 32
"""So many are merged; of more, those of one partition come after those of another."""
BATCH = 512
"""Rows that are made events at once."""

Item = tuple[int, Archived]
"""An event and its offset."""


class Reader:
    """An `ArchiveReader` of what lies in a place."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def read(self, wanted: Range, *, batch: int = 500) -> AsyncIterator[Sequence[Archived]]:
        manifest = await asyncio.to_thread(read_manifest, self._place)
        events = self._events(manifest, wanted)
        try:
            while found := await asyncio.to_thread(_some, events, batch):
                yield found
        finally:
            events.close()

    async def count(self, wanted: Range) -> int:
        manifest = await asyncio.to_thread(read_manifest, self._place)
        return await asyncio.to_thread(self._count, manifest, wanted)

    async def reach(self) -> Mapping[str, Reach]:
        return reach_of(await asyncio.to_thread(read_manifest, self._place))

    def _events(self, manifest: Manifest, wanted: Range) -> Generator[Archived, None, None]:
        streams = streams_of(manifest, wanted)
        if len(streams) > MOST_STREAMS:
            for stretches in streams:
                yield from (event for _, event in self._stream(stretches, wanted))
        elif len(streams) == 1:
            yield from (event for _, event in self._stream(streams[0], wanted))
        else:
            merged = heapq.merge(
                *(_timed(self._stream(stretches, wanted), n) for n, stretches in enumerate(streams)),
                key=lambda item: item[:2],
            )
            yield from (event for _, _, event in merged)

    def _stream(self, stretches: Sequence[Stretch], wanted: Range) -> Iterator[Item]:
        """The events of one partition; files whose offsets overlap are merged, all others follow each other."""
        for together in overlapping(stretches):
            each = [self._rows(stretch, wanted) for stretch in together]
            yield from each[0] if len(each) == 1 else heapq.merge(*each, key=lambda item: item[0])

    def _rows(self, stretch: Stretch, wanted: Range) -> Iterator[Item]:
        with opened(self._place, stretch.file) as found:
            for rows in _batches(stretch, found, wanted, None):
                yield from zip(rows.column("offset").to_pylist(), events_of(rows), strict=True)

    def _count(self, manifest: Manifest, wanted: Range) -> int:
        total = 0
        columns = sorted({"partition", "offset", "received", *(name for name, _ in _asked(wanted))})
        for stretches in streams_of(manifest, wanted):
            for stretch in stretches:
                with opened(self._place, stretch.file) as found:
                    total += sum(rows.num_rows for rows in _batches(stretch, found, wanted, columns))
        return total


def reach_of(manifest: Manifest) -> dict[str, Reach]:
    """How far each topic goes."""
    topics: dict[str, list[File]] = {}
    for file in manifest.files.values():
        topics.setdefault(file.topic, []).append(file)
    return {
        topic: Reach(
            events=sum(file.rows for file in files),
            first_at=min(file.first_at for file in files),
            last_at=max(file.last_at for file in files),
            partitions=_spans(files),
        )
        for topic, files in sorted(topics.items())
    }


def _spans(files: Sequence[File]) -> dict[int, tuple[int, int]]:
    spans: dict[int, tuple[int, int]] = {}
    for file in files:
        for partition, (first, last, _) in file.partitions.items():
            low, high = spans.get(partition, (first, last))
            spans[partition] = (min(low, first), max(high, last))
    return spans


def _batches(
    stretch: Stretch, found: pq.ParquetFile, wanted: Range, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    for group in groups_of(found, stretch.partition):
        for rows in found.iter_batches(batch_size=BATCH, row_groups=[group], columns=columns, use_threads=False):
            if kept := _kept(rows, stretch, wanted):
                yield kept


def _asked(wanted: Range) -> list[tuple[str, Any]]:
    """Columns, and which values of them are wanted."""
    said = (
        ("type", wanted.types),
        ("tenant", wanted.tenants),
        ("key", wanted.keys),
        ("id", wanted.ids),
        ("correlation", wanted.correlations),
    )
    return [(name, values) for name, values in said if values is not None]


def _kept(rows: pa.RecordBatch, stretch: Stretch, wanted: Range) -> pa.RecordBatch | None:
    masks = [
        pc.is_in(_plain(rows.column(name)), pa.array(list(values), pa.string())) for name, values in _asked(wanted)
    ]
    times = rows.column("received").cast(pa.int64())
    if wanted.since is not None:
        masks.append(pc.greater_equal(times, round(wanted.since * 1e6)))
    if wanted.until is not None:
        masks.append(pc.less(times, round(wanted.until * 1e6)))
    if bounds := (wanted.positions or {}).get((stretch.file.topic, stretch.partition)):
        offsets = rows.column("offset")
        masks += [pc.greater_equal(offsets, bounds[0]), pc.less(offsets, bounds[1])]
    for mask in masks[1:]:
        masks[0] = pc.and_(masks[0], mask)
    if masks:
        rows = rows.filter(masks[0])
    return rows if rows.num_rows else None


def _plain(column: Any) -> Any:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _timed(stream: Iterator[Item], number: int) -> Iterator[tuple[float, int, Archived]]:
    """With a time that never goes back, so that merging by it keeps the order of the stream."""
    latest = float("-inf")
    for _, event in stream:
        latest = max(latest, event.stored_at)
        yield latest, number, event


def _some(events: Iterator[Archived], limit: int) -> list[Archived]:
    found = []
    for event in events:
        found.append(event)
        if len(found) >= limit:
            break
    return found
