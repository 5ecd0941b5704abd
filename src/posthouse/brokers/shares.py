"""Who should own which partition. Pure: every member computes it from the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Claim(NamedTuple):
    """One partition of a group, as the log has it. `owner` is None once it was given back."""

    topic: int
    partition: int
    owner: str | None


class Plan(NamedTuple):
    """What one member should do: partitions to `take` now, and those to `leave` as soon as nothing of them is in hand."""

    take: Sequence[Claim]
    leave: Sequence[Claim]


def plan(me: str, members: Mapping[int, Sequence[str]], claims: Sequence[Claim]) -> Plan:
    """My fair share. `members` are the living ones of each topic, me among them.

    Shares add up to the number of partitions and differ by at most one, so members that hold too many and members that
    hold too few always meet; whoever holds no more than its share keeps what it has.
    """
    take: list[Claim] = []
    leave: list[Claim] = []
    for topic, living in members.items():
        if me not in living:
            continue
        of_topic = [claim for claim in claims if claim.topic == topic]
        mine = [claim for claim in of_topic if claim.owner == me]
        share = fair_share(me, topic, living, len(of_topic))
        leave += mine[share:]
        ownerless = [claim for claim in of_topic if claim.owner not in living]
        take += ownerless[: max(0, share - len(mine))]
    return Plan(take, leave)


def fair_share(me: str, topic: int, living: Sequence[str], partitions: int) -> int:
    """How many partitions of a topic are mine. The topic rotates who gets one more, so that small topics spread out."""
    order = sorted(living)
    rank = (order.index(me) + topic) % len(order)
    return partitions // len(order) + (rank < partitions % len(order))


def is_alive(until: float, now: float, lease: float) -> bool:
    """Whether a lease holds. One that reaches further than any lease can was given before the clock was set back."""
    return now < until <= now + 2 * lease
