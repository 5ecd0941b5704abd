"""One member of a consumer group: holds leases on partitions and a window on each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

import posthouse.brokers.embedded.schema as schema
from posthouse.broker import Delivery
from posthouse.brokers.embedded.file import LogFile
from posthouse.brokers.handing import frame_of, handed
from posthouse.brokers.shares import Claim, is_alive, plan
from posthouse.brokers.supervision import raise_if_ended
from posthouse.brokers.window import Window
from posthouse.clock import Clock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable

log = logging.getLogger("posthouse.brokers")

POLL = 0.2
"""Seconds between looks at the file when no ring was heard."""
LEAVING = 2.0
"""Seconds that a good-bye may take; then the lease runs out instead."""

Place = tuple[int, int]
"""Topic number and partition."""
Cursor = tuple[int, int, str | None, int, int, int, int]
"""Topic number, partition, owner, epoch, acked, touched, unsure."""

Mark = tuple[float | None, bytes | None]
"""When the last frame that was read was stored, and its id; without values when it was deleted since, or there is none."""


class Holding:
    """A partition this member owns. A seek makes a new one, so acknowledgements of the old one find nobody."""

    __slots__ = ("epoch", "leaving_since", "mark", "window")

    def __init__(self, epoch: int, window: Window, mark: Mark | None) -> None:
        self.epoch = epoch
        self.window = window
        self.mark = mark
        """Of `window.read`. A log that has another one there, or ends before it, is not the log that was read."""
        self.leaving_since: float | None = None


class Token(NamedTuple):
    holding: Holding
    number: int


class Taken(NamedTuple):
    """What is handed out, and whether there is a `rest` that may come without a ring."""

    deliveries: Sequence[Delivery]
    rest: bool


class Entered(NamedTuple):
    """The numbers and names of a group's topics, and in which run of the file these were found."""

    topics: Mapping[int, str]
    run: int


class EmbeddedStream:
    """The port's Stream. `window` bounds, per partition, the frames from the oldest unacknowledged one on."""

    def __init__(
        self,
        file: LogFile,
        group: str,
        entered: Entered,
        *,
        clock: Clock,
        window: int,
        lease: float,
        enter: Callable[[sqlite3.Connection], Entered],
        on_beat: Callable[[], Awaitable[None]],
        on_close: Callable[[EmbeddedStream], None],
    ) -> None:
        self._file = file
        self._group = group
        self._topics, self._run = entered
        self._enter = enter
        """Looks anew, and gives the group its place where it has none."""
        self._doubtful = False
        """What is held may not be what the file says."""
        self._clock = clock
        self._size = window
        self._lease = lease
        self._on_beat = on_beat
        self._on_close = on_close
        self._name = new_id()
        self._held: dict[Place, Holding] = {}
        self._version = -1
        """Of the group, when this member last took part in sharing the work."""
        self._looked = -1
        """The same, when it last looked."""
        self._emptied = -1
        """The count of rings at which everything that was stored had been handed out; -1 when it was not."""
        self._until = 0.0
        self._renew_at = 0.0
        self._turn = 0
        self._closed = asyncio.Event()
        self._left = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Become a member and take what is free; others hand over their surplus when they hear of it."""
        await self._sync(joining=True)
        self._beating = asyncio.create_task(self._beat(), name=f"posthouse embedded member of {self._group}")

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._closed.is_set():
            raise BrokerError("this stream was closed")
        raise_if_ended(self._beating)
        await asyncio.sleep(0)  # a consumer with a full log must still let other tasks run
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        rings = await self._file.bell.wait(-1, 0)
        if rings == self._emptied:
            rings = await self._file.bell.wait(rings, min(wait, POLL))
        while not self._closed.is_set():
            self._emptied = -1
            deliveries, rest = await self._look_and_take(limit)
            left = deadline - loop.time()
            if deliveries or left <= 0:
                self._emptied = -1 if rest else rings
                return deliveries
            rings = await self._file.bell.wait(rings, min(left, POLL))
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledgements of tasks that are ready together share one transaction."""
        raise_if_ended(self._beating)
        for delivery in deliveries:
            if isinstance(token := delivery.token, Token):
                token.holding.window.ack(token.number)
        await asyncio.sleep(0)
        await self._save()
        await self._hand_over()

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if isinstance(token := delivery.token, Token):
                token.holding.window.nack(token.number)
        self._file.bell.ring()
        await self._hand_over()

    async def aclose(self) -> None:
        if self._closed.is_set():
            await self._left.wait()
            return
        self._closed.set()
        try:
            await self._leave()
        finally:
            self._left.set()
            self._on_close(self)

    # Handing out

    async def _look_and_take(self, limit: int) -> Taken:
        """What there is, once this member knows who has what: nearly always as it was."""
        if self._is_fresh(self._clock.now()) and self._looked == self._version:
            taken = await self._file.read("receiving", lambda connection: self._take(connection, limit))
            if taken is not None:
                return taken
        await self._look()
        taken = await self._file.read("receiving", lambda connection: self._take(connection, limit))
        return taken or Taken([], True)

    def _is_fresh(self, now: float) -> bool:
        """Whether the lease need not be renewed yet; it must be when the clock was set back."""
        return self._renew_at - self._lease < now < self._renew_at

    async def _look(self) -> None:
        """Renew the lease when it is time, and hear of joins, leaves and seeks. A file that cannot be written, because
        the disk is full, can still be read: what we hold stays ours until the lease ends."""
        now = self._clock.now()
        due = not self._is_fresh(now)
        self._looked = await self._file.read("receiving", self._group_version)
        if due or self._doubtful or self._run != self._file.run or self._looked != self._version:
            try:
                await self._sync()
                self._looked = self._version
            except BrokerUnavailable:
                if not self._held or not is_alive(self._until, now, self._lease):
                    raise

    def _take(self, connection: sqlite3.Connection, limit: int) -> Taken | None:
        """From one snapshot, in which nobody had taken over: a process that was paused since it looked hands out
        nothing that its heir does not know of. None when somebody has."""
        connection.execute("BEGIN")
        try:
            same = self._run == self._file.run and self._group_version(connection) == self._looked
            return self._fill(connection, limit) if same else None
        finally:
            connection.execute("COMMIT")

    def _fill(self, connection: sqlite3.Connection, limit: int) -> Taken | None:
        """Partitions take turns in going first, so that a busy one starves nobody. None when the log ends in front of what
        was read of it: it is not the log that we knew."""
        stored = {
            (topic, partition): last
            for topic in self._topics
            for partition, last in connection.execute(schema.HEADS, (topic,))
        }
        if any(stored.get(place, 0) < holding.window.read for place, holding in self._held.items()):
            self._doubtful = True
            return None
        places = [place for place, holding in self._held.items() if holding.leaving_since is None]
        self._turn += 1
        deliveries: list[Delivery] = []
        taken: list[tuple[Window, range]] = []
        try:
            for turn in range(len(places)):
                place = places[(self._turn + turn) % len(places)]
                window = self._held[place].window
                for first, last, again in window.take(limit - len(deliveries), stored[place]):
                    taken.append((window, range(first, last + 1)))
                    deliveries += self._read(connection, place, (first, last), again)
        except BaseException:
            for window, numbers in taken:  # nobody got them
                for number in numbers:
                    window.put_back(number)
            raise
        return Taken(deliveries, any(self._held[place].window.has_left(stored[place]) for place in places))

    def _read(self, connection: sqlite3.Connection, place: Place, run: tuple[int, int], again: bool) -> list[Delivery]:
        topic, holding = self._topics[place[0]], self._held[place]
        window = holding.window
        touched = run[1] if again else window.touched
        rows = connection.execute(schema.READ, (*place, *run)).fetchall()
        if run[1] == window.read:
            holding.mark = (rows[-1][2], rows[-1][3]) if rows and rows[-1][0] == run[1] else (None, None)
        deliveries = [
            handed(
                partial(frame_of, topic, id_, key, headers, body),
                topic=topic,
                body=body,
                position=offset,
                stored_at=stored_at,
                redelivered=number <= touched,
                token=Token(holding, number),
            )
            for number, offset, stored_at, id_, key, headers, body in rows
        ]
        if (
            len(deliveries) <= run[1] - run[0]
        ):  # rows that somebody deleted by hand must not hold up the cursor for ever
            there = {_number(delivery) for delivery in deliveries}
            for number in set(range(run[0], run[1] + 1)) - there:
                window.ack(number)
        return self._without_done(deliveries, window) if window.done else deliveries

    def _without_done(self, deliveries: Sequence[Delivery], window: Window) -> list[Delivery]:
        """What an earlier owner had acknowledged is passed over."""
        for number in window.done.intersection(map(_number, deliveries)):
            window.ack(number)
        return [delivery for delivery in deliveries if _number(delivery) not in window.done]

    # Cursors and leases

    async def _save(self) -> None:
        """Write the cursors that moved. An epoch that is no longer ours changes nothing: somebody else has the cursor."""
        if not any(holding.window.advance() > holding.window.committed for holding in self._held.values()):
            return
        async with self._file.write("acknowledging", durable=False) as connection:
            moved = [
                (place, holding, holding.window.prefix)
                for place, holding in self._held.items()
                if holding.window.advance() > holding.window.committed and self._run == self._file.run
            ]
            connection.executemany(
                schema.ACK,
                [(prefix, self._group, *place, self._name, holding.epoch) for place, holding, prefix in moved],
            )
        for _, holding, prefix in moved:
            holding.window.committed = prefix

    async def _hand_over(self) -> None:
        """Let go of surplus partitions as soon as nothing of them is in hand."""
        if any(holding.leaving_since is not None and holding.window.idle for holding in self._held.values()):
            with contextlib.suppress(BrokerUnavailable):  # the next beat tries again
                await self._sync()

    async def _sync(self, *, joining: bool = False) -> None:
        """Renew the lease, learn what changed, take and give back partitions: one transaction that all members see."""
        now = self._clock.now()
        async with self._file.write("renewing a lease") as connection:
            run, anew = self._file.run, self._run != self._file.run and not self._is_known(connection)
            if anew or self._doubtful:
                self._held = {}
            if anew:  # topics may have other numbers there, and every number that we know may be another frame's
                log.warning("group %s begins anew: the log %s is not as it was left", self._group, self._file.path)
                self._topics = self._enter(connection).topics
            self._renew(connection, now + self._lease)
            rows = sorted(connection.execute(schema.CURSORS, (self._group,)).fetchall())
            self._refuse_when_removed(rows)
            held = self._still_held(connection, rows)
            claims = [Claim(*row[:3]) for row in rows if row[0] in self._topics]
            take, leave = plan(self._name, self._living(connection, now), claims)
            forgotten = [claim for claim in claims if claim.owner == self._name and claim[:2] not in held]
            for claim in (*take, *forgotten):
                held[claim[:2]] = self._take_over(connection, claim[:2], anew)
            gone = self._ready_to_leave(held, {claim[:2] for claim in leave})
            for place in gone:
                self._give_back(connection, place, held.pop(place), closed=False)
            bereaved = any(claim.owner is not None for claim in take)
            if gone or joining or bereaved:
                connection.execute(schema.GROUP_CHANGED, (self._group,))
            version = self._group_version(connection)
        self._held, self._version, self._run, self._doubtful = held, version, run, False
        self._until, self._renew_at = now + self._lease, now + self._lease / 3
        if gone or joining:
            self._file.bell.ring()

    def _is_known(self, connection: sqlite3.Connection) -> bool:
        """Whether a file that was closed meanwhile is the log that this member has read, and no older copy of it, be it that
        it went on since under the same numbers."""
        if self._enter(connection).topics != self._topics:
            return False
        return all(self._mark(connection, place, h.window.read) == h.mark for place, h in self._held.items())

    def _mark(self, connection: sqlite3.Connection, place: Place, number: int) -> Mark | None:
        """None where the log ends before this number."""
        found: Mark | None = connection.execute(schema.MARK, (*place, number)).fetchone()
        return found

    def _group_version(self, connection: sqlite3.Connection) -> int:
        row = connection.execute(schema.GROUP_VERSION, (self._group,)).fetchone()
        return -1 if row is None else int(row[0])

    def _refuse_when_removed(self, rows: Sequence[Cursor]) -> None:
        """Without a place it would wait for ever; whoever subscribes again gets a new one, or hears that the topic is gone."""
        gone = self._topics.keys() - {row[0] for row in rows}
        if gone:
            names = ", ".join(sorted(self._topics[number] for number in gone))
            raise BrokerError(f"group {self._group!r} was removed from {names}: subscribe again")

    def _renew(self, connection: sqlite3.Connection, until: float) -> None:
        connection.executemany(schema.JOIN, [(self._group, topic, self._name, until) for topic in self._topics])

    def _living(self, connection: sqlite3.Connection, now: float) -> dict[int, list[str]]:
        """The living members of each of my topics. The dead are struck off."""
        living: dict[int, list[str]] = {topic: [] for topic in self._topics}
        for topic, name, until in connection.execute(schema.MEMBERS, (self._group,)).fetchall():
            if not is_alive(until, now, self._lease):
                connection.execute(schema.LEAVE, (self._group, topic, name))
            elif topic in living:
                living[topic].append(name)
        return living

    def _still_held(self, connection: sqlite3.Connection, rows: Sequence[Cursor]) -> dict[Place, Holding]:
        """What the file says is mine and I know of; after a seek with a fresh window."""
        held: dict[Place, Holding] = {}
        for topic, partition, owner, epoch, acked, touched, unsure in rows:
            holding = self._held.get((topic, partition))
            if owner == self._name and holding is not None:
                if holding.epoch != epoch:
                    window = Window(acked=acked, touched=touched, size=self._size, unsure=unsure)
                    holding = Holding(epoch, window, self._mark(connection, (topic, partition), acked))
                holding.window.committed = acked  # a copy that was put back may be behind
                held[topic, partition] = holding
        return held

    def _ready_to_leave(self, held: Mapping[Place, Holding], leave: set[Place]) -> list[Place]:
        """Of the partitions that are too many: those with nothing in hand, and those whose handlers take too long."""
        now = asyncio.get_running_loop().time()
        ready = []
        for place, holding in held.items():
            if place not in leave:
                holding.leaving_since = None
                continue
            holding.leaving_since = now if holding.leaving_since is None else holding.leaving_since
            if holding.window.idle or now - holding.leaving_since >= self._lease:
                ready.append(place)
        return ready

    def _take_over(self, connection: sqlite3.Connection, place: Place, anew: bool) -> Holding:
        names = {"group": self._group, "topic": place[0], "partition": place[1], "member": self._name}
        values = {"reach": self._size, "boot": self._file.boot, "anew": anew}
        ((epoch, acked, touched, done, unsure),) = connection.execute(schema.TAKE, names | values).fetchall()
        numbers = msgspec.json.decode(done, type=list[int])
        window = Window(acked=acked, touched=touched, size=self._size, done=numbers, unsure=unsure)
        return Holding(epoch, window, self._mark(connection, place, acked))

    def _give_back(self, connection: sqlite3.Connection, place: Place, holding: Holding, *, closed: bool) -> None:
        window = holding.window
        done = msgspec.json.encode(window.acknowledged()).decode()
        given = (window.prefix, window.read, self._group, *place, self._name, holding.epoch)
        values = (*given, done, window.doubted(closed=closed))
        connection.execute(schema.GIVE_BACK, values)

    async def _beat(self) -> None:
        while not await self._clock.wait(self._closed, self._lease / 3):
            with contextlib.suppress(BrokerError):  # `receive` says it
                await self._save()
                await self._sync()
            await self._on_beat()

    async def _leave(self) -> None:
        self._file.bell.ring()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        with contextlib.suppress(BrokerUnavailable, TimeoutError):  # then the lease runs out instead
            async with asyncio.timeout(LEAVING), self._file.write("leaving a group") as connection:
                for place, holding in self._held.items() if self._run == self._file.run else ():
                    self._give_back(connection, place, holding, closed=True)
                connection.executemany(schema.LEAVE, [(self._group, topic, self._name) for topic in self._topics])
                connection.execute(schema.GROUP_CHANGED, (self._group,))
            self._file.bell.ring()
        self._held = {}


def _number(delivery: Delivery) -> int:
    return delivery.token.number if isinstance(delivery.token, Token) else 0
