"""What is there, read from the management API's lists. Pure: lists in, what is ours and how it differs out."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from posthouse.brokers.rabbitmq.drift import argument_drift, missing, once, policy_drift
from posthouse.brokers.rabbitmq.management import Binding, Exchange, Queue
from posthouse.brokers.rabbitmq.sight import Lanes, Place, Sight
from posthouse.brokers.rabbitmq.topics import (
    COUNTS,
    Topics,
    lane_arguments,
    lane_queue,
    patterns_of,
    topic_arguments,
    unread_arguments,
    unread_of,
)
from posthouse.survey import Drift, partition_drift

_lane = re.compile(r"(?P<place>.+)\.(?P<lane>[0-9]+)of(?P<lanes>[0-9]+)")


class Listing:
    """Ours are the topic exchanges whose rest goes to `<name>.unread`, and queues that are
    bound to an exchange and bear its name behind that of a group."""

    def __init__(
        self, places: Topics, exchanges: Sequence[Exchange], queues: Sequence[Queue], bindings: Sequence[Binding]
    ) -> None:
        self._made_as = places
        self._exchanges = {exchange.name: exchange for exchange in exchanges}
        self._queues = {queue.name: queue for queue in queues}
        self._bindings = {
            (binding.source, binding.destination, binding.routing_key)
            for binding in bindings
            if binding.destination_type == "queue"
        }

    def sight(self, asked: Collection[str], places: Collection[Place]) -> Sight:
        """`asked` and `places` are ours whatever they are like."""
        topics = [
            name
            for name, exchange in self._exchanges.items()
            if name in asked or exchange.arguments.get("alternate-exchange") == unread_of(name)
        ]
        counts = {**self._named(places), **self._bound()}
        return Sight(
            {topic: self._topic(topic) for topic in topics},
            {place: Lanes(count, self._lanes(*place, count)) for place, count in counts.items()},
        )

    def readers(self, topic: str) -> list[str]:
        """Queues and exchanges that take from a topic."""
        return sorted({destination for source, destination, _ in self._bindings if source == topic})

    def _named(self, places: Collection[Place]) -> dict[Place, int]:
        """Those that have lost all their bindings are found by their names."""
        return {place: count for place in places for count in COUNTS if lane_queue(*place, 0, count) in self._queues}

    def _bound(self) -> dict[Place, int]:
        counts: dict[Place, int] = {}
        for source, destination, _ in self._bindings:
            found = _lane.fullmatch(destination)
            if found is not None and source and found["place"].endswith(f".{source}"):
                counts[found["place"].removesuffix(f".{source}"), source] = int(found["lanes"])
        return counts

    def _topic(self, topic: str) -> list[Drift]:
        rest, drift = unread_of(topic), self._exchange(topic, "topic", topic_arguments(topic))
        drift += self._exchange(rest, "fanout", {})
        drift += self._queue(rest, unread_arguments(self._made_as.unread), but=("max-length",))
        if (rest, rest, "") not in self._bindings and not any(each.repairable for each in drift):
            drift.append(missing(f"binding of {rest}"))
        return drift

    def _lanes(self, group: str, topic: str, count: int) -> list[Drift]:
        names = [lane_queue(group, topic, lane, count) for lane in range(count)]
        there = [name for name in names if name in self._queues]
        drift = partition_drift(count, self._made_as.lanes)
        if len(there) < count:
            drift.append(missing("lanes", str(len(there)), str(count)))
        for name in there:
            drift += self._queue(name, lane_arguments(self._made_as.replicas))
        bound = [
            (topic, name, pattern) in self._bindings
            for lane, name in enumerate(names)
            for pattern in patterns_of(lane, count)
            if name in self._queues
        ]
        if not all(bound):
            drift.append(missing("bindings", str(sum(bound)), str(len(bound))))
        return once(drift)

    def _exchange(self, name: str, kind: str, arguments: Mapping[str, object]) -> list[Drift]:
        found = self._exchanges.get(name)
        if found is None:
            return [missing(f"exchange {name}")]
        return argument_drift(
            {**found.arguments, "type": found.type, "durable": found.durable},
            {**arguments, "type": kind, "durable": True},
        )

    def _queue(self, name: str, arguments: Mapping[str, object], but: Collection[str] = ()) -> list[Drift]:
        found = self._queues.get(name)
        if found is None:
            return [missing(f"queue {name}")]
        given, wanted = {**found.arguments, "durable": found.durable}, {**arguments, "durable": True}
        policy = policy_drift(found.policy, found.effective_policy_definition)
        return [
            *argument_drift(given, wanted),
            *(each for each in policy if each.setting.removeprefix("policy ") not in but),
        ]
