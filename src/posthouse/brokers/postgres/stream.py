"""One member of a consumer group: holds leases on partitions and a window on each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import posthouse.brokers.postgres.schema as sql
from posthouse.broker import Delivery
from posthouse.brokers.handing import frame_of, handed
from posthouse.brokers.postgres.database import Database, Row
from posthouse.brokers.shares import Claim, plan
from posthouse.brokers.supervision import raise_if_ended
from posthouse.brokers.window import Window
from posthouse.clock import Clock, new_id
from posthouse.errors import BrokerError

FIRST_POLL = 0.01
"""Seconds after which an empty log is looked at again when no ring was heard; each further look waits twice as long."""
LEAVING = 5.0
"""Seconds that a good-bye may take; then the lease runs out instead."""
WORTH_HOPING = 16
"""A reader that takes fewer at once, of each partition, first asks what there is, so that it gets as much as it asked for."""
TURNS = 20
"""How often a plan may be overtaken by another member's before it waits for the next beat."""
AT_ONCE = 3
"""Looks that follow each other without a pause, at most, and be it past the deadline: who has just joined, or hears of a
seek, asks what is its own, what is stored, and then for the frames."""
UNKNOWN = 2**62
"""Above any number."""

Place = tuple[int, int]
"""Topic number and partition."""


class Holding:
    """A partition this member owns. A seek makes a new one, so acknowledgements of the old one find nobody."""

    __slots__ = ("epoch", "leaving_since", "saved", "stored", "window")

    def __init__(self, epoch: int, window: Window) -> None:
        self.epoch = epoch
        self.window = window
        self.saved = window.committed
        """The cursor as the database has it; `window.committed` is what its disk has."""
        self.stored: int | None = None
        """The last number known to be stored; None until the log was read under this epoch."""
        self.leaving_since: float | None = None

    def heard(self, stored: int) -> None:
        """What is stored now. When it is the first time, nothing above it can have been handed out before."""
        if self.stored is None:
            self.window.touched = min(self.window.touched, stored)
            self.window.unsure = min(self.window.unsure, stored)
        self.stored = stored

    @property
    def cramped(self) -> bool:
        """The window is full, but would not be if the disk had what was acknowledged."""
        window = self.window
        return window.committed < window.prefix and window.read >= window.committed + window.size

    @property
    def waiting(self) -> bool:
        return self.leaving_since is None and self.stored is not None and self.window.waiting(self.stored)


class Token(NamedTuple):
    holding: Holding
    number: int


class Entered(NamedTuple):
    """The numbers and names of a group's topics, and the run of the server that gave these numbers."""

    topics: Mapping[int, str]
    run: str


class Want(NamedTuple):
    """A run of numbers to read, or an empty one (`last` 0) to learn what is stored. A `hopeful` one is of numbers that may
    not be stored yet: the window hears of those that came."""

    place: Place
    holding: Holding
    first: int = 1
    last: int = 0
    again: bool = False
    hopeful: bool = False


class PostgresStream:
    """The port's Stream. `window` bounds, per partition, the frames from the oldest unacknowledged one on."""

    def __init__(
        self,
        database: Database,
        group: str,
        entered: Entered,
        *,
        clock: Clock,
        window: int,
        lease: float,
        enter: Callable[[], Awaitable[Entered]],
        on_beat: Callable[[], Awaitable[None]],
        on_close: Callable[[PostgresStream], None],
    ) -> None:
        self._database = database
        self._group = group
        self._topics, self._run = entered
        self._enter = enter
        """Asks the server anew, and gives the group its place where it has none."""
        self._entered_again = False
        self._clock = clock
        self._size = window
        self._lease = lease
        self._bell = database.bell
        self._on_beat = on_beat
        self._on_close = on_close
        self._name = new_id()
        self._held: dict[Place, Holding] = {}
        self._version = -1
        """Of the group, when this member last took part in sharing the work."""
        self._looked = -1
        """The same, when it last read."""
        self._emptied = -1
        """The count of rings at which everything that was stored had been handed out; -1 when it was not."""
        self._renew_at = 0.0
        self._turn = 0
        self._reading, self._saving, self._sharing = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._closed = asyncio.Event()
        self._left = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Become a member and take what is free; others hand over their surplus when they hear of it."""
        await self._share()
        self._bell.ring()
        self._beating = asyncio.create_task(self._beat(), name=f"posthouse postgres member of {self._group}")

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._closed.is_set():
            raise BrokerError("this stream was closed")
        raise_if_ended(self._beating)
        loop = asyncio.get_running_loop()
        deadline, pause, at_once = loop.time() + wait, FIRST_POLL, AT_ONCE
        rings = await self._bell.wait(-1, 0)
        if rings == self._emptied:
            rings = await self._bell.wait(rings, min(wait, pause))
        while not self._closed.is_set():
            self._emptied = -1
            async with self._reading:
                await self._keep_up()
                if any(holding.cramped for holding in self._held.values()):
                    await self._save(durable=True)
                deliveries = await self._take(limit)
            if deliveries and not self._closed.is_set():
                self._emptied = rings if self._is_empty else -1
                return deliveries
            at_once -= 1
            if at_once > 0 and self._knows_of_more:
                continue
            left = deadline - loop.time()
            if left <= 0:
                return []
            heard, at_once = await self._bell.wait(rings, min(left, pause)), AT_ONCE
            rings, pause = heard, FIRST_POLL if heard != rings else min(2 * pause, self._database.longest_pause)
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledgements that come while others are being written share the next statement."""
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
        self._bell.wake()
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

    async def _keep_up(self) -> None:
        """Take part in sharing the work when the lease is due, and when somebody joined, left or moved the group."""
        if self._looked != self._version or self._clock.monotonic() >= self._renew_at:
            await self._share()

    @property
    def _knows_of_more(self) -> bool:
        """Whether to look again at once: something changed in the group, or more is stored than was asked for."""
        return self._looked != self._version or any(holding.waiting for holding in self._held.values())

    @property
    def _is_empty(self) -> bool:
        """Whether all that is known to be stored was handed out, so that nothing comes without a ring."""
        known = [(holding.window, holding.stored) for holding in self._held.values()]
        return self._looked == self._version and not any(
            stored is None or window.has_left(stored) for window, stored in known
        )

    async def _take(self, limit: int) -> list[Delivery]:
        """Read the next frames, and what is stored by now, in one statement."""
        wants, run = self._wanted(limit), self._run
        places = [want.place for want in wants]
        try:
            rows = await self._database.fetch(
                "receiving",
                sql.READ,
                self._group,
                [topic for topic, _ in places],
                [partition for _, partition in places],
                [want.holding.epoch for want in wants],
                [want.first for want in wants],
                [want.last for want in wants],
                self._name,
                run,
            )
        except BaseException:
            for want in wants:  # nobody got them
                if not want.hopeful:
                    for number in range(want.first, want.last + 1):
                        want.holding.window.put_back(number)
            raise
        return self._unpacked(wants, rows) if run == self._run else []

    def _wanted(self, limit: int) -> list[Want]:
        """Partitions take turns in going first, so that a busy one starves nobody."""
        places = [place for place, holding in self._held.items() if holding.leaving_since is None]
        self._turn += 1
        wants: list[Want] = []
        for turn in range(len(places)):
            place = places[(self._turn + turn) % len(places)]
            holding = self._held[place]
            runs = holding.window.take(limit, holding.stored) if holding.stored is not None and limit > 0 else []
            limit -= sum(last + 1 - first for first, last, _ in runs)
            if runs:
                wants += [Want(place, holding, *run) for run in runs]
                continue
            wants.append(hope(place, holding, limit // len(places)))
            limit -= max(0, wants[-1].last + 1 - wants[-1].first)
        return wants

    def _unpacked(self, wants: Sequence[Want], rows: Iterable[Row]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        numbers: dict[int, set[int]] = {}
        for index, stored, number, position, stored_at, id_, key, headers, body in sorted(rows, key=_place_and_number):
            if index == 0:
                self._looked = stored
                if not number:  # of another run of the server
                    self._distrust(self._held)
                continue
            want = wants[index - 1]
            holding, window = want.holding, want.holding.window
            if index not in numbers:
                numbers[index] = set()
                if stored < window.read:
                    self._distrust([want.place])
                holding.heard(stored)
            if number is None or not self._holds(want):
                continue
            if want.hopeful:
                window.hand_out(number)
            numbers[index].add(number)
            if number in window.done:  # acknowledged by an earlier owner
                window.ack(number)
                continue
            topic = self._topics[want.place[0]]
            deliveries.append(
                handed(
                    partial(frame_of, topic, id_, key, headers, body),
                    topic=topic,
                    body=body,
                    position=position,
                    stored_at=stored_at,
                    redelivered=want.again or number <= window.touched,
                    token=Token(holding, number),
                )
            )
        for index, there in numbers.items():  # rows that somebody deleted by hand must not hold up the cursor for ever
            want = wants[index - 1]
            last = max(there, default=0) if want.hopeful else want.last
            for number in set(range(want.first, last + 1)) - there:
                want.holding.window.ack(number)
        return deliveries

    def _holds(self, want: Want) -> bool:
        return self._held.get(want.place) is want.holding

    def _distrust(self, places: Iterable[Place]) -> None:
        """The log may have lost its end, to a crash, a failover or a restore, and give our numbers to other frames: forget
        what we know of these partitions and begin again where the log's own cursor stands."""
        for place in list(places):
            self._held.pop(place, None)
        self._looked = -1

    # Cursors and leases

    async def _save(self, *, durable: bool = False) -> None:
        """Write the cursors that moved. An epoch that is no longer ours changes nothing: somebody else has the cursor. Nor
        does anything in another run of the server.

        The window counts from what is on the disk, so whoever takes over after a crash knows how far we can have been.
        Acknowledgements do not wait for the disk; a full window does, and every beat.
        """
        async with self._saving:
            moved, run = self._moved(durable), self._run
            if not moved:
                return
            topics, partitions = columns(place for place, _, _ in moved)
            epochs = [holding.epoch for _, holding, _ in moved]
            prefixes = [prefix for _, _, prefix in moved]
            ((same,),) = await self._database.fetch(
                "acknowledging", sql.ACK, self._group, topics, partitions, epochs, prefixes, durable, self._name, run
            )
            if not same:
                if run == self._run:
                    self._distrust(self._held)
                return
            for _, holding, prefix in moved:
                holding.saved = prefix
                if durable:
                    holding.window.committed = prefix

    def _moved(self, durable: bool) -> list[tuple[Place, Holding, int]]:
        return [
            (place, holding, holding.window.prefix)
            for place, holding in in_order(self._held)
            if holding.window.advance() > (holding.window.committed if durable else holding.saved)
        ]

    async def _hand_over(self) -> None:
        """Let go of surplus partitions as soon as nothing of them is in hand."""
        if any(holding.leaving_since is not None and holding.window.idle for holding in self._held.values()):
            with contextlib.suppress(BrokerError):  # the next beat tries again
                await self._share()

    async def _share(self) -> None:
        """Renew the lease, learn what changed, take and give back partitions. A plan that another member's has overtaken
        is made anew: each is written only if the group still stands as it stood when it was made."""
        async with self._sharing:
            if self._closed.is_set():
                return  # we have left: renewing would join again
            for _ in range(TURNS):
                now = self._clock.monotonic()
                rows = await self._database.fetch(
                    "renewing a lease", sql.RENEW, self._group, list(self._topics), self._name, self._lease, self._run
                )
                if not rows:
                    await self._begin_again()
                elif await self._settle(rows[0]["version"], rows):
                    self._looked, self._renew_at = self._version, now + self._lease / 3
                    self._entered_again = False
                    return

    async def _begin_again(self) -> None:
        """Another run of the server: topics may have other numbers, the group may be gone, and every number that we know
        may be another frame's."""
        self._distrust(self._held)
        self._topics, self._run = await self._enter()
        self._entered_again = True

    async def _settle(self, version: int, rows: Sequence[Row]) -> bool:
        cursors = [row for row in rows if row["partition"] is not None]
        self._refuse_when_removed(cursors)
        held = self._still_held(cursors)
        claims = [Claim(row["topic"], row["partition"], row["name"]) for row in cursors if row["topic"] in self._topics]
        take, leave = plan(self._name, self._living(rows), claims)
        taking = sorted({claim[:2] for claim in take} | self._unknown(claims))
        gone = self._ready_to_leave(held, {claim[:2] for claim in leave})
        if taking or gone:
            taken = await self._database.fetch(
                "sharing the work",
                sql.SETTLE,
                self._group,
                version,
                self._name,
                self._size,
                *given_back([(place, held.pop(place)) for place in gone], closed=False),
                *columns(taking),
                self._run,
            )
            if not taken:
                return False
            version += 1
            for topic, partition, epoch, acked, touched, done, unsure in taken:
                if topic is not None:
                    touched, unsure = (UNKNOWN, UNKNOWN) if self._entered_again else (touched, unsure)
                    window = Window(acked=acked, touched=touched, size=self._size, done=done, unsure=unsure)
                    held[topic, partition] = Holding(epoch, window)
        self._held, self._version = held, version
        if gone:
            self._bell.ring()
        return True

    def _refuse_when_removed(self, cursors: Iterable[Row]) -> None:
        """Without a place it would wait for ever; whoever subscribes again gets a new one, or hears that the topic is gone."""
        gone = self._topics.keys() - {row["topic"] for row in cursors}
        if gone:
            names = ", ".join(sorted(self._topics[number] for number in gone))
            raise BrokerError(f"group {self._group!r} was removed from {names}: subscribe again")

    def _living(self, rows: Sequence[Row]) -> dict[int, list[str]]:
        living: dict[int, list[str]] = {topic: [] for topic in self._topics}
        for row in rows:
            if row["partition"] is None and row["topic"] in living:
                living[row["topic"]].append(row["name"])
        return living

    def _still_held(self, cursors: Iterable[Row]) -> dict[Place, Holding]:
        """What the log says is mine and I know of, with a fresh window after a seek."""
        held: dict[Place, Holding] = {}
        for _, topic, partition, owner, epoch, acked, touched in cursors:
            holding = self._held.get((topic, partition))
            if owner == self._name and holding is not None:
                if holding.epoch != epoch:
                    window = Window(acked=acked, touched=touched, size=self._size, unsure=touched)
                    holding = Holding(epoch, window)
                held[topic, partition] = holding
        return held

    def _unknown(self, claims: Iterable[Claim]) -> set[Place]:
        """What the log says is mine, and I have forgotten: it is taken anew, with all that a window reaches as touched."""
        return {claim[:2] for claim in claims if claim.owner == self._name and claim[:2] not in self._held}

    def _ready_to_leave(self, held: Mapping[Place, Holding], leave: set[Place]) -> list[Place]:
        """Of the partitions that are too many: those with nothing in hand, and those whose handlers take too long."""
        now = asyncio.get_running_loop().time()
        ready = []
        for place, holding in in_order(held):
            if place not in leave:
                holding.leaving_since = None
                continue
            holding.leaving_since = now if holding.leaving_since is None else holding.leaving_since
            if holding.window.idle or now - holding.leaving_since >= self._lease:
                ready.append(place)
        return ready

    async def _beat(self) -> None:
        while not await self._clock.wait(self._closed, self._lease / 3):
            with contextlib.suppress(BrokerError):
                await self._save(durable=True)
                await self._share()
            await self._on_beat()

    async def _leave(self) -> None:
        self._bell.wake()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        with contextlib.suppress(BrokerError, TimeoutError):  # then the lease runs out instead
            async with asyncio.timeout(LEAVING), self._saving, self._sharing:
                back = given_back(in_order(self._held), closed=True)
                await self._database.fetch("leaving a group", sql.LEAVE, self._group, self._name, *back, self._run)
            self._bell.ring()
        self._held = {}


def _place_and_number(row: Row) -> tuple[int, int]:
    return row[0], row[2] or 0


def hope(place: Place, holding: Holding, most: int) -> Want:
    """What comes next there, for one round trip less; only the number stored, where nothing may be handed out."""
    window = holding.window
    last = min(window.read + most, window.committed + window.size)
    if holding.stored is None or most < WORTH_HOPING or last <= window.read:
        return Want(place, holding)
    return Want(place, holding, window.read + 1, last, hopeful=True)


def in_order(held: Mapping[Place, Holding]) -> list[tuple[Place, Holding]]:
    """As all who lock cursors lock them."""
    return sorted(held.items(), key=lambda pair: pair[0])


def columns(places: Iterable[Place]) -> tuple[list[int], list[int]]:
    pairs = list(places)
    return [topic for topic, _ in pairs], [partition for _, partition in pairs]


def given_back(pairs: Sequence[tuple[Place, Holding]], *, closed: bool) -> tuple[Sequence[object], ...]:
    """Topics, partitions, epochs, cursors, the last numbers handed out, what was acknowledged behind the cursor, and how far
    others may have been dealt with."""
    windows = [holding.window for _, holding in pairs]
    return (
        *columns(place for place, _ in pairs),
        [holding.epoch for _, holding in pairs],
        [window.advance() for window in windows],
        [max(window.read, window.touched) for window in windows],
        ["{" + ",".join(map(str, window.acknowledged())) + "}" for window in windows],
        [window.doubted(closed=closed) for window in windows],
    )
