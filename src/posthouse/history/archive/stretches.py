"""Stretches: which parts of which files have the events of a range, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from posthouse.history.archive.files import File
from posthouse.history.archive.log import Manifest
from posthouse.history.archive.reading import Range


class Stretch(NamedTuple):
    """The rows of one partition in one file."""

    first: int
    last: int
    file: File
    partition: int


def streams_of(manifest: Manifest, wanted: Range) -> list[list[Stretch]]:
    """The stretches that may have wanted events, of each topic and partition in the order of their offsets."""
    streams: dict[tuple[str, int], list[Stretch]] = {}
    for file in manifest.files.values():
        late = wanted.until is not None and file.first_at >= wanted.until
        if late or (wanted.since is not None and file.last_at < wanted.since):
            continue
        if wanted.topics is not None and file.topic not in wanted.topics:
            continue
        for partition, (first, last, _) in file.partitions.items():
            low, high = (wanted.positions or {}).get((file.topic, partition), (first, last + 1))
            if last >= low and first < high:
                streams.setdefault((file.topic, partition), []).append(Stretch(first, last, file, partition))
    return [sorted(streams[key], key=lambda stretch: stretch[:2]) for key in sorted(streams)]


def overlapping(stretches: Sequence[Stretch]) -> Iterator[Sequence[Stretch]]:
    """Those that have to be read together, so that their rows come in the order of offsets."""
    together: list[Stretch] = []
    for stretch in stretches:
        if together and stretch.first > max(each.last for each in together):
            yield together
            together = []
        together.append(stretch)
    if together:
        yield together
