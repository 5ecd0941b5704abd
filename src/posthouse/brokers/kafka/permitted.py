"""Permitted: what this account may do. Kafka says of each topic what whoever asks may do there; no right to read ACLs is needed."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import AclOperation, TopicDescription

from posthouse.brokers.kafka.client import Client
from posthouse.survey import Wish

OPERATIONS = {"publish": AclOperation.WRITE, "read": AclOperation.READ}
FORBIDDEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


async def permitted(client: Client, wishes: Sequence[Wish]) -> list[bool | None]:
    """Without a topic: of those that this account is shown beside the others. What it is not shown it neither reads nor writes."""
    named = {wish.topic for wish in wishes if wish.topic is not None}
    listed = await client.wait_for("listing topics", lambda: client.admin.list_topics(timeout=client.timeout))
    others = {name for name in listed.topics if name not in named}
    asked = sorted(named | others)
    if not asked:
        return [None] * len(wishes)
    found = await client.ask(
        "looking at rights",
        lambda admin, patience: admin.describe_topics(
            TopicCollection(asked), include_authorized_operations=True, request_timeout=patience
        ),
    )
    return [_answer(found, wish, others) for wish in wishes]


def _answer(found: dict[str, TopicDescription | KafkaError], wish: Wish, others: set[str]) -> bool | None:
    if wish.topic is None:
        return any(_may(found[name], wish.verb) for name in others)
    return _may(found[wish.topic], wish.verb)


def _may(found: TopicDescription | KafkaError, verb: str) -> bool | None:
    """Of a topic that is not there nothing is said, unless it may not even be seen."""
    if isinstance(found, KafkaError):
        return False if found.code() in FORBIDDEN else None
    return OPERATIONS[verb] in found.authorized_operations
