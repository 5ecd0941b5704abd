"""The log in JetStream as one member of a group uses it. Leases are by the server's clock."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
from nats.aio.msg import Msg

from posthouse.brokers.group.assignment import TopicPartition
from posthouse.brokers.group.log import Answer, Group, Owned, Want
from posthouse.brokers.nats.buffer import PartitionBuffer
from posthouse.brokers.nats.client import Client, Refused
from posthouse.brokers.nats.ledger import Assignment, Ledger, Presence, Versioned
from posthouse.brokers.nats.reader import Reader
from posthouse.brokers.nats.topics import Topic, Topics
from posthouse.clock import new_id
from posthouse.local.notifier import LocalNotifier

POLL = 1.0
"""Seconds after which to look again though nothing arrived."""


class NatsLog:
    """The port `GroupLog`."""

    def __init__(
        self, client: Client, topics: Topics, group: str, names: Sequence[str], *, window: int, lease: float
    ) -> None:
        self.me = new_id()
        self.notifier = LocalNotifier(None)
        self.polls = POLL, POLL
        self.stale = False
        self._client = client
        self._topics = topics
        self._ledger = Ledger(client, group)
        self._names = list(names)
        self._size = window
        self._lease = lease
        self._lines: Mapping[TopicPartition, Versioned] = {}
        """As the ledger had them when the lease was renewed."""
        self._readers: dict[PartitionBuffer, Reader] = {}
        self._end_hints: Callable[[], Awaitable[None]] | None = None

    async def renew(self, held: Mapping[TopicPartition, PartitionBuffer]) -> Group:
        """Also sees to it that every partition that is held has a reader that lives."""
        joining = self._end_hints is None
        if joining:
            _, self._end_hints = await self._client.listen(self._on_hint, self._ledger.hint)
            self._client.reconnected.add(self._look_again)
        self.stale = False
        await self._ledger.sign(self.me, Presence(self._names), self._lease)
        snapshot = await self._ledger.snapshot(self._names, self.me, self._lease)
        self._lines = snapshot.lines
        for buffer in self._readers.keys() - held.values():
            await self._close_reader(buffer)  # taken, and the answer was lost
        for place, buffer in held.items():
            line = self._lines.get(place)
            if line is None or (line.assignment.owner, line.assignment.epoch) != (self.me, buffer.epoch):
                await self._close_reader(buffer)
                continue
            if line.version > buffer.version:
                buffer.saved(line.assignment, line.version)  # our own write, whose answer was lost
            await self._see_to(buffer)
        if joining:
            await self._client.tell(self._ledger.hint)
        members = {topic: living for topic, living in snapshot.living.items() if topic in self._names}
        owned = {place: Owned(line.assignment.owner, line.assignment.epoch) for place, line in self._lines.items()}
        return Group(owned, members)

    async def settle(
        self, group: Group, give: Sequence[PartitionBuffer], take: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionBuffer]:
        """Each partition for itself: what somebody else was faster with is missing in the answer."""
        taken: dict[TopicPartition, PartitionBuffer] = {}
        for topic in sorted({topic for topic, _ in take}):
            taken |= await self._take(topic, [place for place in take if place[0] == topic])
        if give and await self._give_back(give, closed=False):
            await self._client.tell(self._ledger.hint)
        return taken

    async def read(self, wants: Sequence[Want[PartitionBuffer]]) -> Sequence[Answer]:
        return [want.partition.answer(want) for want in wants]

    async def commit(self, held: Iterable[PartitionBuffer], *, durable: bool) -> None:
        buffers = [buffer for buffer in held if buffer.unsaved]
        lines = {buffer.place: Versioned(buffer.progressed(self.me), buffer.version) for buffer in buffers}
        changed = await self._ledger.change(lines)
        for buffer in buffers:
            if buffer.place not in changed:  # somebody else changed it: it is not ours any more
                self.stale = True
                continue
            buffer.saved(lines[buffer.place].assignment, changed[buffer.place])
            if buffer in self._readers:
                await self._readers[buffer].ask()

    async def leave(self, held: Sequence[PartitionBuffer]) -> None:
        self._client.reconnected.discard(self._look_again)
        try:
            await self._give_back(held, closed=True)
            await self._ledger.sign(self.me, Presence(self._names, left=True), self._lease)
            await self._client.tell(self._ledger.hint)
        finally:
            for buffer in [*self._readers]:
                await self._close_reader(buffer)
            if self._end_hints is not None:
                await self._end_hints()

    def _look_again(self) -> None:
        """Somebody joined, left or sought, a reader lost its way, or the connection was lost."""
        self.stale = True
        self.notifier.wake()

    async def _on_hint(self, message: Msg) -> None:
        self._look_again()

    async def _take(self, topic: str, places: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionBuffer]:
        """A topic that was deleted stops nothing but itself."""
        info: Topic | None = None
        with contextlib.suppress(Refused):
            info = await self._topics.look(topic)
        old = {place: self._lines[place] for place in places}
        new = {place: Versioned(await self._taken(line.assignment, info), line.version) for place, line in old.items()}
        taken: dict[TopicPartition, PartitionBuffer] = {}
        for place, version in (await self._ledger.change(new)).items():
            before, assignment = old[place].assignment, new[place].assignment
            if assignment.until == before.until:
                unsure = before.unsure if before.owner is None else before.handed
                assignment = msgspec.structs.replace(assignment, handed=before.handed, end=before.end, unsure=unsure)
            buffer = taken[place] = PartitionBuffer(*place, assignment, version, self._size)
            if info is not None:
                # Where the last owner did not say how far it came: what is stored now, when it hands out nothing any more.
                # What is stored later is no repeat, however wide its window was.
                buffer.end = info.last if buffer.end is None else buffer.end
                await self._open_reader(buffer, info)
        return taken

    async def _taken(self, before: Assignment, info: Topic | None) -> Assignment:
        """Where the stream is another one now, or its end was lost and written anew, what it took since must not be hidden:
        from the beginning, as repeats. Repeats are for the inbox, gaps for nobody."""
        epoch = before.epoch + 1
        if info is None or (
            info.created == before.born and await self._topics.remembers(info, before.cursor, before.at)
        ):
            handed = max(before.handed, self._size)
            kept = (
                info is None or not before.done or await self._topics.remembers(info, before.done[-1], before.done_at)
            )
            done = before.done if kept else ()
            return msgspec.structs.replace(before, owner=self.me, epoch=epoch, handed=handed, end=None, done=done)
        return Assignment(born=info.created, owner=self.me, epoch=epoch, handed=self._size, until=info.last)

    async def _give_back(self, buffers: Sequence[PartitionBuffer], *, closed: bool) -> bool:
        for buffer in buffers:
            await self._close_reader(buffer)
        lines = {buffer.place: Versioned(buffer.progressed(None, closed=closed), buffer.version) for buffer in buffers}
        return bool(await self._ledger.change(lines))

    async def _see_to(self, buffer: PartitionBuffer) -> None:
        reader = self._readers.get(buffer)
        if reader is not None and not reader.silent:
            return
        with contextlib.suppress(Refused):
            info = await self._topics.look(buffer.topic)
            same = info.created == buffer.assignment.born
            if same and await self._topics.remembers(info, buffer.last, buffer.last_at):
                await self._open_reader(buffer, info)
            else:  # its end was lost: begin again behind the cursor
                buffer.doubtful = True
                await self._close_reader(buffer)

    async def _open_reader(self, buffer: PartitionBuffer, info: Topic) -> None:
        if buffer not in self._readers:
            self._readers[buffer] = Reader(
                self._client, buffer, info.partitions, notifier=self.notifier, lost=self._look_again
            )
        with contextlib.suppress(Refused):
            await self._readers[buffer].open()

    async def _close_reader(self, buffer: PartitionBuffer) -> None:
        reader = self._readers.pop(buffer, None)
        if reader is not None:
            await reader.aclose()
