"""S3Broker: a log in an object store with conditional writes, as S3 and most that speak its language have them.

    topics/<topic>             how many partitions it has
    log/<topic>/<number>       a segment: what one publish call stored. The number counts down from the first position in
                               it, so that a listing begins with the newest
    groups/<topic>/<group>     the ledger of a group

A segment is written only where none is, a ledger only over the version that was read: the store decides every race.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import aiobotocore.session
import aiohttp
import botocore.exceptions
import msgspec
from aiobotocore.config import AioConfig

from posthouse.broker import Capabilities, Delivery, Frame, Progress, Start, Stream, Topology, Verdict
from posthouse.brokers.admission import admit
from posthouse.brokers.group.ledger import Ledger, LedgerLog, ScannedPartition, count_by_partition
from posthouse.brokers.group.member import GroupMember
from posthouse.checks import Check, judged
from posthouse.clock import Clock
from posthouse.errors import BrokerError, BrokerUnavailable

T = TypeVar("T")
FOREIGN = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, aiohttp.ClientError, OSError)
NOTHING_THERE = ("404", "NoSuchKey")
ANOTHER_VERSION = ("409", "412", "ConditionalRequestConflict", "PreconditionFailed")
TOP = 10**15
"""Higher than any position."""


class Made(msgspec.Struct, frozen=True):
    """A topic."""

    partitions: int


class Segment(msgspec.Struct, frozen=True):
    """Frames from position `first` on. `before`: how many of each partition are in front of it."""

    first: int
    before: tuple[int, ...]
    at: float = 0.0
    frames: tuple[Frame, ...] = ()

    @property
    def end(self) -> int:
        return self.first + len(self.frames)

    def counts(self, position: int) -> list[int]:
        """How many frames of each partition are in front of a position of this segment, or of its end."""
        return count_by_partition(self.frames[: position - self.first], len(self.before), self.before)


class Bucket:
    """The calls that a log needs. Foreign errors end here."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self._options = {"config": AioConfig(retries={"total_max_attempts": 1}), **options}
        config = self._options["config"]
        self._patience = config.connect_timeout + config.read_timeout
        """The driver's own time does not run while it waits for a leave to send a body."""
        self._opened = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._client: Any = None

    async def get(self, path: str, of: type[T]) -> tuple[T, str] | None:
        """An object and its version, or None."""
        async with self._calling(f"reading {path}", NOTHING_THERE) as client:
            answer = await client.get_object(Bucket=self.name, Key=path)
            async with answer["Body"] as body:
                return msgspec.msgpack.decode(await body.read(), type=of), answer["ETag"]
        return None

    async def put(self, path: str, value: msgspec.Struct, *, over: str | None) -> bool:
        """Write over this version, None where nothing is yet; False when something else is there."""
        condition = {"IfNoneMatch": "*"} if over is None else {"IfMatch": over}
        async with self._calling(f"writing {path}", ANOTHER_VERSION) as client:
            await client.put_object(Bucket=self.name, Key=path, Body=msgspec.msgpack.encode(value), **condition)
            return True
        return False

    async def first_after(self, folder: str, name: str) -> str | None:
        async with self._calling(f"listing {folder}") as client:
            page = await client.list_objects_v2(Bucket=self.name, Prefix=folder, StartAfter=folder + name, MaxKeys=1)
            return next((str(found["Key"]) for found in page.get("Contents", ())), None)
        return None

    async def rules(self) -> Sequence[Mapping[str, Any]]:
        async with self._calling("asking for the bucket's rules", ["NoSuchLifecycleConfiguration"]) as client:
            return list((await client.get_bucket_lifecycle_configuration(Bucket=self.name))["Rules"])
        return []

    async def aclose(self) -> None:
        await self._opened.aclose()
        self._client = None

    @contextlib.asynccontextmanager
    async def _calling(self, doing: str, answers: Sequence[str] = ()) -> AsyncIterator[Any]:
        """The client. Errors whose code is among `answers` end the block quietly."""
        try:
            async with self._opening:
                if self._client is None:
                    client = aiobotocore.session.get_session().create_client("s3", **self._options)
                    self._client = await self._opened.enter_async_context(client)
            async with asyncio.timeout(self._patience):
                yield self._client
        except FOREIGN as error:
            code = error.response["Error"]["Code"] if isinstance(error, botocore.exceptions.ClientError) else ""
            if code not in answers:
                raise BrokerUnavailable(f"S3, {doing}: {str(error) or type(error).__name__}") from error


class S3Log:
    """The port `LedgerStore`."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._made: dict[str, int] = {}
        self._recent: dict[str, Segment] = {}

    async def partitions(self, topic: str) -> int | None:
        """None when there is no such topic; asked again until there is."""
        if topic not in self._made and (found := await self._bucket.get(_path("topics", topic), Made)):
            self._made[topic] = found[0].partitions
        return self._made.get(topic)

    async def segment(self, topic: str, position: int = TOP - 1) -> Segment:
        """The one that has a position, else the last one in front of it; an empty one when there is none."""
        partitions = await self.partitions(topic)
        if partitions is None:
            raise BrokerError(f"topic {topic!r} does not exist: make it with ensure()")
        path = await self._bucket.first_after(_path("log", topic, ""), f"{TOP - position - 1:016d}")
        if path is None:
            return Segment(1, (0,) * partitions)
        if path not in self._recent:
            found = await self._bucket.get(path, Segment)
            if found is None:
                raise BrokerUnavailable(f"S3: {path} was listed, and is gone")
            self._recent[path] = found[0]
            while len(self._recent) > 16:
                del self._recent[next(iter(self._recent))]
        return self._recent[path]

    async def append(self, topic: str, frames: Sequence[Frame], now: float) -> None:
        """At the end of the log. Of all who try it at once one succeeds, also of a call that was given up."""
        stored = False
        while not stored:
            last = await self.segment(topic)
            segment = Segment(last.end, tuple(last.counts(last.end)), max(now, last.at), tuple(frames))
            stored = await self._bucket.put(_path("log", topic, f"{TOP - last.end:016d}"), segment, over=None)

    async def end(self, topic: str) -> int:
        return (await self.segment(topic)).end

    async def read(self, topic: str, position: int) -> Sequence[Delivery]:
        segment = await self.segment(topic, position)
        return [
            Delivery(frame=frame, position=number, stored_at=segment.at)
            for number, frame in enumerate(segment.frames, segment.first)
            if number >= position
        ]

    async def edit(self, group: str, topic: str, edit: Callable[[Ledger], None]) -> Ledger:
        path = _path("groups", topic, group)
        while True:
            found = await self._bucket.get(path, Ledger)
            ledger = found[0] if found else Ledger.of(await self.partitions(topic) or 0)
            edit(ledger)
            if await self._bucket.put(path, ledger, over=found[1] if found else None):
                return ledger


class S3Broker:
    """Seconds: a member that gave no sign for a `lease` is replaced; every `poll` it looks whether the log is longer. `options`
    go to the driver's `create_client`: endpoint_url, region_name, credentials, config."""

    def __init__(
        self, bucket: str, *, clock: Clock, lease: float = 10.0, poll: float = 0.25, partitions: int = 8, **options: Any
    ) -> None:
        self.sheet = Capabilities(
            name="s3",
            durable_ack=True,
            ordered_publish=True,
            ordered_redelivery=True,
            seek=True,
            redelivery_s=lease,
        )
        self._clock = clock
        self._lease = lease
        self._poll = poll
        self._partitions = partitions
        self._bucket = Bucket(bucket, options)
        self._log = S3Log(self._bucket)
        self._members: set[GroupMember[ScannedPartition]] = set()

    async def ensure(self, topology: Topology) -> None:
        read = [(group, topic) for group, topics in topology.groups.items() for topic in topics]
        for topic in {*topology.topics, *(topic for _, topic in read)}:
            made = Made(self._partitions)
            new = [await self._bucket.put(_path("topics", topic), made, over=None) for _ in range(2)]
            if all(new):
                raise BrokerError("this store writes over an object though told not to: it cannot keep a log")
        for group, topic in read:
            await self._log.edit(group, topic, lambda ledger: None)

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        named = dict.fromkeys(frame.topic for frame in frames)
        topics = [topic for topic in named if await self._log.partitions(topic)]
        verdicts = admit(frames, topics, self.sheet.max_bytes)
        for topic in topics:
            of_topic = [f for f, v in zip(frames, verdicts, strict=True) if v.accepted and f.topic == topic]
            if of_topic:
                await self._log.append(topic, of_topic, self._clock.now())
        return verdicts

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> Stream:
        for topic in topics:
            last = await self._log.segment(topic)
            first, counts = (1, [0] * len(last.before)) if start == "earliest" else (last.end, last.counts(last.end))
            await self._log.edit(group, topic, functools.partial(Ledger.begin, first=first, counts=counts))
        log = LedgerLog(self._log, group, topics, clock=self._clock, lease=self._lease, window=window, poll=self._poll)
        member = GroupMember(log, group, topics, clock=self._clock, lease=self._lease)
        await member.join(self._members)
        return member

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        last = await self._log.segment(topic)
        if isinstance(position, int) and time is None:
            first = min(max(position, 1), last.end)
        elif position is None and time is not None:
            first = await self._first_since(topic, time)
        else:
            raise BrokerError("seek takes either a position, a whole number in this log, or a time")
        counts = (await self._log.segment(topic, first)).counts(first)
        await self._log.edit(group, topic, lambda ledger: ledger.seek(first, counts, last.counts(last.end)))

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        found: dict[str, Progress] = {}
        for topic in topics:
            stored = await self._log.end(topic) - 1
            read = await self._bucket.get(_path("groups", topic, group), Ledger)
            ledger = read[0] if read else Ledger.of(0)
            found[topic] = Progress(stored=stored, pending=stored - ledger.acknowledged, truncated=ledger.truncated)
        return found

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        rules = [rule for rule in await self._bucket.rules() if "Expiration" in rule and rule["Status"] == "Enabled"]
        return [
            judged(
                f"bucket {self._bucket.name}",
                f"{len(rules)} rules delete objects by their age, read or not",
                wrong=bool(rules),
                as_="fail",
                fix="take them away: what a group has not read must stay",
            )
        ]

    async def aclose(self) -> None:
        for member in tuple(self._members):
            await member.aclose()
        await self._bucket.aclose()

    async def _first_since(self, topic: str, time: float) -> int:
        """Walks back from the end: whoever seeks by time mostly wants the last hours."""
        segment = await self._log.segment(topic)
        first = segment.end
        while segment.at >= time and segment.frames:
            first = segment.first
            segment = await self._log.segment(topic, first - 1)
            if first == 1:
                break
        return first


def _path(folder: str, *names: str) -> str:
    return "/".join([folder, *(quote(name, "") for name in names)])
