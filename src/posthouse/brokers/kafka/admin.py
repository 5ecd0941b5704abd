"""What the servers hold of ours, and how it is repaired and removed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import ConsumerGroupState, KafkaError
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupDescription,
    ResourceType,
)

from posthouse.brokers.kafka.client import PAUSE, Client, answer, words
from posthouse.brokers.kafka.committed_offsets import REGISTER, Claim, CommittedOffsets, Spot, placed
from posthouse.brokers.kafka.drift import drift_of
from posthouse.brokers.kafka.offsets import Offsets, progress_of, spots_of
from posthouse.brokers.kafka.topics import Settings, Topic, Topics, ids_of, is_missing
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.survey import Resource

NOBODY = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
SIDE_BY_SIDE = 8
NO_GROUP = (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID)


class Inventory:
    """Of one cluster. `settings` are those that this instance makes topics with. Kafka has no place to write down whose a
    topic is: ours are those that were asked for, and those on which everything is set that we set."""

    def __init__(self, client: Client, topics: Topics, offsets: Offsets, settings: Settings) -> None:
        self._client = client
        self._topics = topics
        self._offsets = offsets
        self._settings = settings

    async def found(self, asked: Collection[str]) -> list[Resource]:
        """Every topic of ours, and every place of a group that we keep a register for, also in topics of other people."""
        topics = await self._topics.described(await self._topic_names())
        spots = [spot for topic in topics.values() for spot in spots_of(topic)]
        firsts, ends = await self._offsets.firsts(spots), await self._offsets.ends(spots)
        signs = self._settings.config("").keys()
        ours = [topic for topic in topics.values() if topic.name in asked or signs <= topic.own]
        resources = [self._topic(topic, firsts, ends) for topic in ours]
        groups = [name.removesuffix(REGISTER) for name in await self._group_names() if name.endswith(REGISTER)]
        members = await self._members(groups)
        for group, standing in (await self._standing(groups, spots, ids_of(topics.values()))).items():
            resources += places_of(group, standing, topics, firsts, ends, members.get(group))
        return resources

    async def repair(self, topic: str) -> None:
        """Set what can be set; partitions and replicas stay."""
        found = (await self._topics.described([topic])).get(topic)
        if found is None:
            raise BrokerError(f"topic {topic!r} does not exist any more: plan again")
        repairable = {drift.setting for drift in drift_of(found, self._settings) if drift.repairable}
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in self._settings.config(topic).items()
            if name in repairable
        ]
        if not entries:
            return
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        done = await self._client.ask(
            f"mending topic {topic!r}",
            lambda admin, patience: admin.incremental_alter_configs([resource], request_timeout=patience),
        )
        for outcome in done.values():
            answer(f"mending topic {topic!r}", outcome)

    async def remove(self, resources: Sequence[Resource]) -> None:
        """One after the other; the first that cannot go ends it."""
        for resource in sorted(resources, key=lambda resource: resource.group is None):
            if resource.group is not None:
                await self._remove_place(resource.group, resource.topic)
            else:
                await self._remove_topic(resource.topic)

    async def _remove_place(self, group: str, topic: str) -> None:
        found = (await self._topics.described([topic])).get(topic)
        if found is None:
            return
        spots = spots_of(found)
        async with contextlib.aclosing(CommittedOffsets(self._client, group)) as places:
            if is_at_work((await self._members([group])).get(group), topic):
                raise BrokerError(f"group {group!r} has members at work in {topic}: stop them first")
            if not await places.standing(spots, {}):
                return
            await places.give_up(spots)
            if await places.standing(
                spots, {}
            ):  # somebody's tool has set its offsets, and only members may write them now
                raise BrokerError(f"group {group!r} has members in other topics: stop them before it leaves {topic}")
            if not await places.standing(await self._all_spots(), {}):
                await self._drop_group(group)

    async def _drop_group(self, group: str) -> None:
        """It stands nowhere any more. Its register stays for whoever has slept, until Kafka forgets it."""
        doing = f"removing group {group!r}"
        done = await self._client.ask(
            doing, lambda admin, patience: admin.delete_consumer_groups([group], request_timeout=patience)
        )
        outcome: object = done[group]
        if isinstance(outcome, KafkaError) and outcome.code() not in (*NO_GROUP, KafkaError.NON_EMPTY_GROUP):
            raise BrokerError(f"Kafka, {doing}: {words(outcome)}")

    async def _remove_topic(self, topic: str) -> None:
        """Groups of other people count as well, as long as Kafka remembers their offsets."""
        found = (await self._topics.described([topic])).get(topic)
        if found is None:
            return
        readers = await self._readers(found)
        if readers:
            raise BrokerError(f"topic {topic!r} is read by {', '.join(readers)}: remove these groups first")
        doing = f"removing topic {topic!r}"
        done = await self._client.ask(
            doing, lambda admin, patience: admin.delete_topics([topic], request_timeout=patience)
        )
        if not is_missing(done[topic]):
            answer(doing, done[topic])
        await self._disappear(topic)

    async def _disappear(self, topic: str) -> None:
        """Wait until it is not shown any more: the servers hear of it a moment later."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._client.timeout
        while await self._topics.described([topic]):
            if loop.time() > deadline:
                raise BrokerUnavailable(f"Kafka has removed {topic!r} and still shows it: look again")
            await asyncio.sleep(PAUSE)
        self._topics.forget(topic)

    async def _readers(self, topic: Topic) -> list[str]:
        names = sorted({name.removesuffix(REGISTER) for name in await self._group_names()})
        members = await self._members(names)
        standing = await self._standing(names, spots_of(topic), {})
        return [name for name in names if standing[name] or is_at_work(members.get(name), topic.name)]

    async def _standing(
        self, groups: Sequence[str], spots: Sequence[Spot], topic_ids: Mapping[str, str]
    ) -> dict[str, dict[Spot, Claim]]:
        """Where each group has a place. A client can ask for one group only: a few ask at the same time."""
        few = asyncio.Semaphore(SIDE_BY_SIDE)

        async def ask(group: str) -> dict[Spot, Claim]:
            async with few, contextlib.aclosing(CommittedOffsets(self._client, group)) as places:
                return await places.standing(spots, topic_ids)

        found = await asyncio.gather(*map(ask, groups))
        return dict(sorted(zip(groups, found, strict=True)))

    def _topic(self, topic: Topic, firsts: Mapping[Spot, int], ends: Mapping[Spot, int]) -> Resource:
        frames = sum(ends[spot] - firsts[spot] for spot in spots_of(topic))
        drift = drift_of(topic, self._settings)
        return Resource(topic=topic.name, called=called(topic.name, None), frames=frames, drift=drift)

    async def _members(self, groups: list[str]) -> dict[str, ConsumerGroupDescription]:
        """Of those that Kafka knows."""
        if not groups:
            return {}
        found = await self._client.ask(
            "looking at groups",
            lambda admin, patience: admin.describe_consumer_groups(groups, request_timeout=patience),
        )
        return {
            group: answer(f"looking at group {group!r}", was)
            for group, was in found.items()
            if not isinstance(was, KafkaError) or was.code() not in NO_GROUP
        }

    async def _group_names(self) -> list[str]:
        doing = "listing groups"
        found = await self._client.ask(
            doing, lambda admin, patience: {"": admin.list_consumer_groups(request_timeout=patience)}
        )
        listed = answer(doing, found[""])
        if listed.errors:
            raise BrokerUnavailable(f"Kafka, {doing}: {listed.errors[0]}")
        return [group.group_id for group in listed.valid]

    async def _topic_names(self) -> list[str]:
        """All but Kafka's own."""
        listed = await self._client.wait_for(
            "listing topics", lambda: self._client.admin.list_topics(timeout=self._client.timeout)
        )
        return sorted(name for name in listed.topics if not name.startswith("__"))

    async def _all_spots(self) -> list[Spot]:
        topics = await self._topics.described(await self._topic_names())
        return [spot for topic in topics.values() for spot in spots_of(topic)]


def called(topic: str, group: str | None) -> str:
    return f"topic {topic}" if group is None else f"group {group} in {topic}"


def places_of(
    group: str,
    standing: Mapping[Spot, Claim],
    topics: Mapping[str, Topic],
    firsts: Mapping[Spot, int],
    ends: Mapping[Spot, int],
    members: ConsumerGroupDescription | None,
) -> list[Resource]:
    """One for each topic in which a group stands."""
    claims = {spot: placed(standing.get(spot)) for spot in ends}
    return [
        Resource(
            topic=topic,
            group=group,
            called=called(topic, group),
            frames=progress_of(spots_of(topics[topic]), claims, firsts, ends).pending,
            at_work=is_at_work(members, topic),
        )
        for topic in sorted({topic for topic, _ in standing})
    ]


def is_at_work(group: ConsumerGroupDescription | None, topic: str) -> bool:
    """While partitions are being shared out nobody can tell who reads what."""
    if group is None or group.state in NOBODY:
        return False
    parts = [part for member in group.members for part in member.assignment.topic_partitions]
    return group.state is not ConsumerGroupState.STABLE or any(part.topic == topic for part in parts)
