"""Forgotten: events of which the store may have forgotten that they are archived, looked for in the files by their ids.

When that is said by what the store still knows, never by how long ago something is by a clock that may jump.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from posthouse.errors import ArchiveDamaged
from posthouse.events.envelope import moment
from posthouse.history.archive.files import File, opened
from posthouse.history.archive.log import Manifest
from posthouse.history.archive.places import Place
from posthouse.history.archive.rows import Row
from posthouse.pulse import alive

log = logging.getLogger("posthouse.archive")

Span = tuple[str, str] | None
"""The least and the greatest id of a group of rows, where it is known."""


class Forgotten:
    """Looks for events. Of every file it keeps which ids its groups of rows have, from the first to the last: ids that begin with their
    time leave few of them to be read."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._spans: dict[str, list[Span]] = {}

    def among(self, manifest: Manifest, rows: Sequence[Row]) -> set[bytes]:
        """The digests of those that are in a live file."""
        self._spans = {name: spans for name, spans in self._spans.items() if name in manifest.files}
        topics: dict[str, list[Row]] = {}
        for row in rows:
            topics.setdefault(row.topic, []).append(row)
        known: set[bytes] = set()
        for file in manifest.files.values():
            if wanted := topics.get(file.topic):
                try:
                    known.update(self._in(file, [row.id for row in wanted]))
                except ArchiveDamaged as error:  # it must not keep all others from being archived
                    log.error("%s. Its events are archived again if they come again", error)
                alive()
        return known & {row.digest for row in rows}

    def _in(self, file: File, ids: Sequence[str]) -> list[bytes]:
        spans = self._spans.get(file.name)
        if spans is not None and not _groups(spans, ids):
            return []
        with opened(self._place, file) as found:
            if spans is None:
                at = found.schema_arrow.names.index("id")
                counted = [
                    found.metadata.row_group(group).column(at).statistics for group in range(found.num_row_groups)
                ]
                spans = [(each.min, each.max) if each is not None and each.has_min_max else None for each in counted]
                self._spans[file.name] = spans
            groups = _groups(spans, ids)
            digests: list[bytes] = (
                found.read_row_groups(groups, columns=["digest"])["digest"].to_pylist() if groups else []
            )
        return digests


def _groups(spans: Sequence[Span], ids: Sequence[str]) -> list[int]:
    return [at for at, span in enumerate(spans) if span is None or any(span[0] <= id <= span[1] for id in ids)]


def first_moment(row: Row) -> float:
    """When an event was there first, in seconds since 1970, as far as it says: published again, it keeps its own time. 0 where it
    does not say."""
    try:
        return min(row.received / 1e6, moment(row.time).timestamp())
    except ValueError:
        return 0.0
