"""Members that share a log which has no groups of its own: here a list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import pytest

from posthouse.broker import Delivery, Frame
from posthouse.brokers.group.ledger import Ledger, LedgerLog, ScannedPartition, Signs, partition_of
from posthouse.brokers.group.member import GroupMember
from posthouse.clock import ManualClock
from posthouse.errors import BrokerError, BrokerUnavailable

PARTITIONS = 4
LEASE = 8.0


class ListLog:
    """Frames in a list, ledgers as bytes; `down` makes every call fail, `hurdles` make edits come too late, `delay` takes time."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.ledgers: dict[str, bytes] = {}
        self.down = False
        self.hurdles: list[Callable[[], None]] = []
        self.delay: Callable[[], None] = lambda: None
        self.reading, self.editing = asyncio.Event(), asyncio.Event()
        """Answers about the end, and to edits, are on their way while these are not set."""
        self.reading.set()
        self.editing.set()

    async def end(self, topic: str) -> int:
        self._answer()
        self.delay()
        end = len(self.frames) + 1
        await self.reading.wait()
        return end

    async def read(self, topic: str, position: int) -> Sequence[Delivery]:
        self._answer()
        found = enumerate(self.frames[position - 1 : position + 2], position)
        return [Delivery(frame=frame, position=number, stored_at=float(number)) for number, frame in found]

    async def edit(self, group: str, topic: str, edit: Callable[[Ledger], None]) -> Ledger:
        self._answer()
        while True:
            before = self.ledgers.get(group)
            ledger = Ledger.of(PARTITIONS) if before is None else msgspec.json.decode(before, type=Ledger)
            edit(ledger)
            while self.hurdles:
                self.hurdles.pop()()
            await asyncio.sleep(0)
            if self.ledgers.get(group) == before:
                self.ledgers[group] = msgspec.json.encode(ledger)
                await self.editing.wait()
                return ledger

    def ledger(self) -> Ledger:
        return msgspec.json.decode(self.ledgers["g"], type=Ledger)

    def say(self, *keys: str) -> None:
        self.frames += [
            Frame(topic="t", id=str(n), key=key, body=b"") for n, key in enumerate(keys, len(self.frames) + 1)
        ]

    def _answer(self) -> None:
        if self.down:
            raise BrokerUnavailable("down")


def made(log: ListLog, clock: ManualClock, *topics: str) -> GroupMember[ScannedPartition]:
    ledgers = LedgerLog(log, "g", topics, clock=clock, lease=LEASE, window=6, poll=1.0)
    return GroupMember(ledgers, "g", topics, clock=clock, lease=LEASE)


async def joined(log: ListLog, clock: ManualClock) -> GroupMember[ScannedPartition]:
    member = made(log, clock, "t")
    await member.join(set())
    return member


async def pass_time(clock: ManualClock, seconds: float) -> None:
    """In small steps, so that signs of life are given on the way."""
    for _ in range(int(seconds)):
        clock.advance(1.0)
        for _ in range(12):
            await asyncio.sleep(0)


async def turns() -> None:
    """Whatever can go on does."""
    for _ in range(20):
        await asyncio.sleep(0)


async def never() -> None:
    await asyncio.Event().wait()


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.frame.id for delivery in deliveries]


async def test_a_lone_member_gets_everything_in_order_and_only_once() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say("a", "b", "a", "c", "a")
    got = await member.receive(10, 0)
    assert sorted(ids(got)) == ["1", "2", "3", "4", "5"]
    assert [d.frame.id for d in got if d.frame.key == "a"] == ["1", "3", "5"]
    assert not any(delivery.redelivered for delivery in got)
    await member.ack(got)
    assert await member.receive(10, 0) == []
    assert log.ledger().acknowledged == 5
    await member.aclose()


async def test_what_was_acknowledged_out_of_order_does_not_come_again_after_a_close() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say("a", "a", "a", "a")
    got = await member.receive(10, 0)
    await member.ack([got[1], got[3]])
    await member.aclose()
    heir = await joined(log, clock)
    again = await heir.receive(10, 0)
    assert ids(again) == ["1", "3"]
    assert all(delivery.redelivered for delivery in again)
    await heir.ack(again)
    assert log.ledger().acknowledged == 4
    await heir.aclose()


async def test_no_more_is_handed_out_than_the_window_until_the_cursor_moves() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say(*["a"] * 20)
    first = await member.receive(100, 0)
    assert ids(first) == ["1", "2", "3", "4", "5", "6"]
    await member.ack(first[1:])
    assert await member.receive(100, 0) == []
    await member.ack(first[:1])
    assert len(await member.receive(100, 0)) == 6
    await member.aclose()


async def test_a_partition_is_left_only_when_nothing_of_it_is_in_hand() -> None:
    log, clock = ListLog(), ManualClock()
    old = await joined(log, clock)
    log.say(*"abcdefgh")
    in_hand = await old.receive(100, 0)
    young = await joined(log, clock)
    await pass_time(clock, 6)
    assert {cursor.owner for cursor in log.ledger().partitions} == {log.ledger().partitions[0].owner}
    assert await young.receive(10, 0) == []
    await old.ack(in_hand)
    await pass_time(clock, 6)
    log.say(*"abcdefgh")
    shares = [await old.receive(100, 0), await young.receive(100, 0)]
    assert all(shares)
    keys = [{delivery.frame.key for delivery in share} for share in shares]
    assert keys[0] | keys[1] == set("abcdefgh")
    assert not keys[0] & keys[1]
    await old.aclose()
    await young.aclose()


async def test_a_member_that_gives_no_sign_for_a_lease_is_replaced_and_its_late_ack_changes_nothing() -> None:
    log, clock, frozen = ListLog(), ManualClock(), ManualClock()
    sleeper = await joined(log, frozen)
    log.say("a", "a")
    stale = await sleeper.receive(10, 0)
    heir = await joined(log, clock)
    await pass_time(clock, 7)
    assert await heir.receive(10, 0) == []
    await pass_time(clock, 4)
    got = await heir.receive(10, 0)
    assert ids(got) == ["1", "2"]
    assert all(delivery.redelivered for delivery in got)
    await sleeper.ack(stale)
    assert log.ledger().acknowledged == 0
    await heir.ack(got)
    assert log.ledger().acknowledged == 2
    await heir.aclose()
    await sleeper.aclose()


async def test_what_is_said_after_a_member_fell_silent_is_no_repeat() -> None:
    log, clock, frozen = ListLog(), ManualClock(), ManualClock()
    sleeper = await joined(log, frozen)
    log.say("a", "a")
    await sleeper.receive(1, 0)
    heir = await joined(log, clock)
    await pass_time(clock, 11)
    got = await heir.receive(10, 0)
    assert [delivery.redelivered for delivery in got] == [True, True]
    log.say("a", "b")
    new = await heir.receive(10, 0)
    assert [delivery.redelivered for delivery in new] == [False, False]
    await heir.ack([*got, *new])
    await heir.aclose()
    log.say("a", "b")
    last = await joined(log, clock)
    await pass_time(clock, 11)
    assert [delivery.redelivered for delivery in await last.receive(10, 0)] == [False, False]
    await last.aclose()
    await sleeper.aclose()


async def test_whoever_cannot_renew_hands_out_nothing_that_another_may_have() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say("a", "a")
    assert len(await member.receive(1, 0)) == 1
    log.down = True
    await pass_time(clock, 9)
    with pytest.raises(BrokerUnavailable):
        await member.receive(1, 0)
    log.down = False
    assert ids(await member.receive(1, 0)) == ["2"]
    await member.aclose()


async def test_a_member_that_was_stopped_while_it_read_hands_out_nothing() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say("a")
    log.delay = lambda: clock.advance(9.0)  # longer than its lease: another may have taken over meanwhile
    assert await member.receive(1, 0) == []
    log.delay = lambda: None
    assert ids(await member.receive(1, 0)) == ["1"]
    await member.aclose()


async def test_a_seek_makes_late_acknowledgements_void_and_everything_known_a_repeat() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say("a", "a", "a")
    got = await member.receive(10, 0)
    stored = [0] * PARTITIONS
    stored[partition_of(log.frames[0], PARTITIONS)] = 3
    await log.edit("g", "t", lambda ledger: ledger.seek(1, [0] * PARTITIONS, stored))
    await member.ack(got)
    assert log.ledger().acknowledged == 0
    again = await member.receive(10, 0)
    assert ids(again) == ["1", "2", "3"]
    assert all(delivery.redelivered for delivery in again)
    await member.aclose()


async def test_what_is_said_before_a_member_has_heard_of_a_seek_is_no_repeat() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say("a", "a", "a")
    await member.ack(await member.receive(10, 0))
    number = partition_of(log.frames[0], PARTITIONS)
    counts, stored = [0] * PARTITIONS, [0] * PARTITIONS
    counts[number], stored[number] = 2, 3
    await log.edit("g", "t", lambda ledger: ledger.seek(3, counts, stored))
    log.say("a", "a")
    await member._sync()
    got = await member.receive(10, 0)
    assert [(delivery.frame.id, delivery.redelivered) for delivery in got] == [("3", True), ("4", False), ("5", False)]
    await member.aclose()


async def test_what_is_being_given_back_is_handed_out_by_the_next_owner_alone() -> None:
    """One asks what there is, and gives a partition back before the answer comes."""

    class SlowLog(ListLog):
        async def edit(self, group: str, topic: str, edit: Callable[[Ledger], None]) -> Ledger:
            ledger = await super().edit(group, topic, edit)
            if any(cursor.owner is None for cursor in ledger.partitions):
                await given.wait()
            return ledger

    log, clock, given = SlowLog(), ManualClock(), asyncio.Event()
    given.set()
    old = await joined(log, clock)
    log.say(*"abcdefgh")
    await old.ack(await old.receive(100, 0))
    same = ListLog()
    same.ledgers, same.frames = log.ledgers, log.frames
    young = await joined(same, clock)
    log.frames += [Frame(topic="t", id=f"new{n}", key=key, body=b"") for n, key in enumerate("abcdefgh")]
    log.reading.clear()
    receiving = asyncio.create_task(old.receive(100, 0))
    await turns()
    given.clear()
    sharing = asyncio.create_task(old._sync())
    await turns()
    assert None in {cursor.owner for cursor in log.ledger().partitions}
    log.reading.set()
    kept = await receiving
    given.set()
    await sharing
    await young._sync()
    rest = await young.receive(100, 0)
    assert rest
    assert not set(ids(kept)) & set(ids(rest))
    await old.aclose()
    await young.aclose()


async def test_a_receive_leaves_a_renewal_that_is_under_way_to_whoever_does_it() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say("a")
    (before,) = log.ledger().signs.values()
    log.editing.clear()
    renewing = asyncio.create_task(member._sync())
    await turns()
    receiving = asyncio.create_task(member.receive(1, 0))
    await turns()
    log.editing.set()
    await renewing
    assert ids(await receiving) == ["1"]
    assert [*log.ledger().signs.values()] == [before + 1]
    await member.aclose()


async def test_whoever_receives_renews_a_lease_in_good_time_though_its_beat_is_late() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    assert member._beating is not None
    member._beating.cancel()
    member._beating = asyncio.create_task(never())
    (before,) = log.ledger().signs.values()
    clock.advance(LEASE / 3)
    await member.receive(1, 0)
    assert [*log.ledger().signs.values()] == [before]
    clock.advance(LEASE / 3)
    await member.receive(1, 0)
    assert [*log.ledger().signs.values()] == [before + 1]
    await member.aclose()


async def test_an_edit_that_came_too_late_is_made_again_on_the_newer_ledger() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say("a")
    got = await member.receive(1, 0)

    def faster() -> None:
        ledger = log.ledger()
        ledger.signs["other"] = 7
        log.ledgers["g"] = msgspec.json.encode(ledger)

    log.hurdles.append(faster)
    await member.ack(got)
    assert log.ledger().signs["other"] == 7
    assert log.ledger().acknowledged == 1
    await member.aclose()


async def test_a_closed_member_owns_nothing_and_says_so() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    await asyncio.gather(member.aclose(), member.aclose())
    assert log.ledger().signs == {}
    assert {cursor.owner for cursor in log.ledger().partitions} == {None}
    with pytest.raises(BrokerError, match="closed"):
        await member.receive(1, 0)


async def test_an_epoch_that_another_owner_has_is_not_the_members_own() -> None:
    """As after a ledger was put back from a copy: epochs are given again."""
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say("a", "a")
    handed = await member.receive(10, 0)
    ledger = log.ledger()
    for cursor in ledger.partitions:
        cursor.owner = "another"
    log.ledgers["g"] = msgspec.json.encode(ledger)
    await member.ack(handed)
    assert log.ledger().acknowledged == 0
    await member.aclose()


async def test_a_log_that_ends_in_front_of_what_was_read_is_refused() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.say("a", "a", "a")
    await member.ack(await member.receive(10, 0))
    del log.frames[1:]
    log.say("a")
    with pytest.raises(BrokerError, match="put back"):
        await member.receive(10, 0)
    await member.aclose()


async def test_whoever_fails_to_join_leaves_nothing_and_closing_waits_for_no_log() -> None:
    class HalfLog(ListLog):
        async def edit(self, group: str, topic: str, edit: Callable[[Ledger], None]) -> Ledger:
            if topic == "u":
                raise BrokerUnavailable("down")
            return await super().edit(group, topic, edit)

    log, clock = HalfLog(), ManualClock()
    member, members = made(log, clock, "t", "u"), set[GroupMember[ScannedPartition]]()
    with pytest.raises(BrokerUnavailable):
        await member.join(members)
    assert members == set()
    assert log.ledger().signs == {}


async def test_the_end_of_a_members_background_work_is_told() -> None:
    log, clock = ListLog(), ManualClock()
    member = await joined(log, clock)
    log.ledgers["g"] = b"not a ledger"
    await pass_time(clock, 4)
    with pytest.raises(BrokerError, match="subscribe again"):
        await member.receive(1, 0)
    with pytest.raises(BrokerError, match="subscribe again"):
        await member.ack([])


def test_only_the_first_member_says_where_a_group_starts() -> None:
    ledger = Ledger.of(2)
    ledger.begin(5, [3, 1])
    ledger.begin(1, [0, 0])
    assert (ledger.acknowledged, ledger.truncated) == (4, True)


def test_a_silent_member_is_struck_out_by_the_clock_of_whoever_looks() -> None:
    ledger, signs = Ledger.of(2), Signs("me", lease=10.0)
    ledger.signs["other"] = 3
    signs.renew(ledger, 100.0)
    signs.renew(ledger, 110.0)
    assert set(ledger.signs) == {"me", "other"}
    ledger.signs["other"] += 1
    signs.renew(ledger, 115.0)
    signs.renew(ledger, 125.0)
    assert set(ledger.signs) == {"me", "other"}
    signs.renew(ledger, 125.5)
    assert set(ledger.signs) == {"me"}


async def test_a_long_partition_keeps_no_other_waiting() -> None:
    log, clock = ListLog(), ManualClock()
    keys = {partition_of(Frame(topic="t", id="", key=key, body=b""), PARTITIONS): key for key in "abcdefghijklmnop"}
    assert len(keys) == PARTITIONS
    log.say(*[keys[0]] * 40, *[keys[number] for number in range(1, PARTITIONS)])
    member = await joined(log, clock)
    seen: list[str | None] = []
    while len(seen) < len(log.frames):
        received = await member.receive(3, 0)
        assert received
        seen += [delivery.frame.key for delivery in received]
        await member.ack(received)
    assert max(seen.index(key) for key in keys.values()) <= 3 * PARTITIONS
    await member.aclose()
