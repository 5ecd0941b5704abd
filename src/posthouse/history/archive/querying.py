"""Querying: the live files of an archive as one table of DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from posthouse.errors import ArchiveDamaged, ConfigurationError
from posthouse.history.archive.files import SCHEMA, opened
from posthouse.history.archive.folders import Folder
from posthouse.history.archive.log import Manifest, read_manifest
from posthouse.history.archive.places import Place


def query(place: Place, sql: str) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """The names of the columns, and the rows. The table is `events`; of a folder DuckDB reads the files itself, and only the columns
    that are asked for; of a bucket they all come through here."""
    manifest = read_manifest(place)
    with duckdb.connect() as database:
        if isinstance(place, Folder) and manifest.files:
            names = [str(place.path / name) for name in manifest.files]
            database.read_parquet(names).create_view("events")
        else:
            reader = pa.RecordBatchReader.from_batches(SCHEMA, _batches(place, manifest))
            database.register("events", reader)
        try:
            found = database.execute(sql)
            return [name for name, *_ in found.description or ()], found.fetchall()
        except duckdb.IOException as error:
            raise ArchiveDamaged(f"{_line(error)}. Run `posthouse archive verify`") from error
        except duckdb.Error as error:
            raise ConfigurationError(f"DuckDB does not understand that: {_line(error)}") from error


def _batches(place: Place, manifest: Manifest) -> Iterator[pa.RecordBatch]:
    for file in manifest.files.values():
        with opened(place, file) as found:
            for batch in found.iter_batches(batch_size=10_000):
                yield pa.RecordBatch.from_arrays(
                    [column.cast(field.type) for column, field in zip(batch.columns, SCHEMA, strict=True)],
                    schema=SCHEMA,
                )


def _line(error: Exception) -> str:
    return str(error).splitlines()[0][:300]
