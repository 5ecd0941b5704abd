"""The ledger of a group in a topic: who is alive, who owns which partition, and how far each was read. And `LedgerLog`, the
port `GroupLog` for any store that can keep one.

For a broker that is a log without groups of its own. Wherever the ledger is kept, it is changed by compare and set: a
change is made from the version that was read, and is made again when somebody was faster. So two members never own a
partition together, and whoever was replaced changes nothing any more.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from posthouse.broker import Delivery, Frame
from posthouse.brokers.group.assignment import TopicPartition
from posthouse.brokers.group.log import Answer, Group, Owned, Partition, Want
from posthouse.brokers.group.window import Window
from posthouse.clock import Clock, new_id
from posthouse.errors import BrokerError
from posthouse.local.notifier import LocalNotifier


class Cursor(msgspec.Struct):
    """One partition as the group has it.

    Its first `acked` frames are acknowledged, the last of them is in front of or at position `at`, and the numbers in
    `done` behind them are too. Numbers up to `touched`, and the `handed` ones behind the cursor, may have been handed
    out. `epoch` changes with the owner and with every seek: whoever has another one holds nothing here.
    """

    owner: str | None = None
    epoch: int = 0
    acked: int = 0
    at: int = 0
    done: list[int] = []
    touched: int = 0
    handed: int = 0

    def take(self, member: str, window: int) -> None:
        """With a new epoch. Where the one before did not give it back, a whole window is in doubt."""
        self.touched = max(self.touched, self.acked + self.handed)
        self.owner, self.epoch, self.handed = member, self.epoch + 1, window


class Ledger(msgspec.Struct):
    """`signs` counts the signs of life of each member. `fresh`: declared, and nobody has read yet."""

    partitions: list[Cursor]
    signs: dict[str, int] = {}
    fresh: bool = True
    truncated: bool = False

    @classmethod
    def of(cls, partitions: int) -> Ledger:
        return cls([Cursor() for _ in range(partitions)])

    @property
    def acknowledged(self) -> int:
        """How many frames of the topic need not come again."""
        return sum(cursor.acked + len(cursor.done) for cursor in self.partitions)

    def begin(self, first: int, counts: Sequence[int]) -> None:
        """The first member says where the group starts; for all others it has started."""
        if self.fresh:
            self.fresh, self.truncated = False, first > 1
            self._move(first, counts)

    def seek(self, first: int, counts: Sequence[int], stored: Sequence[int]) -> None:
        """Go to a position. `counts`: the frames of each partition in front of it; `stored`: all that may be known."""
        self.fresh = False
        self._move(first, counts)
        for cursor, touched in zip(self.partitions, stored, strict=True):
            cursor.touched, cursor.handed = touched, 0

    def forget(self, member: str) -> None:
        """It leaves, and what it owned is free."""
        self.signs.pop(member, None)
        for cursor in self.partitions:
            if cursor.owner == member:
                cursor.owner = None

    def _move(self, first: int, counts: Sequence[int]) -> None:
        for cursor, count in zip(self.partitions, counts, strict=True):
            cursor.epoch, cursor.at, cursor.acked, cursor.done = cursor.epoch + 1, first - 1, count, []


class Signs:
    """Who is alive, as one member sees it: whoever gave a sign within a lease of this member's own clock. No two clocks
    are compared."""

    def __init__(self, me: str, lease: float) -> None:
        self._me = me
        self._lease = lease
        self._seen: dict[str, tuple[int, float]] = {}

    def renew(self, ledger: Ledger, now: float) -> None:
        """Give a sign, and strike out whoever gave none for a lease."""
        ledger.signs[self._me] = ledger.signs.get(self._me, 0) + 1
        for member, sign in list(ledger.signs.items()):
            seen, since = self._seen.get(member, (None, now))
            if seen != sign:
                self._seen[member] = (sign, now)
            elif member != self._me and now - since > self._lease:
                ledger.forget(member)


def partition_of(frame: Frame, partitions: int) -> int:
    """Where a frame belongs, for ever: by its key, or by its id when it has none."""
    return zlib.crc32((frame.id if frame.key is None else frame.key).encode()) % partitions


def count_by_partition(frames: Sequence[Frame], partitions: int, before: Sequence[int] = ()) -> list[int]:
    """How many frames of each partition there are, on top of those `before`."""
    counts = list(before) or [0] * partitions
    for frame in frames:
        counts[partition_of(frame, partitions)] += 1
    return counts


class LedgerStore(Protocol):
    """Topics whose frames have the positions 1, 2, 3 … without gaps. Every method may raise BrokerUnavailable."""

    async def end(self, topic: str) -> int:
        """The position behind the last frame."""
        ...

    async def read(self, topic: str, position: int) -> Sequence[Delivery]:
        """Frames in a row that begin at a position in front of the end; as many as come in one answer. Each partition
        asks for itself: keep the last few answers."""
        ...

    async def edit(self, group: str, topic: str, edit: Callable[[Ledger], None]) -> Ledger:
        """The group's ledger after the edit, stored by compare and set. The edit runs again on the newer version when
        somebody was faster."""
        ...


class ScannedPartition(Partition):
    """A partition that exists in the ledger only: its frames are found by reading the whole topic."""

    def __init__(self, topic: str, number: int, cursor: Cursor, size: int) -> None:
        window = Window(acked=cursor.acked, touched=cursor.touched, size=size, done=cursor.done)
        super().__init__(topic, number, cursor.epoch, window)
        self.scanned = cursor.at
        """The last position that was looked at."""
        self._acks = self._writing = self._saved = 0
        """Acknowledgements that came, that are on their way into the ledger, and that it has."""
        self._last = cursor.acked
        self._ready: dict[int, Delivery] = {}
        self._end: int | None = None

    @property
    def unsaved(self) -> bool:
        return self._acks > self._saved

    @property
    def hungry(self) -> bool:
        """A window ahead of what was handed out."""
        return self._last < self.window.read + self.window.size

    def is_held(self, member: str, ledger: Ledger) -> bool:
        """Whether no other member and no seek has taken it away."""
        cursor = ledger.partitions[self.number]
        return (cursor.owner, cursor.epoch) == (member, self.epoch)

    def heard(self, stored: int) -> None:
        self.stored = stored

    def ack(self, number: int) -> None:
        super().ack(number)
        self._acks += 1

    def hear(self, end: int) -> None:
        """Where the log ends. Nothing from there on, as it is when this member first looks, was handed out before: a window
        may have been wider than what there was to hand out."""
        if self._end is None:
            self._end = end
            self._confine()

    def _confine(self) -> None:
        if self._end is not None and self.scanned >= self._end - 1:
            self.window.touched = min(self.window.touched, self._last)

    def scan(self, deliveries: Sequence[Delivery], partitions: int) -> None:
        """Keep what belongs here of frames that follow in the log."""
        for delivery in deliveries:
            position = int(delivery.position)
            if position <= self.scanned:
                continue
            self._confine()
            self.scanned = position
            if partition_of(delivery.frame, partitions) == self.number:
                self._last += 1
                self._ready[self._last] = delivery
        self._confine()

    def answer(self, want: Want[ScannedPartition]) -> Answer:
        numbers = [number for number in range(want.first, want.last + 1) if number in self._ready]
        return Answer(
            self._last,
            [
                msgspec.structs.replace(self._ready[number], redelivered=number <= want.touched, token=(self, number))
                for number in numbers
            ],
        )

    def write(self, ledger: Ledger, *, give: bool = False) -> None:
        """The cursor as it is now. Whoever gives it back says exactly what was handed out."""
        window, cursor = self.window, ledger.partitions[self.number]
        prefix, self._writing = window.advance(), self._acks
        if prefix > cursor.acked:
            cursor.acked, cursor.at = prefix, int(self._ready[prefix].position)
        cursor.done, cursor.touched = window.acknowledged(), window.touched
        if give:
            cursor.owner, cursor.handed = None, window.read - prefix

    def written(self, acked: int) -> None:
        """The ledger has it: the window moves on."""
        for number in range(self.window.committed + 1, acked + 1):
            self._ready.pop(number, None)
        self.window.committed = acked
        self._saved = self._writing


class LedgerLog:
    """The port `GroupLog`."""

    def __init__(
        self,
        store: LedgerStore,
        group: str,
        topics: Sequence[str],
        *,
        clock: Clock,
        lease: float,
        window: int,
        poll: float,
    ) -> None:
        self.me = new_id()
        self.notifier = LocalNotifier(None)
        self.polls = poll, poll
        self.stale = False
        self._store = store
        self._group = group
        self._clock = clock
        self._size = window
        self._signs = {topic: Signs(self.me, lease) for topic in topics}
        self._partitions: dict[str, int] = {}

    async def renew(self, held: Mapping[TopicPartition, ScannedPartition]) -> Group:
        now = self._clock.monotonic()
        partitions: dict[TopicPartition, Owned] = {}
        members: dict[str, list[str]] = {}
        for topic, signs in self._signs.items():
            ledger = await self._write(topic, held.values(), partial(signs.renew, now=now))
            members[topic] = list(ledger.signs)
            self._partitions[topic] = len(ledger.partitions)
            for number, cursor in enumerate(ledger.partitions):
                partitions[topic, number] = Owned(cursor.owner, cursor.epoch)
        self.stale = False
        return Group(partitions, members)

    async def settle(
        self, group: Group, give: Sequence[ScannedPartition], take: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, ScannedPartition]:
        taken: dict[TopicPartition, ScannedPartition] = {}
        for topic in {*(partition.topic for partition in give), *(topic for topic, _ in take)}:
            wanted = [number for name, number in take if name == topic]

            def change(ledger: Ledger, topic: str = topic, wanted: Sequence[int] = wanted) -> None:
                for partition in give:
                    if partition.topic == topic and partition.is_held(self.me, ledger):
                        partition.write(ledger, give=True)
                for number in wanted:
                    if ledger.partitions[number].epoch == group.partitions[topic, number].epoch:
                        ledger.partitions[number].take(self.me, self._size)

            ledger = await self._store.edit(self._group, topic, change)
            for number in wanted:
                cursor = ledger.partitions[number]
                if cursor.owner == self.me and cursor.epoch == group.partitions[topic, number].epoch + 1:
                    taken[topic, number] = ScannedPartition(topic, number, cursor, self._size)
        return taken

    async def read(self, wants: Sequence[Want[ScannedPartition]]) -> Sequence[Answer]:
        partitions = {want.partition for want in wants}
        for topic in {partition.topic for partition in partitions}:
            end = await self._store.end(topic)
            for partition in partitions:
                if partition.topic == topic:
                    await self._scan(partition, end)
        return [want.partition.answer(want) for want in wants]

    async def commit(self, held: Iterable[ScannedPartition], *, durable: bool) -> None:
        unsaved = [partition for partition in held if partition.unsaved]
        for topic in {partition.topic for partition in unsaved}:
            await self._write(topic, unsaved)

    async def leave(self, held: Sequence[ScannedPartition]) -> None:
        for topic in self._signs:

            def go(ledger: Ledger, topic: str = topic) -> None:
                for partition in held:
                    if partition.topic == topic and partition.is_held(self.me, ledger):
                        partition.write(ledger, give=True)
                ledger.forget(self.me)

            await self._store.edit(self._group, topic, go)

    async def _write(
        self, topic: str, partitions: Iterable[ScannedPartition], edit: Callable[[Ledger], None] | None = None
    ) -> Ledger:
        """Edit the ledger, with the cursors of what is still this member's."""
        of_topic = [partition for partition in partitions if partition.topic == topic]

        def together(ledger: Ledger) -> None:
            for partition in of_topic:
                if partition.is_held(self.me, ledger):
                    partition.write(ledger)
            if edit is not None:
                edit(ledger)

        ledger = await self._store.edit(self._group, topic, together)
        for partition in of_topic:
            if partition.is_held(self.me, ledger):
                partition.written(ledger.partitions[partition.number].acked)
            else:
                partition.doubtful = self.stale = True
        return ledger

    async def _scan(self, partition: ScannedPartition, end: int) -> None:
        if partition.scanned >= end:
            raise BrokerError(
                f"the log of {partition.topic!r} ends in front of {end}, and {self._group!r} has read up to {partition.scanned}:"
                " it was put back from a copy, so what is new there has positions that were read; seek the group"
            )
        partition.hear(end)
        while partition.scanned < end - 1 and partition.hungry:
            frames = await self._store.read(partition.topic, partition.scanned + 1)
            partition.scan(frames, self._partitions[partition.topic])
