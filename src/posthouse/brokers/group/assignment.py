"""Who should own which partition. Pure: every member computes it from the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

TopicPartition = tuple[str, int]
"""A topic's name and the number of one of its partitions."""


class Plan(NamedTuple):
    """What one member should do: partitions to `take` now, and those to `leave` as soon as nothing of them is in hand."""

    take: Sequence[TopicPartition]
    leave: Sequence[TopicPartition]


def assign(me: str, members: Mapping[str, Sequence[str]], owners: Mapping[TopicPartition, str | None]) -> Plan:
    """My fair share. `members` are the living ones of each topic; an owner is None once it gave the partition back.

    Shares add up to the number of partitions and differ by at most one, so members that hold too many and members that
    hold too few always meet; whoever holds no more than its share keeps what it has.
    """
    take: list[TopicPartition] = []
    leave: list[TopicPartition] = []
    for topic, living in members.items():
        if me not in living:
            continue
        of_topic = [partition for partition in owners if partition[0] == topic]
        mine = [partition for partition in of_topic if owners[partition] == me]
        share = fair_share(me, topic, living, len(of_topic))
        leave += mine[share:]
        free = [partition for partition in of_topic if owners[partition] not in living]
        take += free[: max(0, share - len(mine))]
    return Plan(take, leave)


def fair_share(me: str, topic: str, living: Sequence[str], partitions: int) -> int:
    """How many partitions of a topic are mine. The topic rotates who gets one more, so that small topics spread out."""
    order = sorted(living)
    rank = (order.index(me) + crc32(topic.encode())) % len(order)
    return partitions // len(order) + (rank < partitions % len(order))


def is_alive(until: float, now: float, lease: float) -> bool:
    """Whether a lease holds. One that reaches further than any lease can was given before the clock was set back."""
    return now < until <= now + 2 * lease
