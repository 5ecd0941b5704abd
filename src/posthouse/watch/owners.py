"""Owners: which service a topic, a consumer or a saga belongs to, by what the code declares: the only words that labels have."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.app import App
from posthouse.processes.schedule import Schedule
from posthouse.seam.timing import OTHERS

Labels = Mapping[str, str]


class Owners:
    """The names of one App. What no service of it declares is the App's own, and called `(others)`."""

    def __init__(self, app: App) -> None:
        declared = {service.name: service.declared for service in app.services}
        self._has_group = app.projections.has_group
        self.app: Labels = {"service": app.opened.name}
        """The labels of what its services share."""
        self.topics: Mapping[str, str] = {
            known.topic: name for name, of in declared.items() for known in (*of.own_events, *of.internal_events)
        }
        """Those that a service writes, each with the service."""
        self.consumers: Mapping[str, str] = {
            consumer: name for name, of in declared.items() for consumer in of.consumers
        }
        self.sagas: Mapping[str, str] = {saga: name for name, of in declared.items() for saga in of.saga_types}
        self.schedules: Mapping[tuple[str, str], Schedule] = {
            (name, one.name): one for name, of in declared.items() for one in of.schedules
        }
        """By service and name: two services may have one of the same name."""
        self._all_topics = frozenset(app.opened.topology().topics)

    def topic(self, topic: str) -> Labels:
        """Of what is on its way to a topic: one that is written or read, or that takes dead letters."""
        service = self.topics.get(topic)
        return {**(self.app if service is None else {"service": service}), "topic": self._topic(topic)}

    def consumer(self, group: str) -> Labels:
        """Of a consumer group; a generation of a read model goes by the name of the read model's consumer."""
        plain = group not in self.consumers and self._has_group(group)
        return self._named("consumer", group.rpartition(".g")[0] if plain else group, self.consumers)

    def line(self, group: str, topic: str) -> Labels:
        return {**self.consumer(group), "topic": self._topic(topic)}

    def saga(self, saga: str) -> Labels:
        return self._named("saga", saga, self.sagas)

    def _topic(self, topic: str) -> str:
        return topic if topic in self._all_topics else OTHERS

    def _named(self, label: str, name: str, declared: Mapping[str, str]) -> Labels:
        return {"service": declared[name], label: name} if name in declared else {**self.app, label: OTHERS}
