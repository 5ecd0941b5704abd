"""Permitted: what this account may do. Pub/Sub says of each topic and subscription which permissions whoever asks has there; no right
to read policies is needed. What a policy of the project gives shows in each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from google.api_core import exceptions as google

from posthouse.brokers.pubsub.client import Client, mapped
from posthouse.survey import Wish

PUBLISH, ATTACH, CONSUME = "pubsub.topics.publish", "pubsub.topics.attachSubscription", "pubsub.subscriptions.consume"
UNTOLD = (google.MethodNotImplemented, google.PermissionDenied)
"""An emulator knows no policies, and an account may see nothing of a project."""
MOST = 500
"""So many topics of others are asked about."""


async def permitted(client: Client, wishes: Sequence[Wish]) -> list[bool | None]:
    """Without a topic: of those of the project that nobody named. None for what is not there, or cannot be listed."""
    named = {wish.topic for wish in wishes if wish.topic is not None}
    with mapped("asking what this account may do"):
        try:
            there = await _listed(client)
            others = sorted(there.keys() - named)[:MOST]
            asked = [(wish.verb, others if wish.topic is None else [wish.topic]) for wish in wishes]
            return [await _answer(client, verb, topics, there) for verb, topics in asked]
        except UNTOLD:
            return [None] * len(wishes)


async def _answer(client: Client, verb: str, topics: Iterable[str], there: Mapping[str, Sequence[str]]) -> bool | None:
    found = [await _may(client, verb, topic, there[topic]) if topic in there else None for topic in topics]
    return True if True in found else None if None in found else False


async def _may(client: Client, verb: str, topic: str, subscriptions: Sequence[str]) -> bool:
    """To read is to take from a subscription of a topic, or to make one."""
    if await _has(client, client.topic(topic), PUBLISH if verb == "publish" else ATTACH):
        return True
    if verb == "publish":
        return False
    return any([await _has(client, name, CONSUME) for name in subscriptions])


async def _has(client: Client, resource: str, permission: str) -> bool:
    asks = client.subscriber if permission == CONSUME else client.publisher
    question = {"resource": resource, "permissions": [permission]}
    try:
        answer = await asks.test_iam_permissions(question, retry=None, timeout=client.timeout)
    except google.NotFound:
        return False
    return permission in answer.permissions


async def _listed(client: Client) -> Mapping[str, Sequence[str]]:
    """The subscriptions of each topic of the project."""
    project = f"projects/{client.project}"
    found: dict[str, list[str]] = {}
    async for topic in await client.publisher.list_topics(project=project, retry=None, timeout=client.timeout):
        found[topic.name.rsplit("/", 1)[-1]] = []
    pages = await client.subscriber.list_subscriptions(project=project, retry=None, timeout=client.timeout)
    async for subscription in pages:
        found.get(subscription.topic.rsplit("/", 1)[-1], []).append(subscription.name)
    return found
