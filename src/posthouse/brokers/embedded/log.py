"""The log in a file as one member of a group uses it. Leases are by the machine's clock."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

import posthouse.brokers.embedded.schema as schema
from posthouse.brokers.embedded.client import LogFile
from posthouse.brokers.group.assignment import TopicPartition, is_alive
from posthouse.brokers.group.log import Answer, Group, Owned, Partition, Want
from posthouse.brokers.group.window import Window
from posthouse.brokers.handing import handed_rows
from posthouse.clock import Clock, new_id

log = logging.getLogger("posthouse.brokers")

POLL = 0.2
"""Seconds between looks at the file when no ring was heard."""
LEAVING = 2.0
"""Seconds that another process may keep us from saying good-bye."""

Mark = tuple[float | None, bytes | None]
"""When the last frame that was read was stored, and its id; without values when it was deleted since, or there is none."""
Enter = Callable[[sqlite3.Connection], Mapping[str, int]]
"""Gives the group its place where it has none; the numbers of its topics."""


class Marked(Partition):
    """`mark` is of the last number that was read. A log that has another one there, or ends before it, is not the log that was
    read."""

    marked = 0
    mark: Mark | None = None


class EmbeddedLog:
    """The port `GroupLog`."""

    def __init__(self, file: LogFile, group: str, *, clock: Clock, window: int, lease: float, enter: Enter) -> None:
        self.me = new_id()
        self.notifier = file.notifier
        self.polls = POLL, POLL
        self._file = file
        self._group = group
        self._clock = clock
        self._size = window
        self._lease = lease
        self._enter = enter
        self._topics: Mapping[str, int] = {}
        self._run = -1
        """In which run of the file that is true."""
        self._anew = False
        """The file is another one than this member knew, and not all has been taken anew since."""
        self._version = -1
        """Of the group, when this member last took part in sharing the work."""
        self._looked = -1
        """The same, when it last looked."""
        self._renew_at = 0.0

    @property
    def stale(self) -> bool:
        """Also when the clock was set back: then others cannot tell whether the lease holds."""
        fresh = self._renew_at - self._lease < self._clock.now() < self._renew_at
        return not fresh or self._looked != self._version or self._run != self._file.run

    async def renew(self, held: Mapping[TopicPartition, Marked]) -> Group:
        now = self._clock.now()
        async with self._file.write("renewing a lease") as connection:
            topics, anew = self._topics, False
            if self._run != self._file.run:
                topics = self._enter(connection)
                anew = topics != self._topics or not self._is_known(connection, held.values())
            members, joined = self._living(connection, topics, now)
            rows = connection.execute(schema.CURSORS, (self._group,)).fetchall()
            if joined:
                connection.execute(schema.GROUP_CHANGED, (self._group,))
            version, run = self._group_version(connection), self._file.run
        if anew and self._run >= 0:  # every number that we know may be another frame's
            log.warning("group %s begins anew: the log %s is not as it was left", self._group, self._file.path)
            self._anew = True
        names = {number: topic for topic, number in topics.items()}
        owned = {(names[row[0]], row[1]): row[2:] for row in rows if row[0] in names}
        for place, partition in held.items():
            partition.doubtful |= self._anew
            if place in owned and not partition.doubtful:
                partition.window.committed = owned[place][2]  # a copy that was put back may be behind
        self._topics, self._run, self._version, self._looked = topics, run, version, version
        self._renew_at = now + self._lease / 3
        if joined:
            self.notifier.notify()
        return Group({place: Owned(owner, epoch) for place, (owner, epoch, _) in owned.items()}, members, version)

    async def settle(
        self, group: Group, give: Sequence[Marked], take: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Marked] | None:
        async with self._file.write("sharing the work") as connection:
            if self._run != self._file.run or self._group_version(connection) != group.version:
                return None
            self._give_back(connection, give, closed=False)
            taken = {place: self._take(connection, place) for place in take}
            connection.execute(schema.GROUP_CHANGED, (self._group,))
        self._version = self._looked = group.version + 1
        self._anew = False
        if give:
            self.notifier.notify()
        return taken

    async def read(self, wants: Sequence[Want[Marked]]) -> Sequence[Answer | None]:
        return await self._file.read("receiving", lambda connection: self._read(connection, wants))

    async def commit(self, held: Iterable[Marked], *, durable: bool) -> None:
        """A power cut may undo it, and then the machine has booted anew: whoever takes over knows."""
        unsaved = [partition for partition in held if partition.window.advance() > partition.window.committed]
        if not unsaved:
            return
        async with self._file.write("acknowledging", durable=False) as connection:
            if self._run != self._file.run:
                return
            moved = [(partition, partition.window.advance()) for partition in unsaved]
            connection.executemany(schema.ACK, [(prefix, *self._key(p), self.me, p.epoch) for p, prefix in moved])
        for partition, prefix in moved:
            partition.window.committed = prefix

    async def leave(self, held: Sequence[Marked]) -> None:
        async with asyncio.timeout(LEAVING), self._file.write("leaving a group") as connection:
            if self._run == self._file.run:
                self._give_back(connection, held, closed=True)
            connection.execute(schema.LEAVE, (self._group, self.me))
            connection.execute(schema.GROUP_CHANGED, (self._group,))
        self.notifier.notify()

    # Inside a transaction

    def _key(self, partition: Marked) -> tuple[str, int, int]:
        return self._group, self._topics[partition.topic], partition.number

    def _group_version(self, connection: sqlite3.Connection) -> int:
        row = connection.execute(schema.GROUP_VERSION, (self._group,)).fetchone()
        return -1 if row is None else int(row[0])

    def _is_known(self, connection: sqlite3.Connection, held: Iterable[Marked]) -> bool:
        """Whether a file that was closed meanwhile is the log that this member has read, and no older copy of it, be it that
        it went on since under the same numbers."""
        return all(self._mark(connection, partition) == partition.mark for partition in held)

    def _mark(self, connection: sqlite3.Connection, partition: Marked) -> Mark | None:
        """None where the log ends before that number."""
        key = (self._topics[partition.topic], partition.number, partition.marked)
        found: Mark | None = connection.execute(schema.MARK, key).fetchone()
        return found

    def _living(
        self, connection: sqlite3.Connection, topics: Mapping[str, int], now: float
    ) -> tuple[dict[str, list[str]], bool]:
        """The living members of each of my topics, me among them, and whether I was not. The dead are struck off."""
        living: dict[int, list[str]] = {number: [] for number in topics.values()}
        for topic, name, until in connection.execute(schema.MEMBERS, (self._group,)).fetchall():
            if not is_alive(until, now, self._lease):
                connection.execute(schema.STRIKE_OFF, (self._group, topic, name))
            elif topic in living:
                living[topic].append(name)
        rows = [(self._group, number, self.me, now + self._lease) for number in living]
        connection.executemany(schema.JOIN, rows)
        joined = [members for members in living.values() if self.me not in members]
        for members in joined:
            members.append(self.me)
        return {topic: living[number] for topic, number in topics.items()}, bool(joined)

    def _take(self, connection: sqlite3.Connection, place: TopicPartition) -> Marked:
        names = {"group": self._group, "topic": self._topics[place[0]], "partition": place[1], "member": self.me}
        values = {"reach": self._size, "boot": self._file.boot, "anew": self._anew}
        ((epoch, acked, touched, done, unsure),) = connection.execute(schema.TAKE, names | values).fetchall()
        numbers = msgspec.json.decode(done, type=list[int])
        window = Window(acked=acked, touched=touched, size=self._size, done=numbers, unsure=unsure)
        partition = Marked(*place, epoch, window)
        partition.marked = acked
        partition.mark = self._mark(connection, partition)
        return partition

    def _give_back(self, connection: sqlite3.Connection, given: Iterable[Marked], *, closed: bool) -> None:
        for partition in given:
            window = partition.window
            done = msgspec.json.encode(window.acknowledged()).decode()
            fence = (*self._key(partition), self.me, partition.epoch)
            values = (window.prefix, window.read, *fence, done, window.doubted(closed=closed))
            connection.execute(schema.GIVE_BACK, values)

    def _read(self, connection: sqlite3.Connection, wants: Sequence[Want[Marked]]) -> list[Answer | None]:
        """From one snapshot, in which nobody had taken over: a process that was paused since it looked hands out nothing that
        its heir does not know of."""
        connection.execute("BEGIN")
        try:
            self._looked = self._group_version(connection)
            if self._run != self._file.run or self._looked != self._version:
                return [None] * len(wants)
            stored = {
                (topic, partition): last
                for topic in {want.partition.topic for want in wants}
                for partition, last in connection.execute(schema.HEADS, (self._topics[topic],))
            }
            return [self._answer(connection, want, stored.get(want.partition.place, 0)) for want in wants]
        finally:
            connection.execute("COMMIT")

    def _answer(self, connection: sqlite3.Connection, want: Want[Marked], stored: int) -> Answer | None:
        partition, topic = want.partition, want.partition.topic
        if stored < partition.window.read:  # it is not the log that we knew
            partition.doubtful, self._looked = True, -1
            return None
        if want.last < want.first:
            return Answer(stored)
        key = (self._topics[topic], partition.number, want.first, want.last)
        rows = connection.execute(schema.READ, key).fetchall()
        if rows and rows[-1][0] > partition.marked:
            partition.marked, partition.mark = rows[-1][0], (rows[-1][2], rows[-1][3])
        return Answer(stored, handed_rows(partition, topic, want.touched, rows))
