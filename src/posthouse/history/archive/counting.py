"""Counting: the events of a topic, each once, and the numbers of each key, none of which lacks.

The rows of one topic at a time lie in a database of DuckDB in a temporary folder, which sorts them on disk: memory does not grow with
the archive.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from posthouse.history.archive.files import File
from posthouse.history.archive.finding import Finding

NAMED = 20
"""So many keys of a topic are named whose numbers are not whole, and so many events that are there more than once."""
MEMORY = "256MB"
COLUMNS = ("tenant", "key", "lineage", "sequence", "partition", "offset", "id", "digest")
PLAIN = {"tenant": pa.string()}
PAGE = 1_000

TABLE = """
CREATE OR REPLACE TABLE events (tenant VARCHAR, key VARCHAR, lineage BIGINT, number BIGINT, part INTEGER, spot BIGINT, id VARCHAR, digest BLOB)
"""
# Events that are there more than once.
DOUBLES = "SELECT min(id), count(*) AS times FROM events GROUP BY digest HAVING count(*) > 1 ORDER BY 1"
# Numbers that several events have.
TWICE = """
SELECT tenant, key, lineage, count(*), min(number) FROM (
    SELECT tenant, key, lineage, number FROM events WHERE number IS NOT NULL
    GROUP BY tenant, key, lineage, number HAVING count(DISTINCT digest) > 1
) GROUP BY tenant, key, lineage ORDER BY tenant, key, lineage
"""
# Numbers between which others lack, and where the events stood that have them.
GAPS = """
SELECT tenant, key, lineage, before, number, part_before, part, spot_before, spot FROM (
    SELECT *, lag(number) OVER each AS before, lag(part) OVER each AS part_before, lag(spot) OVER each AS spot_before FROM (
        SELECT tenant, key, lineage, number, min(part) AS part, min(spot) AS spot FROM events WHERE number IS NOT NULL
        GROUP BY tenant, key, lineage, number
    ) WINDOW each AS (PARTITION BY tenant, key, lineage ORDER BY number)
) WHERE number > before + 1 ORDER BY tenant, key, lineage, number
"""


class Counting:
    """Takes the files of an archive, topic after topic."""

    def __init__(self, database: duckdb.DuckDBPyConnection, expired: Sequence[File]) -> None:
        self._database = database
        self._expired = expired
        self._topic: str | None = None

    def add(self, topic: str, table: pa.Table) -> Iterator[Finding]:
        """The events of one file; what is found in the topic before, where this is another one."""
        if topic != self._topic:
            yield from self.findings()
            self._topic = topic
            self._database.execute(TABLE)
        rows = pa.table({name: _plain(name, table[name]) for name in COLUMNS})
        self._database.register("file", rows)
        self._database.execute("INSERT INTO events SELECT * FROM file")
        self._database.unregister("file")

    def findings(self) -> Iterator[Finding]:
        """Of the topic that was added."""
        if self._topic is None:
            return
        topic = self._topic
        doubles = (
            Finding("double", f"{topic} {id}", f"this event is there {times:,} times")
            for id, times in self._rows(DOUBLES)
        )
        yield from _some("double", topic, doubles, "events that are there more than once")
        twice = (
            Finding(
                "numbers",
                _named(topic, row),
                f"{row[3]:,} numbers of lineage {row[2]}, from {row[4]} on, are there twice, with other events",
            )
            for row in self._rows(TWICE)
        )
        yield from _some("numbers", topic, twice, "keys with numbers that are there twice")
        yield from _some("numbers", topic, self._lacking(topic), "keys with numbers that lack")

    def _lacking(self, topic: str) -> Iterator[Finding]:
        """A key at a time. A number may rightly lack where a file expired that had positions between its neighbours."""
        spans = spans_of(file for file in self._expired if file.topic == topic)
        key: Sequence[Any] = ()
        lacks = first = last = 0
        for *of, before, number, part_before, part, at_before, at in self._rows(GAPS):
            low, high = min(at_before, at), max(at_before, at)
            if any(_touches(spans.get(one, ()), low, high) for one in {part_before, part}):
                continue
            if of != key:
                if lacks:
                    yield _lacks(topic, key, lacks, first, last)
                key, lacks, first = of, 0, before
            lacks, last = lacks + number - before - 1, number
        if lacks:
            yield _lacks(topic, key, lacks, first, last)

    def _rows(self, sql: str) -> Iterator[Sequence[Any]]:
        cursor = self._database.cursor()
        cursor.execute(sql)
        while found := cursor.fetchmany(PAGE):
            yield from found


@contextmanager
def counting(expired: Sequence[File]) -> Iterator[Counting]:
    """A folder that is there for so long."""
    with tempfile.TemporaryDirectory(prefix="posthouse-verify-") as folder:
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": MEMORY, "temp_directory": f"{folder}/spilt", "threads": 2, "preserve_insertion_order": False,
        }  # fmt: skip
        with duckdb.connect(f"{folder}/rows.duckdb", config=config) as database:
            yield Counting(database, expired)


def spans_of(files: Iterator[File]) -> Mapping[int, Sequence[tuple[int, int]]]:
    """The positions of some files by partition, in order, none twice."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for partition, first, last in sorted((part, *span[:2]) for file in files for part, span in file.partitions.items()):
        found = spans.setdefault(partition, [])
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return spans


def _touches(spans: Sequence[tuple[int, int]], low: int, high: int) -> bool:
    """Whether one of them has a position between these two."""
    at = bisect_left(spans, low + 1, key=lambda span: span[1])
    return at < len(spans) and spans[at][0] < high


def _some(kind: Any, topic: str, found: Iterator[Finding], what: str) -> Iterator[Finding]:
    more = 0
    for place, finding in enumerate(found):
        if place < NAMED:
            yield finding
        else:
            more += 1
    if more:
        yield Finding(kind, topic, f"and {more:,} more {what}")


def _named(topic: str, row: Sequence[Any]) -> str:
    return f"{topic} {row[0]}:{row[1]}"


def _lacks(topic: str, key: Sequence[Any], lacks: int, first: int, last: int) -> Finding:
    return Finding(
        "numbers", _named(topic, key), f"{lacks:,} numbers lack between {first} and {last} of lineage {key[2]}"
    )


def _plain(name: str, column: Any) -> Any:
    return column.cast(PLAIN[name]) if name in PLAIN else column
