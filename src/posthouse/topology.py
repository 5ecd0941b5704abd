"""Topology: what should be in a broker, what is, and the steps from one to the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from posthouse.app import apps_of
from posthouse.broker import Broker, Topology
from posthouse.errors import BrokerError
from posthouse.receiving import dead_letter_topic
from posthouse.service import Service
from posthouse.survey import Drift, Resource, Surveyed, wanted

Verb = Literal["create", "change", "delete"]

_DEAD_LETTERS = dead_letter_topic("")
_VERSION = re.compile(r"v[1-9][0-9]*")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One difference. `blocked` says why it cannot be made to vanish here; empty when it can. `loses` says what a step
    takes away for good: it is made only when that was allowed."""

    verb: Verb
    resource: Resource
    drift: Sequence[Drift] = ()
    blocked: str = ""
    loses: str = ""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What some services answer for: the topics and groups that bear their names. All others are somebody else's."""

    topics: frozenset[str]
    groups: frozenset[str]
    models: frozenset[str] = frozenset()
    """Read models: which groups these have, only their stores know, so that they are left alone."""

    @classmethod
    def of(cls, services: Iterable[Service]) -> Scope:
        every = list(services)
        return cls(
            topics=frozenset(f"{s.namespace}.{s.name}" if s.namespace else s.name for s in every),
            groups=frozenset(service.name for service in every),
            models=frozenset(model.consumer for service in every for model in service.declared.projections.values()),
        )

    def has(self, resource: Resource) -> bool:
        return self.has_topic(resource.topic) if resource.group is None else self.has_group(resource.group)

    def has_topic(self, topic: str) -> bool:
        """By aggregate or by subject: `shop.orders`, `shop.orders.order`, `shop.orders.order.placed.v1`, and dead letters."""
        return any(_is_of(topic.removesuffix(_DEAD_LETTERS), owner) for owner in self.topics)

    def has_group(self, group: str) -> bool:
        if any(group == model or group.startswith(f"{model}.g") for model in self.models):
            return False
        return any(group == name or group.startswith(f"{name}.") for name in self.groups)


def merged(services: Iterable[Service]) -> Topology:
    """What several services want of the broker that they share."""
    every = [app.opened.whole_topology() for app in apps_of(services)]
    groups = {group: read for topology in every for group, read in topology.groups.items()}
    return Topology(topics=sorted({topic for topology in every for topic in topology.topics}), groups=groups)


async def plan(broker: Broker, topology: Topology, scope: Scope) -> Sequence[Step]:
    """Ask the broker what it has; change nothing. Raises BrokerError where it cannot tell."""
    return steps(topology, await _surveyed(broker).survey(topology), scope)


def steps(topology: Topology, resources: Sequence[Resource], scope: Scope) -> list[Step]:
    """The differences between what should be there and what is: creations, changes, deletions.

    Settings are judged on topics and groups that bear the name of one of the services; whoever only reads a topic does
    not shape it. Deleted is only what bears such a name and is not asked for any more.
    """
    asked = wanted(topology)
    created = [Step(verb="create", resource=resource) for resource in resources if not resource.exists]
    there = [resource for resource in resources if resource.exists]
    surplus = [resource for resource in there if _is_surplus(resource, asked, scope)]
    changed = [
        _change(resource) for resource in there if resource.drift and resource not in surplus and scope.has(resource)
    ]
    return [*created, *changed, *(_deletion(resource, surplus, there) for resource in surplus)]


async def carry_out(
    broker: Broker, topology: Topology, planned: Sequence[Step], *, allow_delete: bool
) -> Sequence[Step]:
    """Make the steps, creations first and deletions last; returns those that were made. What loses frames is made only
    when it is allowed, what is blocked never."""
    made = [step for step in planned if is_allowed(step, allow_delete=allow_delete)]
    surveyed = _surveyed(broker)
    if any(step.verb == "create" for step in made):
        await broker.ensure(topology)
    for step in made:
        if step.verb == "change":
            await surveyed.repair(step.resource)
    gone = [step.resource for step in made if step.verb == "delete"]
    if gone:
        await surveyed.remove(gone)
    return made


def is_allowed(step: Step, *, allow_delete: bool) -> bool:
    """Whether `carry_out` makes it."""
    return not step.blocked and (allow_delete or not step.loses)


def _change(resource: Resource) -> Step:
    fixed = [drift for drift in resource.drift if not drift.repairable]
    return Step(
        verb="change",
        resource=resource,
        drift=resource.drift,
        blocked="; ".join(drift.fix for drift in fixed) if len(fixed) == len(resource.drift) else "",
        loses="; ".join(drift.loses for drift in resource.drift if drift.loses),
    )


def _is_surplus(resource: Resource, asked: set[tuple[str, str | None]], scope: Scope) -> bool:
    """Dead letters stay as long as their topic does: whoever reads that may need them."""
    if resource.group is not None:
        return scope.has(resource) and (resource.topic, resource.group) not in asked
    names = {resource.topic, resource.topic.removesuffix(_DEAD_LETTERS)}
    return scope.has(resource) and not any((name, None) in asked for name in names)


def _deletion(resource: Resource, surplus: Sequence[Resource], there: Sequence[Resource]) -> Step:
    if resource.group is not None:
        return Step(
            verb="delete",
            resource=resource,
            blocked="a member reads there now: stop it first" if resource.at_work else "",
            loses="its place" if resource.frames is None else f"its place, {resource.frames:,} unread",
        )
    read = [other for other in there if other.group is not None and other.topic == resource.topic]
    readers = sorted({str(other.group) for other in read if other not in surplus or other.at_work})
    return Step(
        verb="delete",
        resource=resource,
        blocked=f"still read by {', '.join(readers)}: plan it together with them" if readers else "",
        loses="its frames" if resource.frames is None else f"{resource.frames:,} frames",
    )


def _is_of(topic: str, owner: str) -> bool:
    """What follows the owner's name is nothing, an aggregate, or the rest of a subject: a service without a namespace does
    not answer for a namespace of the same name."""
    if topic == owner:
        return True
    rest = topic.removeprefix(f"{owner}.")
    if rest == topic:
        return False
    *names, last = rest.split(".")
    return not names or (len(names) <= 2 and _VERSION.fullmatch(last) is not None)


def _surveyed(broker: Broker) -> Surveyed:
    if not isinstance(broker, Surveyed):
        raise BrokerError(
            f"the {broker.sheet.name} broker cannot show what it has: `posthouse run` makes what is missing when it starts"
        )
    return broker
