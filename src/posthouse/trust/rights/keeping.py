"""Keeping the rights of the services of one App: what each may publish, and what was declared beyond them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from posthouse.contracts import EventType
from posthouse.errors import ConfigurationError, RuleBroken
from posthouse.trust.rights.rights import Party, Rights


class Keeper:
    """Asked at each fact that goes out, at the start of consumers, and before a replay."""

    def __init__(self, rights: Rights, parties: Collection[Party]) -> None:
        self.rights = rights
        self._parties: Mapping[str, Party] = {party.name: party for party in parties}
        self._allowed: set[tuple[str, str]] = set()
        """Services and topics that were looked at before."""

    def check_publish(self, service: str, event_type: EventType[object], tenant: str) -> None:
        """A step of the seam: RuleBroken `publish-right` or `tenant-right`, before anything is written."""
        party = self._parties[service]
        if (service, event_type.topic) not in self._allowed:
            if problem := self.rights.publish_problem(party, event_type.topic):
                raise RuleBroken("publish-right", f"{event_type.name}: {problem}")
            self._allowed.add((service, event_type.topic))
        if self.rights.tenants and (problem := self.rights.tenant_problem(party, tenant)):
            raise RuleBroken("tenant-right", f"{event_type.name}: {problem}")

    def read_problems(self, service: str, consumer: str, topics: Collection[str]) -> list[str]:
        """Why a consumer may not start, one sentence for each topic."""
        party = self._parties[service]
        found = (self.rights.read_problem(party, topic) for topic in sorted(topics))
        return [f"consumer {consumer}: rule 'read-right': {problem}" for problem in found if problem]

    def refuse_replay(self, service: str, topics: Collection[str]) -> None:
        """Raise ConfigurationError with each topic that this service may not be sent back in, or send again."""
        party = self._parties[service]
        problems = [p for topic in sorted(topics) if (p := self.rights.replay_problem(party, topic))]
        if problems:
            raise ConfigurationError(*(f"rule 'replay-right': {problem}" for problem in problems))
