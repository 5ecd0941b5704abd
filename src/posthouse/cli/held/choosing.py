"""Choosing: which held events a command is about."""

from __future__ import annotations

from typing import Annotated

import typer

from posthouse.app import app_of
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.receiving.readers import topics_of
from posthouse.service import Service
from posthouse.store import HeldFilter, HeldState

HeldId = Annotated[int, typer.Argument(metavar="ID", help="The number that `held list` shows.")]
HeldIds = Annotated[list[int], typer.Argument(metavar="ID", help="The numbers that `held list` shows.")]

Consumer = Annotated[str | None, typer.Option(help="Only of this consumer.")]
State = Annotated[HeldState | None, typer.Option(help="Only in this state.")]
Tenant = Annotated[str | None, typer.Option(help="Only of this tenant.")]
Topic = Annotated[str | None, typer.Option(help="Only of this topic.")]
Key = Annotated[str | None, typer.Option(help="Only of this ordering key.")]


def chosen(
    service: Service,
    *,
    consumer: str | None,
    state: HeldState | None,
    tenant: str | None,
    topic: str | None,
    key: str | None,
) -> HeldFilter:
    """The filter; a consumer or topic that the service does not have is refused, for it would find nothing for ever."""
    groups = service.declared.consumers
    topics = {topic for handlers in groups.values() for topic in topics_of(handlers)}
    problems = []
    if consumer is not None and consumer not in groups and not app_of(service).projections.has_group(consumer):
        problems.append(f"{service.name} has no consumer {consumer!r}.{did_you_mean(consumer, groups)}")
    if topic is not None and topic not in topics:
        problems.append(f"{service.name} reads no topic {topic!r}.{did_you_mean(topic, topics)}")
    if problems:
        raise ConfigurationError(*problems)
    return HeldFilter(consumer=consumer, state=state, tenant=tenant, topic=topic, key=key)
