"""Order across types: a finding for consumers that read one aggregate from several topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from posthouse.checks import Check
from posthouse.receiving import Handler
from posthouse.service import Service


def order_checks(service: Service) -> list[Check]:
    """One warning for each aggregate whose keyed facts reach an ordered consumer by more than one topic."""
    return [
        Check(
            name=f"order in {consumer}",
            found=f"{aggregate} comes by {len(topics)} topics, and no broker keeps order across them",
            judgement="warn",
            fix="each type is in order for itself; for all of them together use topics='aggregate', or order='none' where it "
            "does not matter",
        )
        for consumer, handlers in service.declared.consumers.items()
        for aggregate, topics in _topics_by_aggregate(handlers).items()
        if len(topics) > 1
    ]


def _topics_by_aggregate(handlers: Mapping[str, Handler]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for handler in handlers.values():
        for event_type in handler.event_types:
            if event_type.key is not None and handler.policy.order == "key":
                found[event_type.subject.topic_by_aggregate].add(event_type.topic)
    return found
