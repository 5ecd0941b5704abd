"""Topics: the keys of their lanes, and how many lanes each was made with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from posthouse.brokers.redis.client import Client, Refused
from posthouse.brokers.redis.entries import lanes_of
from posthouse.brokers.redis.scripts import MAKE
from posthouse.errors import BrokerError, ConfigurationError, did_you_mean

ROOT = "posthouse"
PARTITIONS = "partitions"


def meta_of(topic: str) -> str:
    return f"{ROOT}:topic:{topic}"


def ledger_of(group: str, topic: str) -> str:
    """Topics have no colon, so no two groups and topics share one."""
    return f"{ROOT}:group:{group}:{topic}"


def bell_of(group: str) -> str:
    """The stream that wakes the members of a group."""
    return f"{ROOT}:bell:{group}"


class Topics:
    """What is known of the topics on the server. `partitions` is for those that are made here."""

    def __init__(self, client: Client, partitions: int) -> None:
        self._client = client
        self._partitions = partitions
        self.known: dict[str, int] = {}
        """Topics and their partitions."""

    def lanes(self, topic: str) -> list[str]:
        return lanes_of(topic, self.known[topic])

    async def make(self, topics: Iterable[str]) -> None:
        """Make what is missing. Raises ConfigurationError for names that cannot be."""
        names = sorted(set(topics))
        bad = [name for name in names if not is_topic(name)]
        if bad:
            raise ConfigurationError(
                *(f"{name!r} cannot be a topic on Redis: use a text with no colon and no blanks" for name in bad)
            )
        for name in names:
            await self._client.ask("HSETNX", meta_of(name), PARTITIONS, self._partitions)
            await self.find([name])
            try:
                await self._client.run(MAKE, self.lanes(name), ())
            except Refused as error:
                raise BrokerError(f"topic {name!r} cannot be made: {error}") from error

    async def find(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Those that exist; what was not known is asked for."""
        unknown = [name for name in topics if name not in self.known and is_topic(name)]
        if unknown:
            answers = await self._client.ask_all([("HGET", meta_of(name), PARTITIONS) for name in unknown])
            for name, answer in zip(unknown, answers, strict=True):
                if answer is not None:
                    self.known[name] = int(answer)
        return self.known

    async def existing(self, topic: str) -> list[str]:
        """The lanes of a topic; BrokerError when there is none."""
        if topic not in await self.find([topic]):
            raise BrokerError(f"topic {topic!r} does not exist.{did_you_mean(topic, self.known)}")
        return self.lanes(topic)

    def forget(self, topic: str) -> None:
        self.known.pop(topic, None)


def is_topic(name: str) -> bool:
    """Whether its lanes and ledgers can have keys of their own."""
    return bool(name) and ":" not in name and not any(letter.isspace() for letter in name) and name.isprintable()
