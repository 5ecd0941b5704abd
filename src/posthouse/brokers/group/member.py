"""GroupMember: the port `Stream` over a log. It shares the partitions with the other members, keeps its lease, hands out in
order within the window, and moves the cursor behind a fence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic

from posthouse.broker import Delivery
from posthouse.brokers.group.assignment import TopicPartition, assign
from posthouse.brokers.group.log import Answer, Group, GroupLog, P, Token, Want
from posthouse.brokers.supervision import raise_if_ended
from posthouse.clock import Clock
from posthouse.errors import BrokerError, BrokerUnavailable

LEAVING = 5.0
"""Seconds that a good-bye may take; then the lease runs out instead."""
WORTH_HOPING = 16
"""A reader that takes fewer at once, of each partition, first asks what there is, so that it gets as much as it asked for."""
TURNS = 20
"""How often a plan may be overtaken by another member's before it waits for the next beat."""
AT_ONCE = 3
"""Looks that follow each other without a pause, at most, and be it past the deadline: who has just joined, or hears of a
seek, asks what is its own, what is stored, and then for the frames."""


async def _nothing() -> None:
    pass


class GroupMember(Generic[P]):
    """Its window bounds, per partition, the frames from the oldest unacknowledged one on. `on_beat` is called after every
    renewal."""

    def __init__(
        self,
        log: GroupLog[P],
        group: str,
        topics: Sequence[str],
        *,
        clock: Clock,
        lease: float,
        on_beat: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self._log = log
        self._group = group
        self._topics = topics
        self._clock = clock
        self._lease = lease
        self._on_beat = on_beat
        self._members: set[GroupMember[Any]] = set()
        self._held: dict[TopicPartition, P] = {}
        self._until = float("-inf")
        """When the lease ends, by this member's clock; it counts from before it was renewed."""
        self._failed = False
        """The last renewal failed: `receive` tries again, and says why."""
        self._emptied = -1
        """The count of count at which everything that was stored had been handed out; -1 when it was not."""
        self._turn = 0
        # Whoever needs several of them takes them in this order.
        self._reading, self._sharing, self._saving = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._closed, self._left = asyncio.Event(), asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    async def join(self, members: set[GroupMember[Any]]) -> None:
        """Become a member and take what is free; others hand over their surplus when they hear of it. It is among `members`
        until it is closed, and closed when this fails."""
        self._members = members
        members.add(self)
        try:
            await self._sync()
        except BaseException:
            await self.aclose()
            raise
        self._beating = asyncio.create_task(self._beat(), name=f"posthouse member of {self._group}")

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._closed.is_set():
            raise BrokerError("this stream was closed")
        raise_if_ended(self._beating)
        await asyncio.sleep(0)  # a consumer with a full log must still let other tasks run
        loop, notifier = asyncio.get_running_loop(), self._log.notifier
        (pause, longest), at_once = self._log.polls, AT_ONCE
        first_pause, deadline = pause, loop.time() + wait
        count = await notifier.wait(-1, 0)
        if count == self._emptied:
            count = await notifier.wait(count, min(wait, pause))
        while not self._closed.is_set():
            self._emptied = -1
            async with self._reading:
                await self._keep_up()
                deliveries = await self._take(limit)
            if deliveries and not self._closed.is_set():
                self._emptied = count if len(deliveries) < limit and self._is_empty else -1
                return deliveries
            at_once -= 1
            if at_once > 0 and self._knows_of_more:
                continue
            left = deadline - loop.time()
            if left <= 0:
                break
            heard, at_once = await notifier.wait(count, min(left, pause)), AT_ONCE
            count, pause = heard, first_pause if heard != count else min(2 * pause, longest)
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledgements that come together, or while others are being written, share the next write."""
        raise_if_ended(self._beating)
        full = self._full
        for partition, number in _tokens(deliveries):
            partition.ack(number)
        await asyncio.sleep(0)
        await self._save(durable=False)
        if self._full < full:  # a receive may wait for that
            self._log.notifier.wake()
        await self._hand_over()

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        for partition, number in _tokens(deliveries):
            partition.nack(number)
        self._log.notifier.wake()
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
            self._members.discard(self)

    # Handing out

    async def _keep_up(self) -> None:
        """Hear of joins, leaves and seeks, and renew a lease that ends soon. What is held stays ours until it ends, also where
        it cannot be renewed: a log that cannot be written may still be read."""
        if self._failed or self._log.stale or self._clock.monotonic() >= self._until - self._lease / 2:
            try:
                await self._sync()
            except BrokerUnavailable:
                if not self._held or self._clock.monotonic() >= self._until:
                    raise
        if any(partition.cramped for partition in self._held.values()):
            await self._save(durable=True)

    @property
    def _knows_of_more(self) -> bool:
        """Whether to look again at once: something changed in the group, or more is stored than was asked for."""
        return self._log.stale or any(partition.waiting for partition in self._held.values())

    @property
    def _is_empty(self) -> bool:
        """Whether all that is known to be stored was handed out, so that nothing comes without a ring."""
        return not self._log.stale and not any(
            partition.stored is None or partition.window.has_left(partition.stored) for partition in self._held.values()
        )

    @property
    def _full(self) -> int:
        """How many windows keep what is stored from being handed out."""
        return sum(
            partition.stored is not None and partition.stored > partition.window.read and not partition.waiting
            for partition in self._held.values()
        )

    async def _take(self, limit: int) -> list[Delivery]:
        """The next frames, and what is stored by now. What an earlier owner acknowledged is passed over, and others take its
        place."""
        deliveries: list[Delivery] = []
        passed = True
        while passed and not deliveries:
            passed = False
            wants = self._wanted(limit)
            for want, answer in zip(wants, await self._read(wants), strict=True):
                if answer is None or not (
                    want.partition.works and self._held.get(want.partition.place) is want.partition
                ):
                    _put_back([want])
                else:
                    deliveries += handed_out(want, answer)
                    passed = passed or bool(answer.deliveries) or (want.last >= want.first and not want.hopeful)
        return deliveries

    async def _read(self, wants: Sequence[Want[P]]) -> Sequence[Answer | None]:
        """Nothing where the lease has ended meanwhile: another member may have taken over."""
        try:
            answers = await self._log.read(wants)
        except BaseException:
            _put_back(wants)  # nobody got them
            raise
        return answers if self._clock.monotonic() < self._until else [None] * len(wants)

    def _wanted(self, limit: int) -> list[Want[P]]:
        """Partitions take turns in going first, so that a busy one starves nobody."""
        partitions = [partition for partition in self._held.values() if partition.works]
        self._turn += 1
        fair = limit // max(1, len(partitions))
        wants: list[Want[P]] = []
        for turn in range(len(partitions)):
            partition = partitions[(self._turn + turn) % len(partitions)]
            stored = partition.stored
            runs = partition.window.take(limit, stored) if stored is not None else []
            new = [Want(partition, *run) for run in runs] or [_hope(partition, min(fair, limit))]
            wants += new
            limit -= sum(want.last + 1 - want.first for want in new)
            if limit <= 0:
                break
        return wants

    # Cursors and leases

    async def _save(self, *, durable: bool) -> None:
        async with self._saving:
            await self._log.commit((p for p in self._held.values() if not p.doubtful), durable=durable)

    async def _hand_over(self) -> None:
        """Let go of surplus partitions as soon as nothing of them is in hand."""
        if any(partition.leaving_since is not None and partition.window.idle for partition in self._held.values()):
            with contextlib.suppress(BrokerError):  # the next beat tries again
                await self._sync()

    async def _sync(self) -> None:
        """Renew the lease, learn what changed, take and give back partitions. A plan that another member's has overtaken is
        made anew."""
        async with self._sharing, self._saving:
            try:
                for _ in range(TURNS):
                    if self._closed.is_set() or await self._share():  # who has left would join again
                        break
            except BaseException:
                self._failed = True
                raise
            self._failed = False

    async def _share(self) -> bool:
        """Whether the plan was carried out."""
        began = self._clock.monotonic()
        group = await self._log.renew(self._held)
        self._until = began + self._lease
        self._refuse_when_removed(group)
        owned = {place for place, (owner, _) in group.partitions.items() if owner == self._log.me}
        self._held = {
            place: partition
            for place, partition in self._held.items()
            if place in owned and partition.epoch == group.partitions[place].epoch and not partition.doubtful
        }
        owners = {place: owner for place, (owner, _) in group.partitions.items()}
        plan = assign(self._log.me, group.members, owners)
        give = self._ready_to_leave({*plan.leave})
        take = sorted({*plan.take} | owned - self._held.keys())  # also what was moved, or forgotten
        if give or take:
            taken = await self._log.settle(group, give, take)
            if taken is None:
                return False
            for partition in give:
                self._held.pop(partition.place)
            self._held |= taken
            self._log.notifier.wake()
        return True

    def _refuse_when_removed(self, group: Group) -> None:
        """Without a place it would wait for ever; whoever subscribes again gets a new one, or hears that the topic is gone."""
        gone = sorted({*self._topics} - {topic for topic, _ in group.partitions})
        if gone:
            raise BrokerError(f"group {self._group!r} was removed from {', '.join(gone)}: subscribe again")

    def _ready_to_leave(self, leave: set[TopicPartition]) -> list[P]:
        """Of the partitions that are too many: those with nothing in hand, and those whose handlers take too long. From here
        on nothing of any of them is handed out."""
        now = self._clock.monotonic()
        ready = []
        for place, partition in sorted(self._held.items()):
            if place not in leave:
                partition.leaving_since = None
                continue
            partition.leaving_since = now if partition.leaving_since is None else partition.leaving_since
            if partition.window.idle or now - partition.leaving_since >= self._lease:
                ready.append(partition)
        return ready

    async def _beat(self) -> None:
        while not await self._clock.wait(self._closed, self._lease / 3):
            with contextlib.suppress(BrokerError):  # `receive` says it
                await self._save(durable=True)
                await self._sync()
            await self._on_beat()

    async def _leave(self) -> None:
        self._log.notifier.wake()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        with contextlib.suppress(BrokerError, TimeoutError):  # then the lease runs out instead
            async with asyncio.timeout(LEAVING), self._sharing, self._saving:
                await self._log.leave(
                    [partition for _, partition in sorted(self._held.items()) if not partition.doubtful]
                )
        self._held = {}


def _tokens(deliveries: Iterable[Delivery]) -> list[Token]:
    return [token for delivery in deliveries if isinstance(token := delivery.token, tuple)]


def _hope(partition: P, most: int) -> Want[P]:
    """What comes next there, for one round trip less; only the number stored, where nothing may be handed out."""
    window = partition.window
    last = min(window.read + most, window.committed + window.size)
    if not partition.hopes or partition.stored is None or most < WORTH_HOPING or last <= window.read:
        return Want(partition)
    return Want(partition, window.read + 1, last, hopeful=True)


def _put_back(wants: Iterable[Want[P]]) -> None:
    for want in wants:
        if not want.hopeful:
            for number in range(want.first, want.last + 1):
                want.partition.window.put_back(number)


def handed_out(want: Want[P], answer: Answer) -> Sequence[Delivery]:
    """Without what an earlier owner had acknowledged. Numbers that somebody deleted by hand must not hold up the cursor for
    ever."""
    partition, window = want.partition, want.partition.window
    partition.heard(answer.stored)
    if len(answer.deliveries) == want.last + 1 - want.first and not (want.hopeful or window.done):
        return answer.deliveries
    numbers = [number for _, number in _tokens(answer.deliveries)]
    last = max(numbers, default=0) if want.hopeful else want.last
    if want.hopeful and numbers:
        window.hand_out(last)
    if len(numbers) <= last - want.first:
        for number in set(range(want.first, last + 1)).difference(numbers):
            partition.ack(number)
    if window.done.isdisjoint(numbers):
        return answer.deliveries
    for number in window.done.intersection(numbers):
        partition.ack(number)
    return [delivery for delivery, number in zip(answer.deliveries, numbers, strict=True) if number not in window.done]
