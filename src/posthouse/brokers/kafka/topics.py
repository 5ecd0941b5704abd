"""Topics: what is known of each, and the making of those that are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from confluent_kafka import KafkaError, TopicCollection, Uuid
from confluent_kafka.admin import ConfigEntry, ConfigResource, ConfigSource, NewTopic, ResourceType, TopicDescription

from posthouse.brokers.kafka.client import PAUSE, Client, answer, words
from posthouse.brokers.kafka.records import is_topic
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError, did_you_mean

MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)
NO_ID = str(Uuid(0, 0))
"""From servers that give topics no ids."""
LIMIT = 1_048_588
"""Kafka's own default for the largest batch of a topic."""
OVERHEAD = 8 * 1024
"""Bytes of a batch that are kept for what is around a frame: its key, its id, the punctuation of headers."""

Entries = Mapping[str, ConfigEntry] | KafkaError
"""Settings as the servers tell them, or why they do not."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Of topics that are made from now on."""

    partitions: int
    replicas: int
    min_insync: int
    retention: float | None
    ages: dict[str, float] = {}
    """Of topics that somebody wants to be kept for another time, in seconds."""

    def config(self, topic: str) -> dict[str, str]:
        age = self.ages.get(topic, self.retention)
        kept = -1 if age is None else int(age * 1000)
        return {
            "min.insync.replicas": str(self.min_insync),
            "cleanup.policy": "delete",
            "retention.ms": str(kept),
            "retention.bytes": "-1",
            "message.timestamp.type": "LogAppendTime",  # so that times follow the order, whatever clocks producers have
            "unclean.leader.election.enable": "false",
        }


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """As it was when it was looked at. `config` is empty where this service may not read it."""

    name: str
    partitions: int
    replicas: int
    config: Mapping[str, str]
    own: frozenset[str] = frozenset()
    """Names of settings that are the topic's own, whatever the servers' defaults become."""
    max_bytes: int = LIMIT
    """Of a batch, and so of the largest record."""
    id: str = ""
    """Another one when a topic of this name is made again; empty where the servers give none."""

    @property
    def room(self) -> int:
        """Of a frame: its headers and body."""
        return max(0, self.max_bytes - OVERHEAD)


class Topics:
    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self.known: dict[str, Topic] = {}

    async def make(self, names: Sequence[str]) -> None:
        """Those that are missing; of others nothing is changed."""
        bad = [name for name in names if not is_topic(name)]
        if bad:
            raise ConfigurationError(
                *(f"{name!r} cannot be a Kafka topic: letters, digits, dots, dashes, at most 249" for name in bad)
            )
        await self.look(names)
        settings = self._settings
        new = [
            NewTopic(name, settings.partitions, settings.replicas, config=settings.config(name))
            for name in names
            if name not in self.known
        ]
        if not new:
            return
        made = await self._client.ask(
            "making topics", lambda admin, patience: admin.create_topics(new, request_timeout=patience)
        )
        for name, outcome in made.items():
            if isinstance(outcome, KafkaError) and outcome.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise BrokerError(f"Kafka would not make the topic {name!r}: {words(outcome)}")
        await self._appear([topic.topic for topic in new])

    async def _appear(self, names: Sequence[str]) -> None:
        """Wait until they can be seen: the servers hear of a new topic a moment after it was made."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._client.timeout
        while True:
            await self.look(names)
            hidden = [name for name in names if name not in self.known]
            if not hidden:
                return
            if loop.time() > deadline:
                raise BrokerUnavailable(f"Kafka has made {', '.join(hidden)} and does not show it yet: try again")
            await asyncio.sleep(PAUSE)

    async def find(self, names: Collection[str]) -> None:
        """Look at those that are not known yet."""
        unknown = [name for name in names if name not in self.known]
        if unknown:
            await self.look(unknown)

    async def look(self, names: Collection[str]) -> None:
        """As they are now; one that does not exist is not in `known` afterwards."""
        for name in names:
            self.known.pop(name, None)
        self.known |= await self.described(names)

    async def described(self, names: Collection[str]) -> dict[str, Topic]:
        """Those that exist, as they are now; nothing is remembered."""
        there = await self._there(names)
        configs = await self._configs(list(there))
        return {name: topic_of(name, description, configs[name]) for name, description in there.items()}

    async def ids(self, names: Collection[str]) -> dict[str, str]:
        """Of those that exist, as they are now: one question to the servers."""
        return {name: id_of(description) for name, description in (await self._there(names)).items()}

    async def existing(self, name: str) -> Topic:
        """As it is now. Raises BrokerError when it is missing."""
        await self.look([name])
        if name not in self.known:
            raise BrokerError(f"topic {name!r} does not exist.{did_you_mean(name, self.known)}")
        return self.known[name]

    def forget(self, name: str) -> None:
        self.known.pop(name, None)

    async def _there(self, names: Collection[str]) -> dict[str, TopicDescription]:
        asked = [name for name in names if is_topic(name)]
        if not asked:
            return {}
        found = await self._client.ask(
            "looking at topics",
            lambda admin, patience: admin.describe_topics(TopicCollection(asked), request_timeout=patience),
        )
        return {name: answer(f"looking at topic {name!r}", was) for name, was in found.items() if not is_missing(was)}

    async def _configs(self, names: Sequence[str]) -> dict[str, Entries]:
        resources = {ConfigResource(ResourceType.TOPIC, name): name for name in names}
        if not resources:
            return {}
        found = await self._client.ask(
            "reading the settings of topics",
            lambda admin, patience: admin.describe_configs(list(resources), request_timeout=patience),
        )
        return {resources[resource]: entries for resource, entries in found.items()}


def topic_of(name: str, description: TopicDescription, entries: Entries) -> Topic:
    config, replicas = values(entries), [len(part.replicas) for part in description.partitions]
    return Topic(
        name=name,
        partitions=len(replicas),
        replicas=min(replicas, default=0),
        config=config,
        own=frozenset() if isinstance(entries, KafkaError) else own(entries),
        max_bytes=int(config.get("max.message.bytes", LIMIT)),
        id=id_of(description),
    )


def id_of(description: TopicDescription) -> str:
    return "" if str(description.topic_id) == NO_ID else str(description.topic_id)


def ids_of(topics: Iterable[Topic]) -> dict[str, str]:
    return {topic.name: topic.id for topic in topics}


def own(entries: Mapping[str, ConfigEntry]) -> frozenset[str]:
    mark = ConfigSource.DYNAMIC_TOPIC_CONFIG
    marks: tuple[object, ...] = (mark, mark.value)  # the driver says one and gives the other
    return frozenset(name for name, entry in entries.items() if entry.source in marks)


def values(found: Entries) -> Mapping[str, str]:
    """Nothing where the right to read them is missing."""
    if isinstance(found, KafkaError):
        return {}
    return {name: entry.value for name, entry in found.items() if isinstance(entry.value, str)}


def is_missing(found: object) -> bool:
    return isinstance(found, KafkaError) and found.code() in MISSING
