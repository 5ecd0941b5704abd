"""Topics as streams: how they are made, and what is known of those that exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from posthouse.brokers.nats.client import CODE_MISSING, Client, Refusal, Refused
from posthouse.brokers.nats.ledger import ROOT, STREAM
from posthouse.brokers.nats.messages import is_topic, moment, stream_of, subjects_of
from posthouse.errors import BrokerError, ConfigurationError

NANO = 1_000_000_000
CODE_IN_USE = 10058
OURS = "posthouse-topic"
PARTITIONS = "posthouse-partitions"
TOGETHER = (2, 12)
"""The first server that stores a batch together."""


class Config(msgspec.Struct):
    """Of a stream, as the server has it."""

    subjects: list[str] = []
    storage: str = "file"
    retention: str = "limits"
    discard: str = "old"
    num_replicas: int = 1
    duplicate_window: int = 0
    max_age: int = 0
    max_msg_size: int = -1
    allow_atomic: bool = False
    allow_direct: bool = False
    metadata: dict[str, str] = {}


class State(msgspec.Struct):
    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0
    num_deleted: int = 0


class Info(msgspec.Struct):
    config: Config
    state: State
    created: str
    ts: str = ""


class Topic(msgspec.Struct, frozen=True):
    """What is known of one topic."""

    name: str
    partitions: int
    together: bool
    max_bytes: int
    created: str
    first: int
    last: int
    config: Config
    holes: bool = False
    """Whether frames in the middle were deleted."""
    asked_at: float | None = None
    """When this was so, by the server's clock, where it says (2.10 and later)."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Of the streams that are made here; those that exist keep theirs."""

    partitions: int
    replicas: int
    retention: float | None
    dedup: float
    ages: dict[str, float] = {}
    """Of topics that somebody wants to be kept for another time, in seconds."""

    def age(self, topic: str) -> float | None:
        return self.ages.get(topic, self.retention)


class Topics:
    """Known by name. A topic keeps its number of partitions for ever, so what was found once is asked again only for
    what moves."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self.known: dict[str, Topic] = {}

    async def make(self, topics: Iterable[str]) -> None:
        """Make the streams that are missing, and the ledger."""
        odd = [name for name in topics if not is_topic(name)]
        if odd:
            raise ConfigurationError(
                *(f"topic {name!r} cannot be a subject of NATS: no blanks, no wildcards" for name in odd)
            )
        if not await self._exists(STREAM):
            await self._make(STREAM, _ledger(self._settings))
        together = await self._client.version() >= TOGETHER
        for name in topics:
            if not await self._exists(stream_of(name)):  # not by what is known: another may have removed it since
                await self._make(stream_of(name), stream_config(name, self._settings, together))
            await self.look(name)

    async def find(self, topics: Iterable[str]) -> Mapping[str, Topic]:
        """Those that exist; what was not known is asked for."""
        for name in topics:
            if name not in self.known and is_topic(name):
                try:
                    await self.look(name)
                except Refused as error:
                    if error.code != CODE_MISSING:
                        raise
        return self.known

    async def look(self, name: str) -> Topic:
        """As it is now. Raises Refused when there is none, BrokerError when the stream is not this topic's."""
        self.known.pop(name, None)
        if not is_topic(name):
            raise Refused(name, Refusal(err_code=CODE_MISSING, description="this cannot be a topic"))
        info = await self._client.ask(f"STREAM.INFO.{stream_of(name)}", {}, Info)
        owner = info.config.metadata.get(OURS)
        if owner != name:
            raise BrokerError(
                f"the stream {stream_of(name)} is not that of topic {name!r} but of {owner or 'somebody else'}: "
                "rename one of them"
            )
        config, room = info.config, await self._client.max_payload()
        self.known[name] = Topic(
            name=name,
            partitions=int(config.metadata[PARTITIONS]),
            together=config.allow_atomic,
            max_bytes=room if config.max_msg_size < 0 else min(room, config.max_msg_size),
            created=info.created,
            first=info.state.first_seq,
            last=info.state.last_seq,
            config=config,
            holes=info.state.num_deleted > 0,
            asked_at=moment(info.ts) if info.ts else None,
        )
        return self.known[name]

    async def remembers(self, topic: Topic, sequence: int, at: float) -> bool:
        """Whether the frame at a sequence is still the one that was stored then. True when nobody can tell any more."""
        if sequence > topic.last:
            return False
        if not at or sequence < topic.first:
            return True
        found = await self._client.read(stream_of(topic.name), {"seq": sequence, "batch": 1})
        headers = (found[0].headers or {}) if found else {}
        if headers.get("Nats-Sequence") != str(sequence):
            return True
        return abs(moment(headers["Nats-Time-Stamp"]) - at) < 1e-5

    def forget(self, name: str) -> None:
        self.known.pop(name, None)

    async def _exists(self, stream: str) -> bool:
        """Asked first: whoever only reads a topic need not have the right to make it."""
        try:
            await self._client.ask(f"STREAM.INFO.{stream}", {}, msgspec.Raw)
        except Refused as error:
            if error.code != CODE_MISSING:
                raise
            return False
        return True

    async def _make(self, stream: str, config: Mapping[str, object]) -> None:
        """One that exists with other settings is left as it is; `look` and the checks judge it."""
        try:
            await self._client.ask(f"STREAM.CREATE.{stream}", {"name": stream, **config}, msgspec.Raw)
        except Refused as error:
            if error.code != CODE_IN_USE:
                raise


def stream_config(topic: str, settings: Settings, together: bool) -> dict[str, object]:
    """Of a topic's stream as it is made here."""
    age = int((settings.age(topic) or 0) * NANO)
    dedup = int(settings.dedup * NANO)
    return {
        "subjects": subjects_of(topic, settings.partitions),
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": settings.replicas,
        "max_age": age,
        "duplicate_window": min(dedup, age) if age else dedup,
        "allow_direct": True,
        "metadata": {OURS: topic, PARTITIONS: str(settings.partitions)},
        **({"allow_atomic": True} if together else {}),
    }


def _ledger(settings: Settings) -> dict[str, object]:
    return {
        "subjects": [f"{ROOT}.>"],
        "storage": "file",
        "num_replicas": settings.replicas,
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "allow_msg_ttl": True,
    }
