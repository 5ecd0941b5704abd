"""The log in a database as one member of a group uses it. Leases are by the database's clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import posthouse.brokers.postgres.schema as sql
from posthouse.brokers.group.assignment import TopicPartition
from posthouse.brokers.group.log import Answer, Group, Owned, Partition, Want
from posthouse.brokers.group.window import Window
from posthouse.brokers.handing import handed_rows
from posthouse.brokers.postgres.client import Database, Row
from posthouse.clock import new_id

FIRST_POLL = 0.01
"""Seconds after which an empty log is looked at again when no ring was heard; each further look waits twice as long."""
UNKNOWN = 2**62
"""Above any number."""


class SavedPartition(Partition):
    """`saved` is the cursor as the database has it; `window.committed` is what its disk has."""

    def __init__(self, topic: str, number: int, epoch: int, window: Window) -> None:
        super().__init__(topic, number, epoch, window)
        self.saved = window.committed


class Entered(NamedTuple):
    """The numbers of a group's topics, and the run of the server that gave them."""

    topics: Mapping[str, int]
    run: str


class PostgresLog:
    """The port `GroupLog`. `enter` asks the server anew, and gives the group its place where it has none."""

    def __init__(
        self,
        database: Database,
        group: str,
        entered: Entered,
        *,
        window: int,
        lease: float,
        enter: Callable[[], Awaitable[Entered]],
    ) -> None:
        self.me = new_id()
        self.notifier = database.notifier
        self._database = database
        self._group = group
        self._topics, self._run = entered
        self._size = window
        self._lease = lease
        self._enter = enter
        self._entered_again = False
        self._joined = False
        self._version = -1
        """Of the group, when this member last took part in sharing the work."""
        self._looked = -1
        """The same, when it last read."""

    @property
    def polls(self) -> tuple[float, float]:
        return FIRST_POLL, self._database.longest_pause

    @property
    def stale(self) -> bool:
        return self._looked != self._version

    async def renew(self, held: Mapping[TopicPartition, SavedPartition]) -> Group:
        """In another run of the server topics may have other numbers, the group may be gone, and every number that we know
        may be another frame's."""
        rows: list[Row] = []
        while not rows:
            rows = await self._database.fetch(
                "renewing a lease", sql.RENEW, self._group, [*self._topics.values()], self.me, self._lease, self._run
            )
            if not rows:
                self._distrust(held.values())
                self._topics, self._run = await self._enter()
                self._entered_again = True
        self._version = self._looked = rows[0]["version"]
        if not self._joined:
            self._joined = True
            self.notifier.notify()
        return self._group_of(rows)

    async def settle(
        self, group: Group, give: Sequence[SavedPartition], take: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, SavedPartition] | None:
        rows = await self._database.fetch(
            "sharing the work",
            sql.SETTLE,
            self._group,
            group.version,
            self.me,
            self._size,
            *self._given_back(give, closed=False),
            *self._columns(sorted(take, key=lambda place: (self._topics[place[0]], place[1]))),
            self._run,
        )
        if not rows:
            return None
        names = {number: topic for topic, number in self._topics.items()}
        taken: dict[TopicPartition, SavedPartition] = {}
        for topic, partition, epoch, acked, touched, done, unsure in rows:
            if topic is not None:
                touched, unsure = (UNKNOWN, UNKNOWN) if self._entered_again else (touched, unsure)
                window = Window(acked=acked, touched=touched, size=self._size, done=done, unsure=unsure)
                taken[names[topic], partition] = SavedPartition(names[topic], partition, epoch, window)
        self._version = self._looked = group.version + 1
        self._entered_again = False
        if give:
            self.notifier.notify()
        return taken

    async def read(self, wants: Sequence[Want[SavedPartition]]) -> Sequence[Answer | None]:
        """The next frames, and what is stored by now, in one statement."""
        run = self._run
        rows = await self._database.fetch(
            "receiving",
            sql.READ,
            self._group,
            *self._columns(want.partition.place for want in wants),
            [want.partition.epoch for want in wants],
            [want.first for want in wants],
            [want.last for want in wants],
            self.me,
            run,
        )
        if run != self._run:
            return [None] * len(wants)
        found: dict[int, list[Row]] = {}
        for row in sorted(rows, key=_place_and_number):
            found.setdefault(row[0], []).append(row)
        for _, version, same, *_ in found.get(0, ()):
            self._looked = version
            if not same:
                self._distrust(want.partition for want in wants)
        return [self._answer(want, found.get(index, ())) for index, want in enumerate(wants, 1)]

    async def commit(self, held: Iterable[SavedPartition], *, durable: bool) -> None:
        """In another run of the server nothing is written. Whoever takes over after a crash counts from what is on the disk.
        Acknowledgements do not wait for it; a full window does, and every beat."""
        moved = [
            (partition, partition.window.prefix)
            for partition in sorted(held, key=self._key)
            if partition.window.advance() > (partition.window.committed if durable else partition.saved)
        ]
        if not moved:
            return
        run = self._run
        ((same,),) = await self._database.fetch(
            "acknowledging",
            sql.ACK,
            self._group,
            *self._columns(partition.place for partition, _ in moved),
            [partition.epoch for partition, _ in moved],
            [prefix for _, prefix in moved],
            durable,
            self.me,
            run,
        )
        if not same:
            if run == self._run:
                self._distrust(partition for partition, _ in moved)
            return
        for partition, prefix in moved:
            partition.saved = prefix
            if durable:
                partition.window.committed = prefix

    async def leave(self, held: Sequence[SavedPartition]) -> None:
        back = self._given_back(held, closed=True)
        await self._database.fetch("leaving a group", sql.LEAVE, self._group, self.me, *back, self._run)
        self.notifier.notify()

    def _distrust(self, partitions: Iterable[SavedPartition]) -> None:
        """The log may have lost its end, to a crash, a failover or a restore, and give our numbers to other frames: forget
        what we know of these partitions and begin again where the log's own cursor stands."""
        for partition in partitions:
            partition.doubtful = True
        self._looked = -1

    def _group_of(self, rows: Sequence[Row]) -> Group:
        names = {number: topic for topic, number in self._topics.items()}
        members: dict[str, list[str]] = {topic: [] for topic in self._topics}
        partitions: dict[TopicPartition, Owned] = {}
        for row in rows:
            topic = names.get(row["topic"])
            if topic is not None and row["partition"] is None:
                members[topic].append(row["name"])
            elif topic is not None:
                partitions[topic, row["partition"]] = Owned(row["name"], row["epoch"])
        return Group(partitions, members, rows[0]["version"])

    def _answer(self, want: Want[SavedPartition], rows: Sequence[Row]) -> Answer | None:
        partition, topic = want.partition, want.partition.topic
        if not rows:
            return None
        stored = rows[0][1]
        if stored < partition.window.read:
            self._distrust([partition])
            return None
        found = (row[2:] for row in rows if row[2] is not None)
        return Answer(stored, handed_rows(partition, topic, want.touched, found))

    def _key(self, partition: SavedPartition) -> tuple[int, int]:
        """In this order all who lock cursors lock them."""
        return self._topics[partition.topic], partition.number

    def _columns(self, places: Iterable[TopicPartition]) -> tuple[list[int], list[int]]:
        pairs = list(places)
        return [self._topics[topic] for topic, _ in pairs], [partition for _, partition in pairs]

    def _given_back(self, partitions: Sequence[SavedPartition], *, closed: bool) -> tuple[Sequence[object], ...]:
        """Topics, partitions, epochs, cursors, the last numbers handed out, what was acknowledged behind the cursor, and how
        far others may have been dealt with."""
        partitions = sorted(partitions, key=self._key)
        windows = [partition.window for partition in partitions]
        return (
            *self._columns(partition.place for partition in partitions),
            [partition.epoch for partition in partitions],
            [window.advance() for window in windows],
            [max(window.read, window.touched) for window in windows],
            ["{" + ",".join(map(str, window.acknowledged())) + "}" for window in windows],
            [window.doubted(closed=closed) for window in windows],
        )


def _place_and_number(row: Row) -> tuple[int, int]:
    return row[0], row[2] or 0
