"""EmbeddedBroker: the broker that needs no server."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from zlib import crc32

import msgspec

import posthouse.brokers.embedded.admin as inventory
import posthouse.brokers.embedded.schema as schema
from posthouse.broker import Capabilities, Frame, Progress, Start, Topology, Verdict
from posthouse.brokers.admission import admit
from posthouse.brokers.embedded.client import LogFile
from posthouse.brokers.embedded.log import EmbeddedLog, Marked
from posthouse.brokers.group.member import GroupMember
from posthouse.checks import Check, judged
from posthouse.clock import Clock
from posthouse.errors import BrokerError, BrokerUnavailable, did_you_mean
from posthouse.local.file_checks import file_checks
from posthouse.local.sqlite import Synchronous, absent, patiently
from posthouse.survey import Age, Resource, with_missing

WEEK = 7 * 86_400.0
LEASE = 6.0
"""Seconds after which the partitions of a member that fell silent go to others; it renews every third of that."""
PRUNE_EVERY = 60.0


class EmbeddedBroker:
    """A durable log in one SQLite file, for the processes of one machine.

    `retention`: seconds that frames are kept at least; older ones leave once every group has acknowledged them, never
    before. `partitions`: of topics made by this instance, and so the most members of a group that can work side by
    side; fixed once the topic exists. `synchronous="NORMAL"` trades the last commits before a power cut for speed.

    `Progress.pending` counts from the cursor: a frame acknowledged before an older one of its partition counts until
    the older one is acknowledged too, or its member has left. Leases follow `clock`; all processes must use the machine's.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Clock,
        retention: float = WEEK,
        partitions: int = 8,
        synchronous: Synchronous = "FULL",
        lease: float = LEASE,
    ) -> None:
        self._file = LogFile(Path(path), synchronous)
        self._synchronous: Synchronous = synchronous
        self._clock = clock
        self._retention = retention
        self._partitions = partitions
        self._lease = lease
        self._topics: dict[str, tuple[int, int]] = {}
        self._streams: set[GroupMember[Marked]] = set()
        self._prune_at = clock.monotonic() + PRUNE_EVERY
        self.sheet = Capabilities(
            name="embedded",
            durable_ack=synchronous == "FULL",
            ordered_publish=True,
            ordered_redelivery=True,
            seek=True,
            redelivery_s=retention,
            notes=self._file.notes,
        )

    async def ensure(self, topology: Topology) -> None:
        """Also makes the topics that the groups read; a group declared here keeps frames from being pruned."""
        topics = {*topology.topics, *(topic for group in topology.groups.values() for topic in group)}
        async with self._file.write("making topics") as connection:
            for topic in sorted(topics):
                connection.execute(schema.ADD_TOPIC, (topic, self._partitions))
                number, partitions = connection.execute(schema.TOPIC, (topic,)).fetchone()
                connection.executemany(schema.ADD_HEAD, [(number, partition) for partition in range(partitions)])
            for group, names in topology.groups.items():
                add_group(connection, group, [self._topic(connection, name) for name in names])

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        """One transaction per call: every accepted frame is stored, or none and BrokerUnavailable says why."""
        if not frames:
            return []
        async with self._file.write("publishing") as connection:
            self._learn(connection, {frame.topic for frame in frames})
            verdicts = admit(frames, self._topics, self.sheet.max_bytes)
            accepted = [frame for frame, verdict in zip(frames, verdicts, strict=True) if verdict.accepted]
            self._append(connection, accepted)
        if accepted:
            self._file.notifier.notify()
        await self._tidy()
        return verdicts

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> GroupMember[Marked]:
        """A topic that does not exist raises BrokerError: a misspelled one would wait for ever."""

        def enter(connection: sqlite3.Connection) -> Mapping[str, int]:
            numbers = {topic: self._topic(connection, topic) for topic in topics}
            add_group(connection, group, numbers.values())
            return numbers

        async with self._file.write("joining a group") as connection:
            entered = enter(connection)
            if start == "latest":
                connection.executemany(schema.START_AT_END, [(group, number) for number in entered.values()])
        log = EmbeddedLog(self._file, group, clock=self._clock, window=window, lease=self._lease, enter=enter)
        stream = GroupMember(log, group, topics, clock=self._clock, lease=self._lease, on_beat=self._tidy)
        await stream.join(self._streams)
        return stream

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        """`position` is a `Delivery.position`. Frames stored before the seek come as redelivered."""
        if (position is None) == (time is None):
            raise BrokerError("seek takes either a position or a time")
        if not self._file.path.exists():
            raise BrokerError(f"the log {absent(self._file.path.absolute())} It is made when a service first runs")
        query, target = (schema.FIRST_AT_TIME, time) if position is None else (schema.FIRST_AT_OFFSET, offset(position))
        async with self._file.write("seeking") as connection:
            number = self._topic(connection, topic)
            connection.execute(schema.ADD_GROUP, (group,))
            for partition, stored in connection.execute(schema.HEADS, (number,)).fetchall():
                first = connection.execute(query, (number, partition, target)).fetchone()
                acked = stored if first is None else first[0] - 1
                connection.execute(schema.MOVE, (group, number, partition, acked, stored))
            connection.execute(schema.GROUP_CHANGED, (group,))
        self._file.notifier.notify()

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        """A topic that does not exist yet stands at zero; so does all of a log that does not."""
        if self._file.was_never_there:
            where = absent(self._file.path.absolute())
            return {
                topic: Progress(
                    stored=0, pending=0, truncated=False, unsure=0, oldest=0.0, uncounted=f"the log {where}"
                )
                for topic in topics
            }

        def count(connection: sqlite3.Connection) -> dict[str, Progress]:
            return {
                topic: progress_of(connection.execute(schema.PROGRESS, (group, topic)).fetchall(), self._clock.now())
                for topic in topics
            }

        return await self._file.read("counting", count)

    async def prune(self, limit: int = 2_000) -> int:
        """Delete up to `limit` frames that are older than the retention and acknowledged by every group. Returns how
        many went. Runs by itself about once a minute wherever frames are published or received."""
        horizon = self._clock.now() - self._retention
        deleted = 0
        async with self._file.write("pruning", durable=False) as connection:
            for topic, partition, pruned, passed in connection.execute(schema.PASSED).fetchall():
                ages = connection.execute(schema.AGES, (topic, partition, pruned + 1, passed, limit - deleted))
                old = list(takewhile(lambda row: row[1] < horizon, ages.fetchall()))
                if old:
                    last = old[-1][0]
                    connection.execute(schema.DELETE, (topic, partition, pruned + 1, last))
                    connection.execute(schema.SET_PRUNED, (last, topic, partition))
                    deleted += len(old)
                if deleted >= limit:
                    break
        return deleted

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        checks = await patiently(lambda: file_checks(self._file.path, self._synchronous, today=today))
        return [*checks, await self._cursors()] if today and self._file.path.exists() else checks

    async def ages(self, topics: Sequence[str]) -> Mapping[str, Age]:
        return dict.fromkeys(topics, Age(self._retention, True, False))

    async def survey(self, topology: Topology) -> Sequence[Resource]:
        now = self._clock.now()
        exists = self._file.path.exists()  # looking must not make the file
        found = (
            await self._file.read("looking", lambda connection: inventory.found(connection, self._partitions, now))
            if exists
            else []
        )
        return with_missing(topology, found, inventory.called)

    async def repair(self, resource: Resource) -> None:
        """Nothing of a topic can be changed here."""

    async def remove(self, resources: Sequence[Resource]) -> None:
        """All of them or none."""
        async with self._file.write("removing topics") as connection:
            inventory.remove(connection, resources, self._clock.now())

    async def aclose(self) -> None:
        await asyncio.gather(*(stream.aclose() for stream in tuple(self._streams)))
        self._file.close()

    async def _tidy(self) -> None:
        """Prune when it is time; a full batch means there is more to do at the next opportunity."""
        now = self._clock.monotonic()
        if now < self._prune_at:
            return
        self._prune_at = now + PRUNE_EVERY
        try:
            if await self.prune() >= 2_000:
                self._prune_at = now
        except BrokerUnavailable:
            pass  # nothing depends on it, and what the caller asked for has been done

    async def _cursors(self) -> Check:
        """A group that has read more than there is: a part of the log was put back without the rest."""
        ahead, groups = await self._file.read("looking", lambda log: log.execute(schema.AHEAD).fetchone())
        return judged(
            "cursors",
            f"{ahead} partitions have a cursor behind the end of the log: {groups}"
            if ahead
            else "none is behind the end",
            wrong=ahead > 0,
            fix="the log was restored without its cursors: the next member to join starts over with all that is kept",
        )

    def _append(self, connection: sqlite3.Connection, frames: Sequence[Frame]) -> None:
        now = self._clock.now()
        heads: dict[int, dict[int, int]] = {}
        rows = []
        for frame in frames:
            topic, partitions = self._topics[frame.topic]
            if topic not in heads:
                heads[topic] = dict(connection.execute(schema.HEADS, (topic,)).fetchall())
            partition = crc32((frame.id if frame.key is None else frame.key).encode()) % partitions
            number = heads[topic][partition] = heads[topic][partition] + 1
            headers = msgspec.json.encode(dict(frame.headers)) if frame.headers else None
            rows.append((topic, partition, number, now, frame.id, frame.key, headers, frame.body))
        connection.executemany(schema.ADD_FRAME, rows)
        touched = {(row[0], row[1]) for row in rows}
        connection.executemany(
            schema.SET_HEAD, [(heads[topic][partition], topic, partition) for topic, partition in touched]
        )

    def _learn(self, connection: sqlite3.Connection, topics: Iterable[str]) -> None:
        """Asked each time: somebody may have removed a topic, or made it anew with another number."""
        for topic in topics:
            found = connection.execute(schema.TOPIC, (topic,)).fetchone()
            if found is None:
                self._topics.pop(topic, None)
            else:
                self._topics[topic] = found

    def _topic(self, connection: sqlite3.Connection, topic: str) -> int:
        self._learn(connection, (topic,))
        if topic not in self._topics:
            known = [name for (name,) in connection.execute(schema.TOPIC_NAMES)]
            raise BrokerError(f"topic {topic!r} does not exist in {self._file.path}.{did_you_mean(topic, known)}")
        return self._topics[topic][0]


def add_group(connection: sqlite3.Connection, group: str, topics: Iterable[int]) -> None:
    connection.execute(schema.ADD_GROUP, (group,))
    connection.executemany(schema.ADD_CURSORS, [(group, topic) for topic in topics])


def offset(position: int | str) -> int:
    try:
        return int(position)
    except ValueError:
        raise BrokerError(f"position {position!r} is not an offset of this log: it takes whole numbers") from None


def progress_of(
    partitions: Iterable[tuple[int, int, int | None, int | None, int, int, float | None]], now: float
) -> Progress:
    """From (stored, pruned, acked, started, unread, unsure, the time of the first unread) of each partition; acked is None
    where the group has never been."""
    stored, unsure, behind, oldest = 0, 0, [], now
    late = dropped = False
    for last, pruned, acked, started, unread, doubtful, first in partitions:
        stored += last
        unsure += doubtful
        behind.append(unread)
        oldest = min(oldest, now if first is None else first)
        late |= (pruned if started is None else started) > 0
        dropped |= acked is not None and acked < pruned
    return Progress(
        stored=stored,
        pending=sum(behind),
        truncated=late or dropped,
        dropped=dropped,
        whole=not late,
        unsure=unsure,
        behind=tuple(behind),
        oldest=now - oldest,
    )
