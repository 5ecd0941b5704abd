"""What a project holds of ours, and how it is repaired and removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from google.api_core import exceptions as google
from google.pubsub_v1.types import ExpirationPolicy, Subscription, UpdateSubscriptionRequest

from posthouse.brokers.pubsub.checks import seconds
from posthouse.brokers.pubsub.client import Client, mapped
from posthouse.brokers.pubsub.push import Push, config_of, push_drift
from posthouse.errors import BrokerError
from posthouse.survey import Drift, Resource

ANEW = "it cannot be set afterwards: remove the group when it has read everything, and make it anew"


class Inventory:
    """Of one project. `lease`, `retention` (both in seconds) and `push` are what this instance makes subscriptions with."""

    def __init__(self, client: Client, *, lease: int, retention: float, push: Push | None = None) -> None:
        self._client = client
        self._lease = lease
        self._retention = retention
        self._push = push

    async def found(self) -> list[Resource]:
        """Every topic of the project, and every `<group>.<topic>.sub`. Nobody tells how much is in them, or who reads."""
        resources = [Resource(topic=name, called=called(name, None), frames=None) for name in await self._topics()]
        for subscription in await self._subscriptions():
            place = place_of(subscription)
            if place is not None:
                group, topic = place
                drift = drift_of(subscription, self._lease, self._retention, self._push)
                resources.append(
                    Resource(topic=topic, group=group, called=called(topic, group), frames=None, drift=drift)
                )
        return resources

    async def repair(self, resource: Resource) -> None:
        """A topic has no settings of ours."""
        if resource.group is None:
            return
        name = self._client.subscription(f"{resource.group}.{resource.topic}.sub")
        wanted = Subscription(
            name=name,
            topic=self._client.topic(resource.topic),
            ack_deadline_seconds=self._lease,
            retain_acked_messages=True,
            message_retention_duration=timedelta(seconds=self._retention),
            expiration_policy=ExpirationPolicy(),
            push_config=config_of(self._push),
        )
        paths = [PATHS[drift.setting] for drift in resource.drift if drift.repairable]
        with mapped(f"mending {name}"):
            request = UpdateSubscriptionRequest(subscription=wanted, update_mask={"paths": paths})
            await self._client.subscriber.update_subscription(request, retry=None, timeout=self._client.timeout)

    async def remove(self, resources: Sequence[Resource]) -> None:
        """One after the other; the first that cannot go ends it. Whether somebody reads cannot be seen."""
        for resource in sorted(resources, key=lambda resource: resource.group is None):
            if resource.group is not None:
                await self._remove_place(resource.group, resource.topic)
            else:
                await self._remove_topic(resource.topic)

    async def _remove_place(self, group: str, topic: str) -> None:
        name = self._client.subscription(f"{group}.{topic}.sub")
        with mapped(f"removing {name}"):
            try:
                await self._client.subscriber.delete_subscription(
                    subscription=name, retry=None, timeout=self._client.timeout
                )
            except google.NotFound:
                return

    async def _remove_topic(self, topic: str) -> None:
        """Other people's subscriptions count as well."""
        readers = sorted(
            subscription.name.rsplit("/", 1)[-1]
            for subscription in await self._subscriptions()
            if subscription.topic == self._client.topic(topic)
        )
        if readers:
            raise BrokerError(f"topic {topic!r} is read by {', '.join(readers)}: remove these first")
        with mapped(f"removing topic {topic!r}"):
            try:
                await self._client.publisher.delete_topic(
                    topic=self._client.topic(topic), retry=None, timeout=self._client.timeout
                )
            except google.NotFound:
                return

    async def _topics(self) -> list[str]:
        with mapped("listing topics"):
            pages = await self._client.publisher.list_topics(
                project=f"projects/{self._client.project}", retry=None, timeout=self._client.timeout
            )
            return [topic.name.rsplit("/", 1)[-1] async for topic in pages]

    async def _subscriptions(self) -> list[Subscription]:
        with mapped("listing subscriptions"):
            pages = await self._client.subscriber.list_subscriptions(
                project=f"projects/{self._client.project}", retry=None, timeout=self._client.timeout
            )
            return [subscription async for subscription in pages]


PATHS = {
    "ack deadline": "ack_deadline_seconds",
    "retention": "message_retention_duration",
    "keeps acknowledged": "retain_acked_messages",
    "expires": "expiration_policy",
    "push": "push_config",
}
"""The repairable settings, and their names in the service."""


def called(topic: str, group: str | None) -> str:
    return f"topic {topic}" if group is None else f"subscription {group}.{topic}.sub"


def place_of(subscription: Subscription) -> tuple[str, str] | None:
    """Group and topic, where the name is one of ours."""
    name, topic = (text.rsplit("/", 1)[-1] for text in (subscription.name, subscription.topic))
    ending = f".{topic}.sub"
    return (name.removesuffix(ending), topic) if name.endswith(ending) else None


def drift_of(found: Subscription, lease: int, retention: float, push: Push | None = None) -> list[Drift]:
    """The settings that are not as ours."""
    kept = seconds(found.message_retention_duration)
    expiry = seconds(found.expiration_policy.ttl)
    drift = []
    if found.ack_deadline_seconds != lease:
        drift.append(Drift(setting="ack deadline", found=f"{found.ack_deadline_seconds} s", wanted=f"{lease} s"))
    if kept != retention:
        loses = f"frames older than {retention:,.0f} s" if retention < kept else ""
        drift.append(Drift(setting="retention", found=f"{kept:,.0f} s", wanted=f"{retention:,.0f} s", loses=loses))
    if not found.retain_acked_messages:
        drift.append(Drift(setting="keeps acknowledged", found="no", wanted="yes"))
    if expiry:
        drift.append(Drift(setting="expires", found=f"after {expiry:,.0f} s", wanted="never"))
    drift += push_drift(found, push)
    if not found.enable_message_ordering:
        drift.append(Drift(setting="order", found="not kept", wanted="kept", repairable=False, fix=ANEW))
    if found.filter:
        drift.append(Drift(setting="filter", found=found.filter, wanted="none", repairable=False, fix=ANEW))
    return drift
