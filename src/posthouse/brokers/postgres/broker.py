"""PostgresBroker: one database carries the events of a whole system."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from zlib import crc32

import msgspec

import posthouse.brokers.postgres.admin as inventory
import posthouse.brokers.postgres.schema as sql
from posthouse.broker import Capabilities, Frame, Progress, Start, Topology, Verdict
from posthouse.brokers.admission import admit, frame_size
from posthouse.brokers.group.member import GroupMember
from posthouse.brokers.postgres.checks import log_checks
from posthouse.brokers.postgres.client import Database
from posthouse.brokers.postgres.log import Entered, PostgresLog, SavedPartition
from posthouse.checks import Check
from posthouse.clock import Clock
from posthouse.errors import BrokerError, BrokerUnavailable, did_you_mean
from posthouse.local.postgres.pool import server_of
from posthouse.local.sharing import Sharing
from posthouse.pulse import alive
from posthouse.survey import Age, Resource, with_missing

WEEK = 7 * 86_400.0
LEASE = 6.0
"""Seconds after which the partitions of a member that fell silent go to others; it renews every third of that."""
PRUNE_EVERY = 60.0
PRUNE_CHUNK = 2_000
STATEMENT_BYTES = 16 * 1024 * 1024
"""About how much one publishing statement carries; a larger call is cut into several, in order."""


class PostgresBroker:
    """A durable log in one PostgreSQL schema, for every service that reaches the database.

    Publishing takes the row of each partition's head, in a fixed order, and holds it until its commit. So the numbers of
    a partition are dense and become visible in order, and a reader that asks for the next number cannot pass over one
    that commits late: no other cursor over several writers has this property without waiting for every old transaction
    of the server. The price is that publishers to one partition follow each other, one commit at a time.

    `retention`: seconds that frames are kept at least; older ones leave once every group has acknowledged them, never
    before. `partitions`: of topics made by this instance, and so the most members of a group that can work side by
    side; fixed once the topic exists. `pooled`: connections go through a pooler in transaction mode. `connections`: the
    most that this instance opens. Leases, times and retention follow the database's clock; `clock` says when to renew.

    `Progress.pending` counts from the cursor: a frame acknowledged before an older one of its partition counts until
    the older one is acknowledged too, or its member has left. The sheet is complete after the first call that reached the server.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        retention: float = WEEK,
        partitions: int = 8,
        schema: str = "posthouse_log",
        pooled: bool = False,
        connections: int = 4,
        lease: float = LEASE,
    ) -> None:
        self._database = Database(url, schema, pooled=pooled, connections=connections, on_open=self._judge)
        self._clock = clock
        self._retention = retention
        self._partitions = partitions
        self._lease = lease
        self._topics: dict[str, tuple[int, int]] = {}
        """Number and partitions …"""
        self._run = ""
        """… as this run of the server gave them."""
        self._declared: set[str] = set()
        """Topics that were declared …"""
        self._made_in = ""
        """… and the run in which they were last made, or found."""
        self._began: dict[str, str] = {}
        """In which run each group was first given its place here."""
        self._streams: set[GroupMember[SavedPartition]] = set()
        self._prune_at = clock.monotonic() + PRUNE_EVERY
        self.sheet = Capabilities(
            name="postgres",
            durable_ack=False,  # until the server has shown its settings
            ordered_publish=True,
            ordered_redelivery=True,
            seek=True,
            redelivery_s=retention,
        )
        # Publishers that wait for each other must leave connections to those who read and renew leases.
        self._publishers = asyncio.Semaphore(max(1, connections // 2))

    def share(self, sharing: Sharing) -> None:
        """Use connections together with the store, where that is in the same database."""
        self._database.share.sharing = sharing
        sharing.rooms[server_of(self._database.url)] += self._database.most_connections

    async def ensure(self, topology: Topology) -> None:
        """Also makes the topics that the groups read; a group declared here keeps frames from being pruned."""
        topics = {*topology.topics, *(topic for group in topology.groups.values() for topic in group)}
        for name in (*topics, *topology.groups):
            if not storable(name):
                raise BrokerError(f"{name!r} cannot name a topic or a group: it is not text that a database takes")
        await self._learn(topics, anew=True)
        await self._make(topics)
        self._declared |= topics
        self._made_in = self._run
        for group, names in topology.groups.items():
            await self._enter(group, names)

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        """One statement per call of up to 16 MB: every accepted frame is stored, or BrokerUnavailable says why not."""
        if not frames:
            return []
        await self._learn({frame.topic for frame in frames})
        verdicts = admit(frames, self._topics, self.sheet.max_bytes)
        accepted = [frame for frame, verdict in zip(frames, verdicts, strict=True) if verdict.accepted]
        async with self._publishers:
            for part in parts(accepted):
                await self._store(part)
                alive()
        if accepted:
            self._database.notifier.notify()
        await self._tidy()
        return verdicts

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> GroupMember[SavedPartition]:
        """A topic that does not exist raises BrokerError: a misspelled one would wait for ever. So does no topic."""
        if not topics:
            raise BrokerError(f"group {group!r} names no topic to read")
        if not storable(group):
            raise BrokerError(f"{group!r} cannot name a group: it is not text that a database takes")

        async def enter() -> Entered:
            return await self._enter(group, topics)

        entered = await self._enter(group, topics, at_end=start == "latest")
        log = PostgresLog(self._database, group, entered, window=window, lease=self._lease, enter=enter)
        stream = GroupMember(log, group, topics, clock=self._clock, lease=self._lease, on_beat=self._tidy)
        await stream.join(self._streams)
        return stream

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        """`position` is a `Delivery.position`. Frames stored before the seek come as redelivered."""
        if (position is None) == (time is None):
            raise BrokerError("seek takes either a position or a time")
        if not await self._database.there():
            raise BrokerError(f"the log {self._database.place} is not there: it is made when a service first runs")
        ((number, _),) = await self._known([topic])
        await self._database.fetch("seeking", sql.SEEK, group, number, offset(position), time, self._run)
        self._database.notifier.notify()

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        """A topic that does not exist yet stands at zero; so does all of a log that does not."""
        if not await self._database.there():
            gone = Progress(
                stored=0,
                pending=0,
                truncated=False,
                unsure=0,
                oldest=0.0,
                uncounted=f"the log {self._database.place} is not there",
            )
            return dict.fromkeys(topics, gone)
        rows = await self._database.fetch("counting", sql.PROGRESS, group, [name for name in topics if storable(name)])
        found = {
            name: Progress(
                stored=stored,
                pending=pending,
                unsure=unsure,
                truncated=truncated,
                dropped=dropped,
                whole=whole,
                behind=tuple(behind),
                oldest=oldest,
            )
            for name, stored, pending, unsure, truncated, dropped, whole, behind, oldest in rows
        }
        nothing = Progress(stored=0, pending=0, truncated=False, oldest=0.0)
        return {topic: found.get(topic, nothing) for topic in topics}

    async def prune(self, limit: int = PRUNE_CHUNK) -> int:
        """Delete up to `limit` frames that are older than the retention and acknowledged by every group. Returns how
        many went. Runs by itself about once a minute wherever frames are published or received."""
        deleted = 0
        for place in await self._database.fetch("pruning", sql.RETIRE, self._retention, limit):
            ((count,),) = await self._database.fetch("pruning", sql.DELETE, *place)
            deleted += count
        return deleted

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        return await log_checks(self._database, today=today)

    async def ages(self, topics: Sequence[str]) -> Mapping[str, Age]:
        return dict.fromkeys(topics, Age(self._retention, True, False))

    async def survey(self, topology: Topology) -> Sequence[Resource]:
        return with_missing(topology, await inventory.found(self._database, self._partitions), inventory.called)

    async def repair(self, resource: Resource) -> None:
        """Nothing of a topic can be changed here."""

    async def remove(self, resources: Sequence[Resource]) -> None:
        """All of them or none; frames of a removed topic go a few at a time."""
        self._topics.clear()
        await inventory.remove(self._database, resources)

    async def aclose(self) -> None:
        await asyncio.gather(*(stream.aclose() for stream in tuple(self._streams)))
        await self._database.close()

    def _judge(self, settings: Mapping[str, str]) -> None:
        found = tuple(weaknesses(settings))
        self.sheet = msgspec.structs.replace(self.sheet, durable_ack=not found, notes=found)

    async def _tidy(self) -> None:
        """Prune when it is time; a full batch means there is more to do at the next opportunity."""
        now = self._clock.monotonic()
        if now < self._prune_at:
            return
        self._prune_at = now + PRUNE_EVERY
        try:
            if await self.prune() >= PRUNE_CHUNK:
                self._prune_at = now
        except BrokerError:
            pass  # nothing depends on it, and what the caller asked for has been done

    async def _enter(self, group: str, topics: Sequence[str], *, at_end: bool = False) -> Entered:
        """Give a group its place in topics where it has none. One that had its place here in an earlier run of the server has
        lost it with the log: it reads all that came since, also one that began at the end."""
        known = await self._known(topics)
        at_end = at_end and self._began.setdefault(group, self._run) == self._run
        entered = Entered({topic: number for (number, _), topic in zip(known, topics, strict=True)}, self._run)
        numbers = [*entered.topics.values()]
        await self._database.fetch("joining a group", sql.ADD_GROUP, group, numbers, at_end, entered.run)
        return entered

    async def _store(self, frames: Sequence[Frame]) -> None:
        if not {frame.topic for frame in frames} <= self._topics.keys():
            raise BrokerUnavailable(f"the log {self._database.place} was found anew meanwhile: publish again")
        try:
            await self._database.fetch("publishing", sql.PUBLISH, *self._arranged(frames), self._run)
        except BrokerUnavailable:
            self._topics.clear()  # after a failover or a restore they may have other numbers
            raise

    def _arranged(self, frames: Sequence[Frame]) -> tuple[Sequence[object], ...]:
        """The arrays of `publish`: partitions in the order in which all lock them, frames in theirs."""
        by_place: dict[tuple[int, int], list[Frame]] = {}
        for frame in frames:
            topic, partitions = self._topics[frame.topic]
            partition = crc32((frame.id if frame.key is None else frame.key).encode()) % partitions
            by_place.setdefault((topic, partition), []).append(frame)
        places = sorted(by_place)
        grouped = [
            (index, rank, frame)
            for index, place in enumerate(places, 1)
            for rank, frame in enumerate(by_place[place], 1)
        ]
        return (
            [topic for topic, _ in places],
            [partition for _, partition in places],
            [len(by_place[place]) for place in places],
            [index for index, _, _ in grouped],
            [rank for _, rank, _ in grouped],
            [frame.id.encode() for _, _, frame in grouped],
            [None if frame.key is None else frame.key.encode() for _, _, frame in grouped],
            [msgspec.json.encode(dict(frame.headers)) if frame.headers else None for _, _, frame in grouped],
            [frame.body for _, _, frame in grouped],
        )

    async def _learn(self, topics: Iterable[str], *, anew: bool = False) -> None:
        """What was found once is believed by whoever publishes, since a topic that was removed then fails the statement,
        and all is asked again. `anew` believes nothing."""
        unknown = [topic for topic in topics if (anew or topic not in self._topics) and storable(topic)]
        if unknown:
            found = await self._database.fetch("looking for topics", sql.TOPICS, unknown)
            run = found[0]["run"]
            for name in unknown if run == self._run else tuple(self._topics):
                self._topics.pop(name, None)
            self._run = run
            self._topics |= {name: (number, partitions) for _, name, number, partitions in found if name is not None}
            if self._made_in not in (
                "",
                run,
            ):  # whoever made the log again, or promoted an older one, did not know ours
                await self._make(self._declared)
                self._made_in = run
                await self._learn(unknown)

    async def _make(self, topics: Iterable[str]) -> None:
        """Those of which nothing is known; what is there stays as it is."""
        if missing := sorted({*topics} - self._topics.keys()):
            await self._database.fetch("making topics", sql.ADD_TOPICS, missing, self._partitions)

    async def _known(self, topics: Sequence[str]) -> list[tuple[int, int]]:
        """Number and partitions of each topic, or BrokerError."""
        await self._learn(topics, anew=True)
        for topic in topics:
            if topic not in self._topics:
                names = [name for (name,) in await self._database.fetch("looking for topics", sql.TOPIC_NAMES)]
                raise BrokerError(
                    f"topic {topic!r} does not exist in the log {self._database.place}.{did_you_mean(topic, names)}"
                )
        return [self._topics[topic] for topic in topics]


def parts(frames: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
    """The frames in order, in runs of about STATEMENT_BYTES."""
    begin = size = 0
    for end, frame in enumerate(frames):
        size += frame_size(frame)
        if size > STATEMENT_BYTES and end > begin:
            yield frames[begin:end]
            begin, size = end, frame_size(frame)
    if begin < len(frames):
        yield frames[begin:]


def storable(name: str) -> bool:
    """PostgreSQL's text takes no NUL, and nothing that is not Unicode."""
    return "\0" not in name and not any("\ud800" <= character <= "\udfff" for character in name)


def offset(position: int | str | None) -> int | None:
    try:
        return None if position is None else int(position)
    except ValueError:
        raise BrokerError(f"position {position!r} is not an offset of this log: it takes whole numbers") from None


def weaknesses(settings: Mapping[str, str]) -> list[str]:
    """What the server's settings take from the promise, one sentence each."""
    found = [
        f"PostgreSQL runs with {name}=off: a crash of its machine may lose frames that were accepted"
        for name in ("fsync", "full_page_writes", "synchronous_commit")
        if settings.get(name) == "off"
    ]
    if settings.get("standbys") and settings.get("synchronous_commit") == "local":
        found.append("synchronous_commit=local: a failover to the standby may lose frames that were accepted")
    return found
