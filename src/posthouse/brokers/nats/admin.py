"""What the servers hold of ours, and how it is repaired and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posthouse.brokers.nats.client import CODE_MISSING, Client, Refused
from posthouse.brokers.nats.ledger import STREAM, Ledger, claims_of, group_and_topic
from posthouse.brokers.nats.messages import stream_of
from posthouse.brokers.nats.topics import NANO, OURS, PARTITIONS, TOGETHER, Config, Info, Settings, stream_config
from posthouse.errors import BrokerError
from posthouse.survey import Drift, Resource, partition_drift

FIXED = {
    "storage": "a stream keeps its storage: make it anew",
    "retention": "a stream keeps its policy: make it anew",
}


class Page(msgspec.Struct):
    """Of the list of streams."""

    total: int = 0
    streams: list[Info] | None = None


class Subjects(msgspec.Struct):
    """Of the ledger's stream: each subject with its messages, a page at a time."""

    total: int = 0
    state: dict[str, Any] = {}


class Raw(msgspec.Struct):
    """A stream's settings, those included that we know nothing of."""

    config: dict[str, object]


class Inventory:
    """Of one account. `settings` are those that this instance makes topics with."""

    def __init__(self, client: Client, settings: Settings, lease: float) -> None:
        self._client = client
        self._settings = settings
        self._lease = lease

    async def found(self) -> list[Resource]:
        """Every topic and every place of a group."""
        together = await self._client.version() >= TOGETHER
        topics = [self._topic(info, together) for info in await self._streams() if OURS in info.config.metadata]
        alive = {topic.topic: topic for topic in topics}
        places = sorted(await self._places())
        return [*topics, *[await self._place(group, topic) for group, topic in places if topic in alive]]

    async def repair(self, topic: str) -> None:
        """Send the settings back as they are, with ours in them. Number of partitions, storage and policy stay."""
        raw = await self._client.ask(f"STREAM.INFO.{stream_of(topic)}", {}, Raw)
        wanted = stream_config(topic, self._settings, await self._client.version() >= TOGETHER)
        kept = {"subjects", "metadata", *FIXED}
        repaired = {**raw.config, **{name: value for name, value in wanted.items() if name not in kept}}
        await self._client.ask(f"STREAM.UPDATE.{stream_of(topic)}", repaired, msgspec.Raw)

    async def remove(self, resources: Sequence[Resource]) -> None:
        """One after the other; the first that cannot go ends it."""
        for resource in sorted(resources, key=lambda resource: resource.group is None):
            if resource.group is not None:
                await self._remove_place(resource.group, resource.topic)
            else:
                await self._remove_topic(resource.topic)

    async def _remove_place(self, group: str, topic: str) -> None:
        if await self._at_work(group, topic):
            raise BrokerError(f"group {group!r} has members at work in {topic}: stop them first")
        await self._client.ask(f"STREAM.PURGE.{STREAM}", {"filter": claims_of(group, topic)}, msgspec.Raw)

    async def _remove_topic(self, topic: str) -> None:
        readers = sorted(group for group, read in await self._places() if read == topic)
        if readers:
            raise BrokerError(f"topic {topic!r} is read by {', '.join(readers)}: remove these groups first")
        try:
            await self._client.ask(f"STREAM.DELETE.{stream_of(topic)}", {}, msgspec.Raw)
        except Refused as error:
            if error.code != CODE_MISSING:
                raise

    async def _streams(self) -> list[Info]:
        found: list[Info] = []
        while True:
            page = await self._client.ask("STREAM.LIST", {"offset": len(found)}, Page)
            found += page.streams or []
            if not page.streams or len(found) >= page.total:
                return found

    async def _places(self) -> set[tuple[str, str]]:
        """Group and topic of every line of the ledger."""
        subjects: list[str] = []
        while True:
            query = {"subjects_filter": claims_of(None, None), "offset": len(subjects)}
            try:
                page = await self._client.ask(f"STREAM.INFO.{STREAM}", query, Subjects)
            except Refused as error:
                if error.code == CODE_MISSING:
                    return set()
                raise
            more = page.state.get("subjects") or {}
            subjects += more
            if not more or len(subjects) >= page.total:
                return {group_and_topic(subject) for subject in subjects}

    async def _place(self, group: str, topic: str) -> Resource:
        return Resource(
            topic=topic, group=group, called=called(topic, group), at_work=await self._at_work(group, topic)
        )

    async def _at_work(self, group: str, topic: str) -> bool:
        """A member that was killed counts until the server forgets it, five leases later."""
        snapshot = await Ledger(self._client, group).snapshot([topic], "", self._lease)
        return bool(snapshot.living.get(topic))

    def _topic(self, info: Info, together: bool) -> Resource:
        name = info.config.metadata[OURS]
        wanted = msgspec.convert(stream_config(name, self._settings, together), Config)
        drift = [
            *partition_drift(int(info.config.metadata[PARTITIONS]), self._settings.partitions),
            *drift_of(info.config, wanted),
        ]
        return Resource(topic=name, called=called(name, None), frames=info.state.messages, drift=drift)


def called(topic: str, group: str | None) -> str:
    return f"stream {stream_of(topic)}" if group is None else f"lines of {group} in {STREAM}"


def drift_of(found: Config, wanted: Config) -> list[Drift]:
    """The settings that are not as ours."""
    before, after = _shown(found), _shown(wanted)
    return [
        Drift(
            setting=name,
            found=before[name],
            wanted=after[name],
            repairable=name not in FIXED,
            loses=_losses(found, wanted) if name == "max_age" else "",
            fix=FIXED.get(name, ""),
        )
        for name in after
        if before[name] != after[name]
    ]


def _shown(config: Config) -> Mapping[str, str]:
    return {
        "storage": config.storage,
        "retention": config.retention,
        "discard": config.discard,
        "num_replicas": str(config.num_replicas),
        "max_age": f"{config.max_age / NANO:,.0f} s" if config.max_age else "none",
        "duplicate_window": f"{config.duplicate_window / NANO:,.0f} s",
        "allow_direct": str(config.allow_direct).lower(),
        "allow_atomic": str(config.allow_atomic).lower(),
    }


def _losses(found: Config, wanted: Config) -> str:
    """A shorter age deletes what is older at once."""
    shorter = wanted.max_age and (not found.max_age or wanted.max_age < found.max_age)
    return f"frames older than {wanted.max_age / NANO:,.0f} s" if shorter else ""
