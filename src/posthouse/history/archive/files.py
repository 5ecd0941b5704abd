"""Files: rows as Parquet, and back."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from posthouse.broker import Frame
from posthouse.errors import ArchiveDamaged
from posthouse.history.archive.places import Place
from posthouse.history.archive.reading import Archived
from posthouse.history.archive.rows import NO_KEY, Row, travelled

GROUP = 4 * 2**20
"""Bytes of a group of rows, about: whoever reads a file has one of them in memory."""

WORDS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("retention", WORDS, nullable=False),
        pa.field("topic", WORDS, nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("position", pa.string()),
        pa.field("received", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("type", WORDS, nullable=False),
        pa.field("version", pa.int32()),
        pa.field("source", WORDS, nullable=False),
        pa.field("tenant", WORDS, nullable=False),
        pa.field("key", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("lineage", pa.int64(), nullable=False),
        pa.field("time", pa.string(), nullable=False),
        pa.field("correlation", pa.string()),
        pa.field("causation", pa.string()),
        pa.field("actor_kind", WORDS),
        pa.field("actor_id", pa.string()),
        pa.field("producer", WORDS),
        pa.field("content_type", WORDS),
        pa.field("schema", WORDS),
        pa.field("idempotency_key", pa.string()),
        pa.field("traceparent", pa.string()),
        pa.field("frame_id", pa.string()),
        pa.field("frame_key", pa.string()),
        pa.field("defect", pa.string()),
        pa.field("headers", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("digest", pa.binary(16), nullable=False),
        pa.field("exact", pa.binary()),
    ],
    metadata={"posthouse.archive": "1"},
)
"""Format 1. Columns may be added behind; what is there keeps its meaning."""
DICTIONARIES = [field.name for field in SCHEMA if pa.types.is_dictionary(field.type)] + ["headers.key_value.key"]
PLAIN = ("body", "digest", "headers", "exact")
"""Columns of which nobody needs to know the least and the greatest value."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file, as the log of the archive has it. Times are those of the log, in seconds since 1970; of each partition the first and the
    last offset and how many rows."""

    name: str
    plan: str
    retention: str
    topic: str
    day: str
    rows: int
    bytes: int
    sha256: str
    first_at: float
    last_at: float
    partitions: Mapping[int, tuple[int, int, int]]


def name_of(plan: str, retention: str, topic: str, day: str) -> str:
    """What the file of a plan is called that has the events of one class, topic and day."""
    return f"data/{retention}/{quote(topic, safe='')}/{day}/{plan}.parquet"


def encoded(plan: str, name: str, rows: Sequence[Row]) -> tuple[File, bytes]:
    """The file of these rows, which are of one class, topic and day, in the order of the log."""
    ordered = sorted(rows, key=lambda row: row.place)
    return packed(plan, name, [table_of(ordered)], sum(row.weight for row in ordered))


def packed(plan: str, name: str, tables: Iterable[pa.Table], weight: int) -> tuple[File, bytes]:
    """The file of tables whose rows follow each other in the order of the log. Partitions do not share a group of rows, so that each
    can be read alone."""
    sink, count, spans = io.BytesIO(), 0, dict[int, tuple[int, int, int]]()
    first, last, said = 2**63, -(2**63), ("", "")
    with pq.ParquetWriter(
        sink, SCHEMA, compression="zstd", compression_level=1, use_dictionary=DICTIONARIES, store_schema=True,
        write_statistics=[field.name for field in SCHEMA if field.name not in PLAIN],
    ) as writer:  # fmt: skip
        for table in tables:
            if not table.num_rows:
                continue
            count += table.num_rows
            said = (table["retention"][0].as_py(), table["topic"][0].as_py())
            received = table["received"].cast(pa.int64()).to_pylist()
            first, last = min(first, *received, first), max(last, *received, last)
            size = max(1, table.num_rows * GROUP // max(weight, 1)) if weight > GROUP else table.num_rows
            for partition, part in _by_partition(table):
                low, high, before = spans.get(partition, (2**63, -1, 0))
                offsets = part["offset"].to_pylist()
                spans[partition] = (min(low, offsets[0]), max(high, offsets[-1]), before + part.num_rows)
                writer.write_table(part, row_group_size=size)
    data = sink.getvalue()
    file = File(
        name=name,
        plan=plan,
        retention=said[0],
        topic=said[1],
        day=name.split("/")[-2],
        rows=count,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        first_at=first / 1e6,
        last_at=last / 1e6,
        partitions=spans,
    )
    return file, data


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows as columns."""
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [[] for _ in SCHEMA]
    arrays = [_array(field, column) for field, column in zip(SCHEMA, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _array(field: Any, column: Sequence[Any]) -> Any:
    if field.name == "headers":
        offsets, total = [0], 0
        for pairs in column:
            total += len(pairs)
            offsets.append(total)
        flat = [pair for pairs in column for pair in pairs]
        names, values = [name for name, _ in flat], [value for _, value in flat]
        return pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
        )
    if pa.types.is_dictionary(field.type):
        return pa.array(column, pa.string()).dictionary_encode()
    return pa.array(column, field.type)


def _by_partition(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    partitions = table["partition"].to_pylist()
    start = 0
    while start < len(partitions):
        partition, end = partitions[start], len(partitions)
        if partitions[-1] != partition:
            end = next(at for at in range(start, len(partitions)) if partitions[at] != partition)
        yield partition, table.slice(start, end - start)
        start = end


@contextmanager
def opened(place: Place, file: File) -> Iterator[pq.ParquetFile]:
    """To be read. Raises ArchiveDamaged where it is no file of ours, or not whole."""
    try:
        with place.open(file.name, file.bytes) as source:
            found = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
            if found.metadata.num_rows != file.rows:
                raise pa.ArrowInvalid(f"it has {found.metadata.num_rows:,} rows, and {file.rows:,} were written")
            yield found
    except FileNotFoundError as error:
        raise ArchiveDamaged(f"{file.name} is missing. Run `posthouse archive verify`") from error
    except (pa.ArrowException, OSError) as error:
        words = str(error).splitlines()[0][:200]
        raise ArchiveDamaged(f"{file.name} cannot be read: {words}. Run `posthouse archive verify`") from error


def digests_in(place: Place, file: File) -> list[bytes]:
    """Which events a file has."""
    with opened(place, file) as found:
        digests: list[bytes] = found.read(columns=["digest"])["digest"].to_pylist()
    return digests


def groups_of(found: pq.ParquetFile, partition: int | None = None) -> list[int]:
    """Its groups of rows, or those of one partition alone."""
    at = found.schema_arrow.get_field_index("partition")
    return [
        group
        for group in range(found.metadata.num_row_groups)
        if partition is None or found.metadata.row_group(group).column(at).statistics.min == partition
    ]


def events_of(batch: pa.RecordBatch) -> list[Archived]:
    """The events of some rows, whose frames are as they travelled."""
    names = (
        "topic", "partition", "offset", "position", "id", "type", "tenant", "key", "sequence", "lineage", "retention",
        "frame_id", "frame_key", "headers", "body", "exact",
    )  # fmt: skip
    columns = [batch.column(name).to_pylist() for name in names]
    times = batch.column("received").cast(pa.int64()).to_pylist()
    return [_event(time, *values) for time, *values in zip(times, *columns, strict=True)]


def _event(
    time: int, topic: str, partition: int, offset: int, position: str | None, id: str, type: str, tenant: str,
    key: str | None, sequence: int | None, lineage: int, retention: str, frame_id: str | None, frame_key: str | None,
    headers: Sequence[tuple[str, str]], body: bytes, exact: bytes | None,
) -> Archived:  # fmt: skip
    derived = None if key is None else f"{tenant}:{key}"
    if exact is None:
        own_id, own_headers = id if frame_id is None else frame_id, dict(headers)
        own_key = derived if frame_key is None else None if frame_key == NO_KEY else frame_key
    else:
        own_id, own_key, own_headers = travelled(exact)
    frame = Frame(topic=topic, id=own_id, body=body, key=own_key, headers=own_headers)
    return Archived(
        frame=frame,
        position=position if position is not None else offset if partition == 0 else f"{partition}:{offset}",
        stored_at=time / 1e6,
        type=type,
        tenant=tenant,
        key=key,
        sequence=sequence,
        lineage=lineage,
        retention=retention,
    )
