"""The ledger of a group: who is alive, who owns which partition, and how far it was read.

One stream holds it, one message per line of the ledger. A line changes only by compare and set, on the sequence of its
last version, so two members never own a partition together, and whoever was replaced changes nothing any more. Time is
the server's: each version carries the moment at which it was stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from nats.aio.msg import Msg

from posthouse.brokers.group.assignment import TopicPartition
from posthouse.brokers.nats.client import CODE_CONFLICT, Client, Message, Refused
from posthouse.brokers.nats.messages import moment, text_of, word

STREAM = "posthouse_groups"
ROOT = "posthouse-groups"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One partition as the group has it.

    Everything up to `cursor` (a sequence of the stream) is acknowledged, and the few in `done` behind it; `at` is when
    the frame at the cursor was stored, where that is known, and `done_at` the same of the last one in `done`. Up to `handed` frames behind the cursor, of those up to `end`,
    and all up to `until`, may have been handed out. `end` is None as long as somebody may hand out more: whoever takes it
    over finds it where the stream ends then. Once it was given back, so many as `unsure` behind the cursor may have been dealt
    with though nobody said so. `epoch` changes with the owner and with every seek. `born` is when the stream
    was made: another one begins anew.
    """

    born: str
    owner: str | None = None
    epoch: int = 0
    cursor: int = 0
    at: float = 0.0
    started: int = 0
    handed: int = 0
    end: int | None = None
    until: int = 0
    done: tuple[int, ...] = ()
    done_at: float = 0.0
    unsure: int = 0


class Versioned(NamedTuple):
    """An assignment and the sequence of its version."""

    assignment: Assignment
    version: int


class Presence(msgspec.Struct, frozen=True):
    """What a member says of itself."""

    topics: Sequence[str]
    left: bool = False


class Snapshot(NamedTuple):
    """What the ledger says, and who is alive for which topic."""

    lines: Mapping[TopicPartition, Versioned]
    living: Mapping[str, Sequence[str]]


_assignment = msgspec.json.Decoder(Assignment)
_presence = msgspec.json.Decoder(Presence)


class Ledger:
    """Of one group."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._root = f"{ROOT}.{word(group)}"
        self.hint = f"{ROOT}-hint.{word(group)}"
        """Where members tell each other, unstored, that something changed."""

    async def lines(self, topic: str) -> dict[TopicPartition, Versioned]:
        """Every partition that the group has in a topic."""
        found = await self._client.read(STREAM, {"multi_last": [claims_of(self._group, topic)]})
        return dict(_line(topic, message) for message in found)

    async def snapshot(self, topics: Iterable[str], me: str, lease: float) -> Snapshot:
        """All lines of these topics, and the members whose last sign is younger than a lease, by the server's clock."""
        lines: dict[TopicPartition, Versioned] = {}
        for topic in topics:
            lines |= await self.lines(topic)
        signs = await self._client.read(STREAM, {"multi_last": [f"{self._root}.member.*"]})
        at = {
            _subject(message).rsplit(".", 1)[1]: (_time(message), _presence.decode(message.data)) for message in signs
        }
        now = at[me][0] if me in at else max((time for time, _ in at.values()), default=0.0)
        living: dict[str, list[str]] = {}
        for member, (time, presence) in at.items():
            if not presence.left and (now - time < lease or member == me):
                for topic in presence.topics:
                    living.setdefault(topic, []).append(member)
        return Snapshot(lines, living)

    async def sign(self, me: str, presence: Presence, lease: float) -> None:
        """Say that a member is alive, or has left. The server forgets it long after it fell silent."""
        keep = 1 if presence.left else math.ceil(max(1.0, 5 * lease))
        message = Message(f"{self._root}.member.{me}", msgspec.json.encode(presence), {"Nats-TTL": f"{keep}s"})
        (answer,) = await self._client.store([message])
        if answer.error is not None:
            raise Refused("joining a group", answer.error)

    async def begin(self, new: Mapping[TopicPartition, Assignment]) -> None:
        """Write the lines that are not there yet."""
        await self.change({spot: Versioned(assignment, 0) for spot, assignment in new.items()})

    async def change(self, lines: Mapping[TopicPartition, Versioned]) -> dict[TopicPartition, int]:
        """Replace each line if its version is still the last; the new versions of those that were. Others are missing
        in the answer: somebody was faster."""
        messages = [
            Message(
                f"{self._root}.claim.{word(topic)}.{partition}",
                msgspec.json.encode(line.assignment),
                {EXPECTED: str(line.version)},
            )
            for (topic, partition), line in lines.items()
        ]
        changed: dict[TopicPartition, int] = {}
        for spot, answer in zip(lines, await self._client.store(messages), strict=True):
            if answer.error is None:
                changed[spot] = answer.seq
            elif answer.error.err_code != CODE_CONFLICT:
                raise Refused(f"changing the ledger of {spot[0]}", answer.error)
        return changed


def claims_of(group: str | None, topic: str | None) -> str:
    """The subjects of a group's lines in a topic; None stands for all."""
    return f"{ROOT}.{'*' if group is None else word(group)}.claim.{'*' if topic is None else word(topic)}.*"


def group_and_topic(subject: str) -> tuple[str, str]:
    """Whose line it is, and in which topic."""
    _, group, _, topic, _ = subject.split(".")
    return text_of(group), text_of(topic)


def _line(topic: str, message: Msg) -> tuple[TopicPartition, Versioned]:
    spot = (topic, int(_subject(message).rsplit(".", 1)[1]))
    return spot, Versioned(_assignment.decode(message.data), int((message.headers or {})["Nats-Sequence"]))


def _subject(message: Msg) -> str:
    return (message.headers or {})["Nats-Subject"]


def _time(message: Msg) -> float:
    return moment((message.headers or {})["Nats-Time-Stamp"])
