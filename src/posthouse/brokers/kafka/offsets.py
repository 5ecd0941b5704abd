"""Offsets of a log: where each partition begins and ends, where a time is, and how far that is for a group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from posthouse.broker import Progress
from posthouse.brokers.kafka.client import Client, answer
from posthouse.brokers.kafka.committed_offsets import ALL, Claim, Note, Spot
from posthouse.brokers.kafka.topics import Topic


class Offsets:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def firsts(self, spots: Iterable[Spot]) -> dict[Spot, int]:
        """The oldest offset of each partition."""
        return await self._look_up(spots, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the driver's

    async def ends(self, spots: Iterable[Spot]) -> dict[Spot, int]:
        """The offset of each partition that comes next."""
        return await self._look_up(spots, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the driver's

    async def at(self, spots: Iterable[Spot], time: float) -> dict[Spot, int]:
        """The first offset of each partition at or after a time; -1 where there is none."""
        milliseconds = math.ceil(round(time * 1000, 3))
        return await self._look_up(spots, OffsetSpec.for_timestamp(max(0, min(milliseconds, 2**62))))

    async def _look_up(self, spots: Iterable[Spot], spec: OffsetSpec) -> dict[Spot, int]:
        asked = {TopicPartition(*spot): spec for spot in spots}
        if not asked:
            return {}
        found = await self._client.ask(
            "looking at offsets", lambda admin, patience: admin.list_offsets(asked, request_timeout=patience)
        )
        return {(part.topic, part.partition): answer(f"looking at {part}", at).offset for part, at in found.items()}


def spots_of(topic: Topic) -> list[Spot]:
    return [(topic.name, partition) for partition in range(topic.partitions)]


def next_of(claim: Claim | None, first: int, end: int) -> int | None:
    """The first offset of a partition that a group has not acknowledged; None where it has all."""
    claim = claim or Claim(first, Note(began=first))
    return next((at for at in range(max(claim.cursor, first), end) if at not in claim.done), None)


def progress_of(
    spots: Sequence[Spot],
    claims: Mapping[Spot, Claim | None],
    firsts: Mapping[Spot, int],
    ends: Mapping[Spot, int],
    oldest: float | None = None,
) -> Progress:
    """Of one topic. Offsets count frames, and a few more where others use transactions."""
    behind, unsure, late, dropped = list[int](), 0, False, False
    for spot in spots:
        claim = claims[spot] or Claim(firsts[spot], Note(began=firsts[spot]))
        first, end = max(claim.cursor, firsts[spot]), ends[spot]
        done = {offset for offset in claim.done if first <= offset < end}
        behind.append(max(0, end - first - len(done)))
        doubt = doubted(claim, end)
        unsure += max(0, doubt - first - sum(offset < doubt for offset in done))
        dropped |= claim.cursor < firsts[spot]
        late |= claim.note.began > 0
    stored = sum(ends[spot] for spot in spots)
    return Progress(
        stored=stored,
        pending=sum(behind),
        truncated=late or dropped,
        dropped=dropped,
        whole=not late,
        unsure=unsure,
        behind=tuple(behind),
        oldest=oldest,
    )


def doubted(claim: Claim, end: int) -> int:
    """The offset behind the last one that may have been dealt with though nobody said so; `end`: of the log. As long as nobody
    has given the partition back, it may be any."""
    note = claim.note
    if note.until == ALL or (note.end is None and note.handed):
        return end
    return min(end, max(note.until, claim.cursor + note.unsure))
