"""Faults of delivery: twice, changed, out of order, never, too late; and a broker that has a bad day."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.broker import Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock, new_id
from posthouse.errors import BrokerUnavailable, ConfigurationError, DeskError
from posthouse.events import decode_any
from posthouse.stores import open_store
from posthouse.testing import Chaos, ChaosBroker, rehost
from tests.kit.waiting import eventually

from .scene import NOW, calm, crafted, put, restarted, rows, states
from .stores import House, store_url, stores, upgraded, worded

__all__ = ["stores"]

pytestmark = pytest.mark.usefixtures("stores")

shop = Service("shop")
ledger = Service("ledger")
App(ledger, settings=Settings(inbox_retention=1000))


@shop.event("order.changed.v1", key="order")
class OrderChanged(Payload):
    order: str
    number: int


@shop.event("visit.counted.v1")
class VisitCounted(Payload):
    number: int


@shop.event("order_item.added.v1", key="order")
class ItemAdded(Payload):
    order: str
    number: int


failing: set[int] = set()
applied: list[tuple[str, int]] = []


TABLE = "CREATE TABLE IF NOT EXISTS entry ({id}, tenant TEXT, name TEXT, number INTEGER, event_id TEXT)"
ENTER = "INSERT INTO entry (tenant, name, number, event_id) VALUES (?, ?, ?, ?)"


async def tables(tx: Tx) -> None:
    await tx.execute(worded(TABLE))


async def change(event: Event[OrderChanged], tx: Tx) -> None:
    applied.append((event.tenant, event.data.number))
    await tx.execute(worded(ENTER), (event.tenant, event.data.order, event.data.number, event.id))
    if event.data.number in failing:
        raise RuntimeError("not today")


async def visit(event: Event[VisitCounted], tx: Tx) -> None:
    await tx.execute(worded(ENTER), (event.tenant, "visit", event.data.number, event.id))
    if event.data.number in failing:
        raise RuntimeError("not today")


ledger.setup(tables)
ledger.on(OrderChanged)(change)
ledger.on(VisitCounted)(visit)


@pytest.fixture(autouse=True)
def _mended() -> None:
    failing.clear()
    applied.clear()


async def entries(name: str = "o1", service: Service = ledger, tenant: str = "t1") -> list[int]:
    found = await rows(service, "SELECT number FROM entry WHERE name = ? AND tenant = ? ORDER BY id", name, tenant)
    numbers = [int(str(number)) for (number,) in found]
    return sorted(numbers) if name == "visit" else numbers  # visits have no order


def numbered(upto: int, order: str = "o1") -> list[Frame]:
    return [crafted(OrderChanged(order=order, number=n), sequence=n) for n in range(1, upto + 1)]


# 26: the same delivery again.


@pytest.mark.parametrize("times", [1, 2, 7, 50])
async def test_a_frame_that_comes_again_after_it_was_applied_changes_nothing(times: int) -> None:
    async with House(shop, ledger) as harness:
        for number in range(1, 6):
            await harness.publish(OrderChanged(order="o1", number=number))
            await harness.publish(VisitCounted(number=number))
        await harness.settled()
        stored = [one.frame for log in harness.broker.log.topics.values() for one in log]
        assert len(stored) == 10
        for _ in range(times):
            await put(harness, *stored)
        await harness.settled()
        assert await entries() == [1, 2, 3, 4, 5]
        assert sorted(map(str, await entries("visit"))) == ["1", "2", "3", "4", "5"]
        assert await harness.held(ledger) == []


async def test_fifty_copies_side_by_side_are_one_effect() -> None:
    async with House(ledger) as harness:
        visits = [crafted(VisitCounted(number=n)) for n in range(1, 4)]
        await put(harness, *[frame for frame in numbered(3) + visits for _ in range(50)])
        await calm(harness)
        assert await entries() == [1, 2, 3]
        assert await entries("visit") == [1, 2, 3]
        assert await harness.held(ledger) == []


async def test_copies_handed_to_several_members_of_a_group_at_once_are_one_effect(tmp_path: Path) -> None:
    """Each copy has a partition of its own, so that members on one database file race for the same event."""
    members = [Service("ledger") for _ in range(4)]
    for member in members:
        App(
            member,
            store=store_url("ledger", f"sqlite:///{tmp_path / 'ledger.db'}?synchronous=NORMAL"),
            broker=f"embedded:///{tmp_path / 'log.db'}?synchronous=NORMAL&partitions=8&single_host=true",
        )
        member.setup(tables)
        member.on(OrderChanged)(change)
        member.on(VisitCounted)(visit)
    keys, numbers, copies = 6, 10, 8
    frames = [
        crafted(OrderChanged(order=f"o{k}", number=n), id=f"{k}-{n}", sequence=n, partition=f"p{copy}")
        for n in range(1, numbers + 1)
        for k in range(keys)
        for copy in range(copies)
    ]
    frames += [crafted(VisitCounted(number=n), id=f"v{n}", partition=f"p{n + c}") for n in range(40) for c in range(8)]
    random.Random(26).shuffle(frames)
    stop = asyncio.Event()
    first = members[0]
    await upgraded(first)
    for member in members:
        await app_of(member).opened.prepare()
    tasks = [asyncio.create_task(member.run(stop=stop)) for member in members]
    try:
        for start in range(0, len(frames), 100):
            verdicts = await app_of(first).broker.publish(frames[start : start + 100])
            assert all(verdict.accepted for verdict in verdicts)

        async def done() -> bool:
            topics = app_of(first).opened.topology().groups["ledger"]
            progress = await app_of(first).broker.progress("ledger", topics)
            counts = await app_of(first).store.counts()
            return not any(p.pending for p in progress.values()) and not counts.held

        await eventually(done, "every copy dealt with", within=90)
        for k in range(keys):
            assert await entries(f"o{k}", first) == list(range(1, numbers + 1))
        assert sorted(map(int, map(str, await entries("visit", first)))) == list(range(40))
        [(distinct, every)] = await rows(first, "SELECT count(DISTINCT event_id), count(*) FROM entry")
        assert distinct == every == keys * numbers + 40
    finally:
        stop.set()
        await asyncio.gather(*tasks)
        for member in members:
            await member.aclose()


async def test_a_frame_that_was_handed_out_and_never_acknowledged_is_held_first_with_that_run_counted() -> None:
    async with House(ledger) as harness:
        failing.update((1, 2))
        await put(harness, crafted(OrderChanged(order="o1", number=1), sequence=1), crafted(VisitCounted(number=2)))
        await calm(harness)
        async with app_of(ledger).store.begin() as tx:  # as if the process had died before it could write anything down
            await tx.execute(worded("DELETE FROM posthouse_held", "ledger"))
            await tx.execute(worded("DELETE FROM posthouse_head", "ledger"))
        for topic in ("shop.order", "shop.visit"):
            await harness.broker.seek("ledger", topic, position=0)
        await calm(harness)
        assert [held.attempts for held in await harness.held(ledger)] == [2, 2], "one that may have been, one that was"
        failing.clear()
        harness.clock.advance(21)
        await calm(harness)
        assert (await entries(), await entries("visit")) == ([1], [2])


# 27: the same id with another content.


async def test_an_ordered_event_under_a_known_number_and_id_but_changed_is_set_aside_with_an_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with House(ledger) as harness:
        await put(harness, crafted(OrderChanged(order="o1", number=1), id="a", sequence=1))
        await calm(harness)
        with caplog.at_level(logging.ERROR):
            await put(harness, crafted(OrderChanged(order="o1", number=666), id="a", sequence=1))
            await calm(harness)
        assert await entries() == [1]
        [aside] = await harness.held(ledger)
        assert (aside.state, aside.entry.event_id) == ("quarantined", "a")
        assert "fork" in aside.reason
        assert any(record.levelno == logging.ERROR and "quarantined" in record.message for record in caplog.records)
        await put(harness, crafted(OrderChanged(order="o1", number=2), id="b", sequence=2))
        await calm(harness)
        assert await entries() == [1, 2], "a fork keeps nobody waiting"
        letters = harness.broker.log.topics["shop.order.dlq"]
        assert [letter.frame.id for letter in letters] == ["a"]


async def test_another_event_under_a_number_that_is_taken_is_set_aside() -> None:
    async with House(ledger) as harness:
        await put(harness, crafted(OrderChanged(order="o1", number=1), id="a", sequence=1))
        await calm(harness)
        await put(harness, crafted(OrderChanged(order="o1", number=666), id="z", sequence=1))
        await calm(harness)
        assert await entries() == [1]
        assert states(await harness.held(ledger)) == ["quarantined"]


async def test_another_event_under_a_number_that_is_held_is_set_aside_and_the_first_is_applied() -> None:
    async with House(ledger) as harness:
        failing.add(1)
        await put(harness, crafted(OrderChanged(order="o1", number=1), id="a", sequence=1))
        await calm(harness)
        await put(harness, crafted(OrderChanged(order="o1", number=666), id="z", sequence=1))
        await calm(harness)
        assert states(await harness.held(ledger)) == ["retrying", "quarantined"]
        failing.clear()
        harness.clock.advance(11)
        await calm(harness)
        assert await entries() == [1]


async def test_an_unordered_event_with_a_known_id_but_changed_is_set_aside_with_an_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with House(ledger) as harness:
        await put(harness, crafted(VisitCounted(number=1), id="v"))
        await calm(harness)
        with caplog.at_level(logging.ERROR):
            await put(harness, crafted(VisitCounted(number=666), id="v"), crafted(VisitCounted(number=2), id="w"))
            await calm(harness)
        assert await entries("visit") == [1, 2]
        assert [(held.state, held.entry.event_id) for held in await harness.held(ledger)] == [("quarantined", "v")]
        assert any("quarantined" in record.message for record in caplog.records)


async def test_an_unordered_event_that_is_held_is_not_overtaken_by_a_changed_copy() -> None:
    async with House(ledger) as harness:
        failing.add(1)
        await put(harness, crafted(VisitCounted(number=1), id="v"))
        await calm(harness)
        assert states(await harness.held(ledger)) == ["retrying"]
        await put(harness, crafted(VisitCounted(number=666), id="v"))
        await calm(harness)
        failing.clear()
        harness.clock.advance(11)
        await calm(harness)
        assert await entries("visit") == [1]
        [other] = await harness.held(ledger)
        assert (other.state, other.reason.partition(":")[0]) == ("quarantined", "fork"), "it is kept beside, and seen"


async def test_copies_of_a_dead_unordered_event_do_not_run_it_again() -> None:
    async with House(shop, ledger) as harness:
        failing.add(1)
        await harness.publish(VisitCounted(number=1))
        await harness.settled()
        for _ in range(8):
            await harness.advance(600)
        assert states(await harness.held(ledger)) == ["dead"]
        failing.clear()
        await put(harness, *[one.frame for one in harness.broker.log.topics["shop.visit"]] * 3)
        await harness.settled()
        assert await entries("visit") == []
        [dead] = await harness.held(ledger)
        await ledger.held.retry(dead.id)
        await harness.advance(1)
        assert await entries("visit") == [1]


async def test_one_tenant_cannot_take_the_event_id_of_another() -> None:
    async with House(ledger) as harness:
        await put(
            harness, crafted(VisitCounted(number=1), id="v"), crafted(VisitCounted(number=2), id="v", tenant="t2")
        )
        await put(harness, crafted(OrderChanged(order="o1", number=1), id="a", sequence=1))
        await put(harness, crafted(OrderChanged(order="o1", number=7), id="a", sequence=1, tenant="t2"))
        await calm(harness)
        assert (await entries("visit"), await entries("visit", tenant="t2")) == ([1], [2])
        assert (await entries(), await entries(tenant="t2")) == ([1], [7])
        assert await harness.held(ledger) == []


# 53: whose envelope lies about its tenant. Without signatures nobody can tell; what it can do has bounds.


async def test_a_forged_event_takes_no_number_of_another_tenant_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    async with House(ledger) as harness:
        await put(harness, *numbered(2))
        await calm(harness)
        forged = crafted(
            OrderChanged(order="o1", number=666), id="forged", sequence=3
        )  # of t2, which says that it is t1
        genuine = crafted(OrderChanged(order="o1", number=3), id="genuine", sequence=3)
        await put(harness, forged, crafted(OrderChanged(order="o1", number=1), sequence=1, tenant="t2"))
        await calm(harness)
        await put(harness, genuine, crafted(OrderChanged(order="o1", number=4), sequence=4))
        await calm(harness)
        assert await entries() == [1, 2, 666, 4], "the first one stands"
        assert await entries(tenant="t2") == [1]
        (held,) = await harness.held(ledger)
        assert (held.entry.event_id, held.state) == ("genuine", "quarantined")
        assert caplog.text.count("fork: its number or its id belongs to another event") == 1


@pytest.mark.parametrize("sequence", [4, 1_000_000_000])
async def test_a_forged_event_ahead_of_its_number_waits_and_keeps_the_tenants_own_from_nothing(sequence: int) -> None:
    async with House(ledger) as harness:
        await put(harness, *numbered(2))
        await put(harness, crafted(OrderChanged(order="o1", number=666), id="forged", sequence=sequence))
        await calm(harness)
        assert await entries() == [1, 2]
        await put(harness, crafted(OrderChanged(order="o1", number=3), sequence=3))
        await calm(harness)
        assert (await entries())[:3] == [1, 2, 3]
        assert await entries(tenant="t2") == []


# 28: out of order.


@pytest.mark.parametrize(
    "arrivals",
    [
        pytest.param([1, 3, 2, 4, 5], id="two swapped"),
        pytest.param([3, 2, 1, 4, 5], id="the first ones reversed"),
        pytest.param([5, 4, 3, 2, 1], id="all reversed"),
        pytest.param([1, 3, 4, 5, 2], id="one delayed"),
        pytest.param([2, 3, 4, 5, 1], id="the very first delayed"),
        pytest.param([1, 4, 3, 5, 2], id="two gaps in one"),
        pytest.param([5, 5, 3, 3, 1, 1, 4, 4, 2, 2], id="reversed and twice"),
    ],
)
async def test_events_that_arrive_out_of_order_are_applied_in_order(arrivals: list[int]) -> None:
    frames = numbered(5)
    async with House(ledger) as harness:
        for number in arrivals:
            await put(harness, frames[number - 1])
            await calm(harness)
        assert await entries() == [1, 2, 3, 4, 5]
        assert await harness.held(ledger) == []


@pytest.mark.parametrize("seed", range(10))
async def test_a_shuffled_batch_of_several_keys_is_applied_in_order_per_key(seed: int) -> None:
    frames = [frame for order in ("o1", "o2", "o3") for frame in numbered(12, order)]
    random.Random(seed).shuffle(frames)
    async with House(ledger) as harness:
        await put(harness, *frames)
        await calm(harness)
        for order in ("o1", "o2", "o3"):
            assert await entries(order) == list(range(1, 13))


async def test_a_delayed_event_holds_its_followers_and_no_other_key_until_it_comes() -> None:
    async with House(ledger) as harness:
        first, late, third, fourth = numbered(4)
        await put(harness, first, third, fourth, *numbered(2, "o2"))
        await calm(harness)
        assert (await entries(), await entries("o2")) == ([1], [1, 2])
        assert states(await harness.held(ledger)) == ["gap", "gap"]
        harness.clock.advance(30)
        await calm(harness)
        assert await entries() == [1]
        await put(harness, late)
        await calm(harness)
        assert await entries() == [1, 2, 3, 4]
        assert await harness.held(ledger) == []


async def test_an_event_that_fills_a_gap_and_fails_is_still_applied_before_those_that_came_earlier() -> None:
    async with House(ledger) as harness:
        first, late, third, fourth = numbered(4)
        await put(harness, first, third, fourth)
        await calm(harness)
        failing.add(2)
        await put(harness, late)
        await calm(harness)
        assert await entries() == [1]
        failing.clear()
        harness.clock.advance(11)
        await calm(harness)
        assert await entries() == [1, 2, 3, 4]
        assert await harness.held(ledger) == []


# 29: a number that never comes.


async def test_a_number_that_never_comes_parks_its_key_with_a_named_alarm_until_it_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with House(ledger) as harness:
        frames = numbered(6)
        await put(harness, *[frame for n, frame in enumerate(frames, 1) if n != 3], *numbered(3, "o2"))
        await calm(harness)
        with caplog.at_level(logging.ERROR):
            harness.clock.advance(59)
            await calm(harness)
            assert caplog.records == []
            harness.clock.advance(2)
            await eventually(lambda: _alarms(caplog, 3), "the alarm")
            for _ in range(5):
                harness.clock.advance(2)
                await calm(harness)
        [alarm, *more] = [record.message for record in caplog.records if "never came" in record.message]
        assert len(more) == 2, "each parked event is named once"
        assert "key o1 of shop.order" in alarm
        assert (await entries(), await entries("o2")) == ([1, 2], [1, 2, 3])
        waiting = await harness.held(ledger)
        assert states(waiting) == ["gap"] * 3
        await ledger.held.release(waiting[-1].id)
        harness.clock.advance(1)
        await calm(harness)
        assert await entries() == [1, 2, 4, 5, 6]
        assert await harness.held(ledger) == []
        await put(harness, frames[2])
        await calm(harness)
        assert await entries() == [1, 2, 4, 5, 6], "a number that was given up is not applied late, out of order"


async def _alarms(caplog: pytest.LogCaptureFixture, least: int) -> bool:
    return len([record for record in caplog.records if "never came" in record.message]) >= least


async def test_an_event_that_lies_about_its_number_is_not_released_by_mistake_and_can_be_set_aside() -> None:
    """To release it would give up all numbers up to its own, and with them every true event that is still to come."""
    async with House(ledger) as harness:
        frames = numbered(5)
        liar = crafted(OrderChanged(order="o1", number=99), sequence=2**63 - 2)
        await put(harness, *frames[:3], liar)
        await calm(harness)
        [waiting] = await harness.held(ledger)
        assert waiting.state == "gap"
        with pytest.raises(DeskError, match="gives up 9,223,372,036,854,775,802 numbers"):
            await ledger.held.release(waiting.id)
        assert (await ledger.held.quarantine(waiting.id)).state == "quarantined"
        await put(harness, *frames[3:])
        await calm(harness)
        assert await entries() == [1, 2, 3, 4, 5]
        assert states(await harness.held(ledger)) == ["quarantined"]


async def test_a_number_lost_behind_a_failing_event_is_alarmed_and_can_be_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with House(ledger) as harness:
        frames = numbered(4)
        failing.add(1)
        await put(harness, frames[0])
        await calm(harness)
        await put(harness, frames[2], frames[3])
        await calm(harness)
        failing.clear()
        harness.clock.advance(11)
        await calm(harness)
        assert await entries() == [1]
        with caplog.at_level(logging.ERROR):
            harness.clock.advance(61)
            await eventually(lambda: _alarms(caplog, 1), "the alarm")
        waiting = await harness.held(ledger)
        await ledger.held.release(waiting[0].id)
        harness.clock.advance(1)
        await calm(harness)
        assert await entries() == [1, 3, 4]


async def test_giving_up_several_missing_numbers_still_adds_up() -> None:
    async with House(shop, ledger) as harness:
        lossy = _Losing(harness.broker, {2, 3, 4})
        harness._runtimes[0].relay._broker = lossy  # type: ignore[assignment]
        for number in range(1, 7):
            await harness.publish(OrderChanged(order="o1", number=number))
        await calm(harness)
        assert await entries() == [1]
        await ledger.held.release((await harness.held(ledger))[0].id)
        figures = await harness.advance(1)
        assert await entries() == [1, 5, 6]
        assert [(line.committed, line.applied, line.skipped) for line in figures.lines if line.committed] == [(6, 3, 3)]


class _Losing:
    """A broker that says yes and forgets."""

    def __init__(self, inner: MemoryBroker, lost: set[int]) -> None:
        self._inner = inner
        self._lost = lost

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        kept = [frame for frame in frames if decode_any(frame.headers, frame.body).sequence not in self._lost]
        await self._inner.publish(kept)
        return [Verdict(True) for _ in frames]


def drawn(seconds: float) -> str:
    """A new UUIDv7 of a moment."""
    milliseconds = int(seconds * 1000)
    return f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}{new_id()[13:]}"


async def test_facts_of_a_store_that_was_put_back_are_kept_and_alarmed_and_no_duplicate_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A copy of the disk gives numbers again, under the same lineage: they are new facts, and look like duplicates."""
    async with House(ledger) as harness:
        said = [
            crafted(OrderChanged(order="o1", number=n), id=drawn(NOW + n), sequence=n, at=NOW + n) for n in range(1, 9)
        ]
        await put(harness, *said)
        await calm(harness)
        again = [
            crafted(OrderChanged(order="o1", number=100 + n), id=drawn(NOW + 60 + n), sequence=n, at=NOW + 60)
            for n in range(5, 9)
        ]
        await put(harness, *again, *said, *again)
        await put(harness, crafted(OrderChanged(order="o1", number=9), id=drawn(NOW + 90), sequence=9, at=NOW + 90))
        await calm(harness)
        assert await entries() == list(range(1, 10)), "the key goes on"
        held = await harness.held(ledger)
        assert sorted(one.entry.event_id for one in held) == sorted(frame.id for frame in again)
        assert {one.state for one in held} == {"quarantined"}
        assert caplog.text.count("fork: its number or its id belongs to another event") == 4


@pytest.mark.parametrize("together", [True, False])
async def test_facts_under_numbers_given_again_are_set_aside_also_when_later_ones_of_their_lineage_came_first(
    together: bool,
) -> None:
    """The broker lost or reordered them: where the newer lineage took the key over, it has not been past them."""
    async with House(ledger) as harness:
        said = [crafted(OrderChanged(order="o1", number=n), sequence=n) for n in (1, 2, 3)]
        later = [crafted(OrderChanged(order="o1", number=n), sequence=n, lineage=2) for n in (4, 5)]
        again = [crafted(OrderChanged(order="o1", number=100 + n), sequence=n, lineage=2) for n in (2, 3)]
        late = crafted(OrderChanged(order="o1", number=104), sequence=4)  # said by the server that was lost
        await put(harness, *said)
        await calm(harness)
        for share in [[*later, *again, late]] if together else [[frame] for frame in (*later, *again, late)]:
            await put(harness, *share)
            await calm(harness)
        await put(harness, *said, *later, *again, late)
        await calm(harness)
        assert await entries() == [1, 2, 3, 4, 5]
        held = await harness.held(ledger)
        assert sorted(one.entry.event_id for one in held) == sorted(frame.id for frame in (*again, late))
        assert {(one.state, one.reason[:4]) for one in held} == {("quarantined", "fork")}
        for one in held[:2]:
            await ledger.held.retry(one.id, force=True)
        harness.clock.move_to(harness.clock.now() + 1)  # somebody looks for what operators did
        await calm(harness)
        applied = await entries()
        assert len(applied) == 7
        await put(harness, *said, *later, *again, late)
        await calm(harness)
        assert await entries() == applied, "what an operator had run is not set aside, nor run, a second time"
        assert [one.id for one in await harness.held(ledger)] == [held[2].id]


@pytest.mark.parametrize("together", [True, False])
async def test_what_was_lost_with_a_server_makes_room_for_what_its_successor_says(together: bool) -> None:
    """The consumer has events in hand whose commits a standby never got. They wait for a number that the standby gives to
    others, as it will theirs: it is they who are set aside."""
    async with House(ledger) as harness:
        lost = [crafted(OrderChanged(order="o1", number=100 + n), sequence=n) for n in (4, 5, 6)]
        said = [crafted(OrderChanged(order="o1", number=n), sequence=n, lineage=2) for n in (2, 3, 4, 5)]
        frames = [crafted(OrderChanged(order="o1", number=1), sequence=1), *lost, *said]
        for share in [frames] if together else [[frame] for frame in frames]:
            await put(harness, *share)
            if not together:
                await calm(harness)
        await calm(harness)
        assert await entries() == [1, 2, 3, 4, 5]
        held = await harness.held(ledger)
        assert sorted(one.entry.event_id for one in held) == sorted(frame.id for frame in lost)
        assert all(one.reason.startswith("fork") for one in held)
        await put(harness, *lost, crafted(OrderChanged(order="o1", number=6), sequence=6, lineage=2))
        await calm(harness)
        assert await entries() == [1, 2, 3, 4, 5, 6]


async def test_an_event_that_was_lost_while_it_was_retried_makes_room_too() -> None:
    failing.add(-1)
    async with House(ledger) as harness:
        lost = crafted(OrderChanged(order="o1", number=-1), sequence=2)
        said = [crafted(OrderChanged(order="o1", number=n), sequence=n, lineage=2) for n in (2, 3)]
        await put(harness, crafted(OrderChanged(order="o1", number=1), sequence=1), lost, *said)
        await calm(harness)
        assert await entries() == [1, 2, 3]
        assert [one.entry.event_id for one in await harness.held(ledger)] == [lost.id]


# 47: the inbox was purged before a late redelivery.


async def test_a_repeat_is_dropped_though_its_id_is_hours_newer_than_that_of_a_later_number() -> None:
    """Ids are drawn when a fact is said, numbers at the commit: of a transaction that stays open for hours, or a timer."""
    hours = (0.0, 5.0, 3.0, 1.0)
    first = [
        crafted(OrderChanged(order="o1", number=n), id=drawn(NOW + 3600 * hour), sequence=n)
        for n, hour in enumerate(hours, 1)
    ]
    async with House(ledger) as harness:
        await put(harness, *first)
        await calm(harness)
        assert await entries() == [1, 2, 3, 4]
        await put(harness, *first)
        await calm(harness)
        assert await entries() == [1, 2, 3, 4]
        assert await harness.held(ledger) == []
        reused = crafted(OrderChanged(order="o1", number=9), id=drawn(NOW + 5 * 3600 + 0.001), sequence=3)
        await put(harness, reused)
        await calm(harness)
        assert states(await harness.held(ledger)) == ["quarantined"]


async def test_an_unordered_event_older_than_the_inbox_remembers_is_set_aside_and_not_applied() -> None:
    async with House(ledger) as harness:
        old = [crafted(VisitCounted(number=n), id=f"v{n}") for n in range(3)]
        ordered = numbered(2)
        await put(harness, *old, *ordered)
        await calm(harness)
        harness.clock.advance(2000)
        forgotten = "SELECT count(*) FROM posthouse_inbox"

        async def purged() -> bool:
            return await rows(ledger, forgotten) == [(0,)]

        await eventually(purged, "the purge")
        await put(harness, *old, *ordered)
        await put(harness, crafted(VisitCounted(number=9), at=NOW + 2000))
        await calm(harness)
        assert await entries("visit") == [0, 1, 2, 9]
        assert await entries() == [1, 2]
        assert states(await harness.held(ledger)) == ["quarantined"] * 3
        assert all("older than the inbox remembers" in held.reason for held in await harness.held(ledger))


@pytest.mark.parametrize("ahead", [3600.0, 100_000.0, -900.0])
async def test_an_event_with_a_wrong_date_is_applied_once_though_the_inbox_was_purged(ahead: float) -> None:
    """Its age is that of its storage. Its copies come after each of several purges, redelivered and stored anew."""
    async with House(ledger) as harness:
        wrong = [crafted(VisitCounted(number=n), id=f"v{n}", at=NOW + ahead) for n in range(3)]
        await put(harness, *wrong)
        await calm(harness)
        rounds = (1, 2, 3, 27, 28, 29)
        for before, hours in zip((0, *rounds), rounds, strict=False):
            harness.clock.advance(3600 * (hours - before))
            await harness._runtimes[0].tidy()
            await harness.broker.seek("ledger", "shop.visit", position=0)
            await put(harness, *wrong[: 1 + hours % 3], crafted(VisitCounted(number=10 + hours), at=NOW + hours * 3600))
            await calm(harness)
        assert await entries("visit") == [0, 1, 2, *(10 + hours for hours in rounds)]
        assert {held.entry.event_id for held in await harness.held(ledger)} >= {"v0", "v1", "v2"}


async def test_an_event_of_the_far_future_makes_no_young_one_look_old() -> None:
    async with House(ledger) as harness:
        await put(harness, crafted(VisitCounted(number=1), id="far", at=NOW + 10**10))
        await calm(harness)
        for day in range(1, 70, 12):
            harness.clock.advance(12 * 86_400)
            await harness._runtimes[0].tidy()
            await put(harness, crafted(VisitCounted(number=1 + day), at=harness.clock.now()))
            await calm(harness)
        assert await entries("visit") == [1, *(1 + day for day in range(1, 70, 12))]
        assert await rows(ledger, "SELECT count(*) FROM posthouse_inbox WHERE event_id = 'far'") == [(0,)]


async def test_a_new_consumer_reads_history_that_is_older_than_any_inbox() -> None:
    young = Service("young")
    App(young, settings=Settings(inbox_retention=1000))
    young.setup(tables)
    young.on(VisitCounted)(visit)
    young.on(OrderChanged)(change)
    clock = ManualClock(NOW + 400 * 86_400)
    broker = MemoryBroker(clock=clock)
    store = open_store(store_url("young", "sqlite://"), clock=clock)
    rehost(young, store=store, broker=broker, clock=clock)
    await upgraded(young)
    await app_of(young).opened.prepare()
    await broker.publish([crafted(VisitCounted(number=n)) for n in range(20)] + numbered(5))
    stop = asyncio.Event()
    running = asyncio.create_task(young.run(stop=stop))
    try:

        async def read() -> bool:
            return len(await entries("visit", young)) == 20 and len(await entries(service=young)) == 5

        await eventually(read, "the history read")
        assert (await store.counts()).held == {}
    finally:
        stop.set()
        await running
        await young.aclose()


async def test_a_service_whose_inbox_forgets_too_early_does_not_start_and_says_what_to_change() -> None:
    hasty = Service("hasty")
    App(hasty, settings=Settings(inbox_retention=600))
    hasty.on(VisitCounted)(visit)
    with pytest.raises(ConfigurationError) as refused:
        async with House(hasty):
            pass
    assert "630 s" in str(refused.value)
    assert "remembers only 600 s" in str(refused.value)
    assert "raise inbox_retention, or shorten the retries" in str(refused.value)


async def test_the_brokers_own_redelivery_counts_towards_what_the_inbox_must_remember(tmp_path: Path) -> None:
    week = 7 * 86_400
    hasty = Service("hasty")
    App(
        hasty,
        store=f"sqlite:///{tmp_path / 'hasty.db'}",
        broker=f"embedded:///{tmp_path / 'log.db'}?retention={week}",
        settings=Settings(inbox_retention=week + 629),
    )
    hasty.on(VisitCounted)(visit)
    assert app_of(hasty).broker.sheet.redelivery_s == week
    with pytest.raises(ConfigurationError, match="604,800 s by the broker"):
        await app_of(hasty).opened.prepare()
    await hasty.aclose()


# A bad day.

STORM = Chaos(lose_answer=0.15, unreachable=0.1, refuse=0.03, duplicate=0.3, shuffle=0.5, lose_ack=0.3)


class Storm(ChaosBroker):
    """Counts what went wrong on the way in, so that no test can pass in fair weather."""

    troubles = 0

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        try:
            verdicts = await super().publish(frames)
        except BrokerUnavailable:
            self.troubles += 1
            raise
        self.troubles += sum(not verdict.accepted for verdict in verdicts)
        return verdicts


@pytest.mark.parametrize("seed", range(8))
async def test_on_a_bad_day_everything_is_applied_once_and_in_order(seed: int, stores: str) -> None:
    dice, least = random.Random(seed), 80 if stores == "postgres" else 240
    harness = House(shop, ledger)
    storm = Storm(harness.broker, STORM, seed)
    memory, harness.broker = harness.broker, storm  # type: ignore[assignment]
    said: dict[tuple[str, str], list[int]] = defaultdict(list)
    async with harness:
        number = 0
        while number < least or storm.troubles < 5:
            number += 1
            tenant, name = f"t{dice.randrange(3)}", dice.choice(["o1", "o2", "o3", "o4", "visit"])
            payload = VisitCounted(number=number) if name == "visit" else OrderChanged(order=name, number=number)
            async with shop.transaction(tenant) as tx:
                tx.publish(payload)
                said[tenant, name].append(number)
            with pytest.raises(ZeroDivisionError):
                async with shop.transaction(tenant) as tx:
                    tx.publish(VisitCounted(number=-1 // (number - number)))
            if dice.random() < 0.1:
                harness.clock.advance(dice.random() * 20)
                await asyncio.sleep(0.001)
            if dice.random() < 0.02:
                await restarted(harness)
        storm._chaos = Chaos()
        await restarted(harness)
        for _ in range(40):
            harness.clock.advance(20)
            await asyncio.sleep(0.002)
        harness.broker = memory
        figures = await harness.settled()
        assert sum(map(len, said.values())) == number >= least
        for (tenant, name), numbers in said.items():
            found = await entries(name, tenant=tenant)
            assert (sorted(map(int, map(str, found))) if name == "visit" else found) == numbers
        assert await harness.held(ledger) == []
        assert all(line.difference == 0 for line in figures.lines)
        assert sum(line.applied for line in figures.lines) == number


# 49: one consumer goes back.


async def test_a_consumer_that_goes_back_has_nothing_applied_twice_and_leaves_all_others_alone() -> None:
    audit = Service("audit")
    heard: list[tuple[str, int]] = []

    async def note(event: Event[OrderChanged], tx: Tx) -> None:
        heard.append((event.data.order, event.data.number))

    audit.on(OrderChanged)(note)
    audit.on(OrderChanged, consumer="second")(note)
    async with House(shop, ledger, audit) as harness:
        for number in range(1, 31):
            await harness.publish(OrderChanged(order=f"o{number % 3}", number=number))
        await harness.settled()
        assert (len(applied), len(heard)) == (30, 60)
        before = harness.broker.log.readers.copy()
        topic = "shop.order"
        await harness.broker.seek("ledger", topic, position=0)
        assert (await harness.broker.progress("ledger", [topic]))[topic].pending == 30
        moved = {place for place, reader in harness.broker.log.readers.items() if before[place] is not reader}
        assert moved == {("ledger", topic)}
        await harness.publish(OrderChanged(order="o1", number=31))
        await harness.settled()
        assert [number for _, number in applied[30:]] == [31]
        assert [number for _, number in heard[60:]] == [31, 31]
        assert len(await entries("o1")) == 11
        assert [await harness.held(service) for service in (ledger, audit)] == [[], []]
        assert all(line.difference == 0 for line in (await harness.settled()).lines)


# 57, in one process: turns.


async def noisy(before: int, after: int) -> int:
    """How many of the noisy tenant's events were applied before the only one of the quiet tenant."""
    harness = House(ledger)
    await harness.broker.ensure(app_of(ledger).opened.topology())
    frames = [crafted(OrderChanged(order=f"n{n}", number=n), tenant="noisy", sequence=1) for n in range(before + after)]
    frames.insert(before, crafted(OrderChanged(order="q", number=-1), tenant="quiet", sequence=1))
    await put(harness, *frames)
    async with harness:
        await calm(harness)
        assert len(applied) == before + after + 1
        return applied.index(("quiet", -1))


async def test_a_quiet_tenant_within_the_window_waits_for_one_event_of_a_noisy_one() -> None:
    side_by_side = (
        90 if store_url("ledger", "") else 2
    )  # on a server others commit while its own transaction is at work
    assert await noisy(900, 1100) <= side_by_side


async def test_a_quiet_tenant_behind_thousands_does_not_wait_for_all_of_them() -> None:
    """It is seen once it enters the window of 1,000, which moves by halves, and is then next but one."""
    assert await noisy(2500, 0) <= 2000 + 100  # acknowledgements, which move the window, go out by the hundred
