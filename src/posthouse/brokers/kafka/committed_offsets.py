"""CommittedOffsets: where a group stands in each partition, and where it was told to go.

Kafka lets only members of a group move its offsets while it has any. So a move is written where nobody is ever a member:
as offsets of a second group, the register, each with an id of the move. The member that owns a partition compares the ids,
goes there and commits, with the id in its own offset; a late commit of the old place has the old id and undoes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from posthouse.brokers.kafka.client import CONSUMER, Client, configured
from posthouse.brokers.kafka.records import runs
from posthouse.clock import new_id
from posthouse.events.limits import UNREADABLE

Spot = tuple[str, int]
"""Topic and partition."""
ALL = -1
REGISTER = ".posthouse"
"""What the name of a register ends with."""
METADATA = 4000
"""Bytes of text that a server keeps with an offset, by default and a little less."""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is written beside an offset."""

    move: str = ""
    """The id of the last move that was followed."""
    began: int = 0
    """The offset at which the group began."""
    handed: int = 0
    """So many frames from the cursor on may have been handed out, of those below `end`."""
    end: int | None = None
    """None as long as somebody may hand out more: whoever takes the partition over finds it where the log ends then."""
    until: int = 0
    """Everything below this offset may have been handed out before the last move; -1 means all that is stored now."""
    done: list[tuple[int, int]] = []
    """Runs of offsets behind the cursor that were acknowledged, counted from the cursor."""
    topic_id: str = ""
    """Of the topic whose offsets these are: one that was made again has another. Empty where nobody knows it, as in notes of
    older releases, which are believed."""
    unsure: int = 0
    """Once it was given back: of so many offsets from the cursor on, each may have been dealt with though nobody said so."""
    state: Literal["", "declared", "removed"] = ""
    """Where there is no place. `declared`: the first member says where the group begins. `removed`: whoever still reads there
    must be told; Kafka's own offsets cannot be deleted one by one."""


class Claim(msgspec.Struct, frozen=True):
    """A group's place in one partition: the next offset to read, and what is known about those behind it."""

    cursor: int
    note: Note = Note()

    @property
    def done(self) -> set[int]:
        return {self.cursor + n for first, last in self.note.done for n in range(first, last + 1)}


def written(spot: Spot, claim: Claim, epoch: int | None = None) -> TopicPartition:
    """As it is committed. Too many runs are left out: those frames come again, marked as repeats, and are unsure."""
    note = claim.note
    text = msgspec.json.encode(note).decode()
    while len(text) > METADATA:
        unsure = max(note.unsure, note.done[-1][1] + 1)
        note = msgspec.structs.replace(note, done=note.done[: len(note.done) // 2], unsure=unsure)
        text = msgspec.json.encode(note).decode()
    return TopicPartition(*spot, claim.cursor, metadata=text, leader_epoch=-1 if epoch is None else epoch)


def read(found: TopicPartition) -> Claim | None:
    """None where nothing was committed. A note that is not ours is empty."""
    if found.offset < 0:
        return None
    try:
        note = msgspec.json.decode(found.metadata or "{}", type=Note)
    except UNREADABLE:
        note = Note()
    return Claim(found.offset, note)


def acknowledged(cursor: int, offsets: Iterable[int]) -> list[tuple[int, int]]:
    return runs(sorted(offset - cursor for offset in offsets if offset >= cursor))


def is_other(claim: Claim, topic_id: str) -> bool:
    """Whether it is a place in another log than this one, which had the same name."""
    return bool(topic_id and claim.note.topic_id) and claim.note.topic_id != topic_id


def settled(committed: Claim | None, told: Claim | None, topic_id: str = "") -> Claim | None:
    """Where the group really stands. An offset without a note of ours was set by somebody's tool, and is believed. Where its
    topic was made again it begins anew: repeats are for the inbox, gaps for nobody."""
    if told is not None and is_other(told, topic_id):
        told = Claim(0, Note(move=told.note.move, until=ALL, topic_id=topic_id))
    if committed is not None and is_other(committed, topic_id):
        committed = told or Claim(0, Note(move=committed.note.move, until=ALL, topic_id=topic_id))
    if committed is None or told is None:
        return committed or told
    if told.note.state == "declared":
        return committed
    if not committed.note.move:
        return Claim(committed.cursor, Note(move=told.note.move, began=told.note.began, until=ALL))
    return committed if committed.note.move == told.note.move else told


def placed(claim: Claim | None) -> Claim | None:
    """None too where the group was only declared, or removed."""
    return None if claim is None or claim.note.state else claim


class CommittedOffsets:
    """Those of one group. Offsets are read and written by consumers that never join: the driver's admin client does the
    same and crashes when a coordinator moves."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self.group = group
        self._register = f"{group}{REGISTER}"
        self._clients: dict[str, Consumer] = {}

    async def aclose(self) -> None:
        clients, self._clients = self._clients, {}
        for consumer in clients.values():
            await asyncio.to_thread(consumer.close)

    async def of(self, spots: Collection[Spot], topic_ids: Mapping[str, str]) -> dict[Spot, Claim | None]:
        """Where the group stands; None where it is new, only declared, or removed."""
        return {spot: placed(claim) for spot, claim in (await self.words(spots, topic_ids)).items()}

    async def words(self, spots: Collection[Spot], topic_ids: Mapping[str, str]) -> dict[Spot, Claim | None]:
        """The last word on each: a place, or that it was declared or removed; None where nothing was ever said. The ids must
        be from before: whoever asks for them later takes a place in the old topic for one in the new."""
        committed, told = await self._offsets(self.group, spots), await self.told(spots)
        return {spot: settled(committed.get(spot), told.get(spot), topic_ids.get(spot[0], "")) for spot in spots}

    async def standing(self, spots: Collection[Spot], topic_ids: Mapping[str, str]) -> dict[Spot, Claim]:
        """Those where the group has a place, or was declared."""
        words = await self.words(spots, topic_ids)
        return {spot: claim for spot, claim in words.items() if claim is not None and claim.note.state != "removed"}

    async def declare(self, spots: Collection[Spot]) -> None:
        """Say that the group belongs there, where nothing says so yet."""
        there = await self.standing(spots, {})
        await self.begin({spot: Claim(0, Note(state="declared")) for spot in spots if spot not in there})

    async def give_up(self, spots: Collection[Spot]) -> None:
        """Say that the group has no place there any more."""
        gone = Note(move=new_id(), state="removed")
        await self.tell({spot: Claim(0, gone) for spot in spots})

    async def told(self, spots: Collection[Spot]) -> dict[Spot, Claim]:
        """Where it was told to go last."""
        return await self._offsets(self._register, spots)

    async def tell(self, claims: Mapping[Spot, Claim]) -> None:
        """Send the group there. Where nobody is a member it is there at once."""
        await self._write(self._register, claims)
        try:
            await self._write(self.group, claims)
        except KafkaException as error:
            if error.args[0].code() not in NOT_EMPTY:
                raise

    async def begin(self, claims: Mapping[Spot, Claim]) -> None:
        """The first place of a group that is new to these partitions."""
        if claims:
            await self._write(self._register, claims)

    async def _offsets(self, group: str, spots: Collection[Spot]) -> dict[Spot, Claim]:
        parts = [TopicPartition(*spot) for spot in spots]
        if not parts:
            return {}
        consumer = self._consumer(group)
        found = await self._client.wait_for(
            f"looking at group {group!r}", lambda: intact(consumer.committed(parts, self._client.timeout))
        )
        claims = {(part.topic, part.partition): read(part) for part in found}
        return {spot: claim for spot, claim in claims.items() if claim is not None}

    async def _write(self, group: str, claims: Mapping[Spot, Claim]) -> None:
        offsets = [written(spot, claim) for spot, claim in claims.items()]
        consumer = self._consumer(group)
        await self._client.wait_for(
            f"moving group {group!r}",
            lambda: intact(consumer.commit(offsets=offsets, asynchronous=False)),
            but=NOT_EMPTY,
        )

    def _consumer(self, group: str) -> Consumer:
        if group not in self._clients:
            patience = {"group.id": group, "session.timeout.ms": int(self._client.timeout * 1000)}
            with configured():
                self._clients[group] = Consumer(self._client.config(patience, CONSUMER))
        return self._clients[group]


def intact(parts: Sequence[TopicPartition] | None) -> Sequence[TopicPartition]:
    """Raises what was wrong with any of them."""
    for part in parts or ():
        if part.error is not None:
            raise KafkaException(part.error)
    return parts or ()


NOT_EMPTY = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.REBALANCE_IN_PROGRESS,
)
"""Answers to a commit of somebody who is no member of a group that has members."""
