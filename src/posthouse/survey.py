"""PORT, for brokers that can show what they have: `posthouse topology` compares it with what should be there.

A broker without it works as well; then nothing tells what is there beside what was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from posthouse.broker import Topology

PASSING = "posthouse-trace."
"""Groups that are called so have one member for a moment: once they are removed nobody can come back to them, and nothing of
them needs to stay."""


NOBODYS = "posthouse-nobodys.topic"
"""The name of a topic that nobody has."""


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that is not as this instance would make it.

    `repairable` is False where it stays for the life of the resource; `fix` then says what to do instead. `loses` says which
    frames a change deletes; empty means none.
    """

    setting: str
    found: str
    wanted: str
    repairable: bool = True
    loses: str = ""
    fix: str = ""


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of ours in a broker: a topic, or, with `group`, the place of a group in a topic.

    `called` is its name in the broker's own tools (`stream shop_orders_order`). `frames` counts those that go with it: all of a
    topic, or, without history, those that no group has; for a group those it has not acknowledged; None where the broker does
    not tell. `at_work` is True while a member
    reads there, as far as the broker tells.
    """

    topic: str
    group: str | None = None
    called: str
    exists: bool = True
    frames: int | None = 0
    at_work: bool = False
    drift: Sequence[Drift] = ()


@runtime_checkable
class Surveyed(Protocol):
    """A broker that shows, repairs and removes. Every method may raise BrokerUnavailable."""

    async def survey(self, topology: Topology) -> Sequence[Resource]:
        """Everything of ours that the broker has, and what the topology wants and is missing; each once. Changes and makes
        nothing. Things of other makers are left out. A broker that cannot list, and says so, answers for what is wanted."""
        ...

    async def repair(self, resource: Resource) -> None:
        """Set the repairable settings of a topic or a place as this instance would make them. Idempotent."""
        ...

    async def remove(self, resources: Sequence[Resource]) -> None:
        """Delete groups, then topics, with their frames. Raises BrokerError, and leaves it, when a member is at work in a
        group or when a topic is still read by a group that was not named. What is gone already is passed over."""
        ...


class Age(NamedTuple):
    """For how many seconds a topic keeps frames at least; None: for ever. `waits`: longer, until every group has read them.
    `per_topic`: `Topology.retention` sets it; elsewhere the broker's URL does."""

    seconds: float | None
    waits: bool
    per_topic: bool


@runtime_checkable
class Retaining(Protocol):
    """A broker that keeps a log and tells for how long."""

    async def ages(self, topics: Sequence[str]) -> Mapping[str, Age]:
        """Of the topics that are there, as they are set now. Changes nothing. May raise BrokerUnavailable."""
        ...


class Wish(NamedTuple):
    """Something that an account may or may not do at a broker. No topic: any beside those that are wished for in the same breath."""

    verb: Literal["publish", "read"]
    topic: str | None = None


@runtime_checkable
class Permitting(Protocol):
    """A broker that tells what the account may do by which it is reached."""

    async def permitted(self, wishes: Sequence[Wish]) -> Sequence[bool | None]:
        """Whether this account may do each of them, in their order; None where nobody here may tell. Nothing is published, read or
        made by asking. May raise BrokerUnavailable."""
        ...


def strangers(wishes: Iterable[Wish]) -> list[str]:
    """Topics that nobody has, for a broker that can be asked about any name: one anywhere, and one in each namespace."""
    spaces = {wish.topic.split(".")[0] for wish in wishes if wish.topic is not None and wish.topic.count(".") > 1}
    return [NOBODYS, *(f"{space}.{NOBODYS}" for space in sorted(spaces))]


Called = Callable[[str, str | None], str]
"""The broker's own name for a topic, or for a group in it."""


def with_missing(topology: Topology, found: Iterable[Resource], called: Called) -> list[Resource]:
    """What was found, and the rest of the topology as missing, in the order of their names."""
    resources = {(resource.topic, resource.group): resource for resource in found}
    for topic, group in wanted(topology):
        resources.setdefault(
            (topic, group), Resource(topic=topic, group=group, called=called(topic, group), exists=False)
        )
    return sorted(resources.values(), key=lambda resource: (resource.topic, resource.group or ""))


def wanted(topology: Topology) -> set[tuple[str, str | None]]:
    """The topics and the places of groups that a topology asks for. A topic that a group reads is a topic too."""
    places: set[tuple[str, str | None]] = {(topic, group) for group, read in topology.groups.items() for topic in read}
    return places | {(topic, None) for topic in topology.topics} | {(topic, None) for topic, _ in places}


def partition_drift(found: int, made_with: int) -> list[Drift]:
    """A topic keeps its number of partitions: another one would move keys and break their order."""
    if found == made_with:
        return []
    return [
        Drift(
            setting="partitions",
            found=str(found),
            wanted=str(made_with),
            repairable=False,
            fix=f"it is fixed while the topic lives, for the order of its keys: say partitions={found} in the broker's URL",
        )
    ]
