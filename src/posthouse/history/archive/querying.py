"""Querying: the live files of an archive as one table of DuckDB, which reads these files, and no others, and writes none."""

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

CONFINED: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}


def query(place: Place, sql: str) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """The names of the columns, and the rows. The table is `events`; of a folder DuckDB reads the files itself, and only the columns
    that are asked for; of a bucket they all come through here."""
    manifest = read_manifest(place)
    with duckdb.connect(config=CONFINED) as database:
        if isinstance(place, Folder) and manifest.files:
            names = [str(place.path / name) for name in manifest.files]
            database.read_parquet(names).create_view("events")
            _confine(database, names)
        else:
            reader = pa.RecordBatchReader.from_batches(SCHEMA, _batches(place, manifest))
            database.register("events", reader)
            _confine(database, [])
        try:
            if [one.type for one in duckdb.extract_statements(sql)] != [duckdb.StatementType.SELECT]:
                raise ConfigurationError("an archive is only read: ask it with one SELECT, which may begin with WITH")
            found = database.execute(sql)
            return [name for name, *_ in found.description or ()], found.fetchall()
        except duckdb.PermissionException as error:
            raise ConfigurationError(
                f"a query reads the files of the archive, and nothing else: {_line(error)}"
            ) from error
        except duckdb.IOException as error:
            raise ArchiveDamaged(f"{_line(error)}. Run `posthouse archive verify`") from error
        except duckdb.Error as error:
            raise ConfigurationError(f"DuckDB does not understand that: {_line(error)}") from error


def _confine(database: duckdb.DuckDBPyConnection, names: Sequence[str]) -> None:
    """Nothing else of this machine or of the net is in reach from here on, whatever is asked."""
    paths = ", ".join(f"'{name.replace(chr(39), chr(39) * 2)}'" for name in names)
    database.execute(f"SET allowed_paths = [{paths}]")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


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
