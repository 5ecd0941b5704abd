"""Faults on the way out: too large, refused, unreachable, answered into the void. A stuck key stops itself and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

import msgspec
import pytest

from posthouse import App, Event, Payload, RelaySettings, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.broker import Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import Clock, ManualClock
from posthouse.errors import BrokerUnavailable, EventTooLarge
from posthouse.events import decode_any
from posthouse.sending import Relay
from posthouse.stores import open_store
from posthouse.testing import Harness, rehost
from tests.kit.waiting import eventually

from .scene import calm

MIB = 1024 * 1024
SETTINGS = RelaySettings(
    first_delay=1.0, last_delay=8.0, stuck_delay=60.0, quarantine_attempts=5, quarantine_after=120.0, idle=0.05
)

plant = Service("plant")
App(plant, settings=Settings(relay=SETTINGS))


@plant.event("thing.made.v1", key="key")
class ThingMade(Payload):
    key: str
    number: int = 0
    text: str = ""


@plant.event("other.made.v1", key="key")
class OtherMade(Payload):
    key: str
    number: int = 0


@plant.event("view.seen.v1")
class ViewSeen(Payload):
    number: int = 0


heard: list[tuple[str, int]] = []


@plant.on(ThingMade)
async def hear(event: Event[ThingMade], tx: Tx) -> None:
    heard.append((event.data.key, event.data.number))


class PickyBroker(MemoryBroker):
    """Refuses what it is told to refuse, with all that follows of a key in the same call."""

    def __init__(self, *, clock: Clock, max_bytes: int | None = None) -> None:
        super().__init__(clock=clock)
        if max_bytes is not None:
            self.sheet = msgspec.structs.replace(self.sheet, max_bytes=max_bytes)
        self.refuses: Callable[[Frame], Verdict | None] = lambda frame: None
        self.away = False
        self.mute = False
        self.calls = 0

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        self.calls += 1
        if self.away:
            raise BrokerUnavailable("away")
        verdicts: dict[int, Verdict | None] = {}
        lines: set[tuple[str, str]] = set()
        for frame in frames:
            verdict = self.refuses(frame)
            if frame.key is not None and (frame.topic, frame.key) in lines:
                verdict = Verdict(False, "behind a refused one")
            elif frame.key is not None and verdict is not None:
                lines.add((frame.topic, frame.key))
            verdicts[id(frame)] = verdict
        stored = iter(await super().publish([frame for frame in frames if verdicts[id(frame)] is None]))
        if self.mute:
            raise BrokerUnavailable("the answer was lost")
        return [verdicts[id(frame)] or next(stored) for frame in frames]

    def stored(self, topic: str = "plant.thing") -> list[tuple[str | None, int]]:
        events = [decode_any(one.frame.headers, one.frame.body) for one in self.log.topics[topic]]
        return [(event.key, int(msgspec.json.decode(event.data)["number"])) for event in events]


class Bench(NamedTuple):
    """A relay in hand: each step is taken by the test."""

    relay: Relay
    broker: PickyBroker
    clock: ManualClock

    async def say(self, *payloads: object, tenant: str = "t1") -> None:
        async with plant.transaction(tenant) as tx:
            for payload in payloads:
                tx.publish(payload)

    async def drain(self) -> None:
        for _ in range(50):
            if not await self.relay.step():
                return
        raise AssertionError("the relay never comes to rest")

    async def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.drain()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock = ManualClock()
    broker = PickyBroker(clock=clock)
    before = rehost(plant, store=open_store("sqlite://", clock=clock), broker=broker, clock=clock)
    await app_of(plant).opened.prepare()
    yield Bench(Relay(app_of(plant).store, broker, clock, SETTINGS), broker, clock)
    await plant.aclose()
    plant.hosted_by(before)


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()


def made(key: str, *numbers: int) -> list[ThingMade]:
    return [ThingMade(key=key, number=number) for number in numbers]


# 36: too large.


async def test_a_payload_of_ten_megabytes_is_refused_at_publish_and_the_shard_goes_on() -> None:
    async with Harness(plant) as harness:
        with pytest.raises(EventTooLarge) as refused:
            await harness.publish(ThingMade(key="big", text="x" * 10 * MIB))
        assert refused.value.size > 10 * MIB
        assert refused.value.limit == 256 * 1024
        assert "plant.thing.made.v1" in str(refused.value)
        assert "262,144" in str(refused.value)
        assert "store the large part elsewhere" in str(refused.value)
        await harness.publish(ThingMade(key="big", number=1))
        await harness.settled()
        assert heard == [("big", 1)]


@pytest.mark.parametrize("broker_limit", [3000, 400 * 1024])
async def test_an_event_of_exactly_the_limit_arrives_and_one_byte_more_is_refused_at_publish(broker_limit: int) -> None:
    """The smaller of the service's limit and the broker's, whichever that is, with the number that the store adds."""
    harness = Harness(plant)
    harness.broker = PickyBroker(clock=harness.clock, max_bytes=broker_limit)
    async with harness:
        with pytest.raises(EventTooLarge) as refused:
            await harness.publish(ThingMade(key="k", text="x" * (min(broker_limit, 256 * 1024) - 200)))
        spare = min(broker_limit, 256 * 1024) - 200 - (refused.value.size - refused.value.limit)
        assert broker_limit - 100 <= refused.value.limit <= broker_limit or refused.value.limit == 256 * 1024
        with pytest.raises(EventTooLarge):
            await harness.publish(ThingMade(key="k", text="x" * (spare + 1)))
        await harness.publish(ThingMade(key="k", text="x" * spare, number=1))
        await harness.publish(ThingMade(key="k", number=2))
        await harness.settled()
        assert heard == [("k", 1), ("k", 2)]


async def test_one_large_event_takes_nothing_else_of_its_transaction_along_when_it_is_caught(bench: Bench) -> None:
    async with plant.transaction("t1") as tx:
        tx.publish(ThingMade(key="k", number=1))
        with pytest.raises(EventTooLarge):
            tx.publish(ThingMade(key="k", text="x" * MIB))
        tx.publish(ThingMade(key="k", number=2))
    await bench.drain()
    assert bench.broker.stored() == [("k", 1), ("k", 2)]


# Refused for good, or for now.


async def test_a_frame_that_is_refused_for_good_stops_its_key_and_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """37: the broker's limit was lowered after the event was accepted."""
    bench.broker.refuses = lambda f: Verdict(False, "too large", final=True) if b'"number":666' in f.body else None
    await bench.say(*made("bad", 1, 666, 3), *made("good", 1, 2, 3), ViewSeen(number=1))
    with caplog.at_level(logging.ERROR):
        await bench.drain()
    assert bench.broker.stored() == [("bad", 1), ("good", 1), ("good", 2), ("good", 3)]
    assert bench.broker.stored("plant.view") == [(None, 1)]
    first, follower = await app_of(plant).store.outbox.stuck()
    assert (first.quarantined, first.attempts, first.error) == (True, 1, "too large")
    assert (follower.quarantined, follower.attempts) == (False, 0)
    assert any("quarantined" in record.message and first.row.event_id in record.message for record in caplog.records)
    for _ in range(10):
        await bench.wait(1000)
    assert len(await app_of(plant).store.outbox.stuck()) == 2, "nothing runs by itself, nothing overtakes"
    await bench.say(*made("bad", 4), *made("good", 4))
    await bench.drain()
    assert bench.broker.stored()[-1] == ("good", 4)
    assert (await app_of(plant).store.counts()).stuck == 3
    bench.broker.refuses = lambda frame: None
    assert await app_of(plant).store.outbox.retry_stuck(first.row.id)
    await bench.drain()
    assert [n for key, n in bench.broker.stored() if key == "bad"] == [1, 666, 3, 4]
    assert await app_of(plant).store.outbox.stuck() == []
    assert not await app_of(plant).store.outbox.retry_stuck(first.row.id)


async def test_a_missing_topic_stops_its_keys_while_others_flow_and_all_follow_in_order_when_it_is_made(
    bench: Bench,
) -> None:
    del bench.broker.log.topics["plant.other"]
    await bench.say(*[OtherMade(key=f"k{n % 2}", number=n) for n in range(6)], *made("good", 1, 2))
    await bench.drain()
    assert bench.broker.stored() == [("good", 1), ("good", 2)]
    assert "does not exist" in (await app_of(plant).store.outbox.stuck())[0].error
    await bench.say(*[OtherMade(key=f"k{n % 2}", number=n) for n in range(6, 10)])
    for _ in range(3):
        await bench.wait(20)
    await bench.broker.ensure(app_of(plant).opened.topology())
    await bench.wait(60)
    stored = bench.broker.stored("plant.other")
    assert [n for key, n in stored if key == "k0"] == [0, 2, 4, 6, 8]
    assert [n for key, n in stored if key == "k1"] == [1, 3, 5, 7, 9]
    assert await app_of(plant).store.outbox.stuck() == []
    counts = await app_of(plant).store.counts()
    assert (counts.unsent, counts.committed["plant.other"]) == ({}, 10)


async def test_a_stuck_key_of_one_tenant_does_not_stop_the_same_key_of_another(bench: Bench) -> None:
    bench.broker.refuses = lambda f: Verdict(False, "not for t1") if f.key == "t1:k" else None
    await bench.say(*made("k", 1, 2), tenant="t1")
    await bench.say(*made("k", 7, 8), tenant="t2")
    await bench.drain()
    assert bench.broker.stored() == [("k", 7), ("k", 8)]


async def test_refused_frames_without_a_key_wait_each_for_itself(bench: Bench) -> None:
    bench.broker.refuses = lambda f: Verdict(False, "no") if b'"number":1}' in f.body else None
    await bench.say(*[ViewSeen(number=n) for n in (0, 1, 2)])
    await bench.drain()
    assert bench.broker.stored("plant.view") == [(None, 0), (None, 2)]
    bench.broker.refuses = lambda frame: None
    await bench.wait(60)
    assert bench.broker.stored("plant.view") == [(None, 0), (None, 2), (None, 1)]


async def test_a_refused_row_is_tried_ever_more_slowly_and_quarantined_when_tries_and_time_are_spent(
    bench: Bench,
) -> None:
    bench.broker.refuses = lambda frame: Verdict(False, "no")
    await bench.say(*made("k", 1))
    await bench.drain()
    waits, began = [], bench.clock.now()
    for attempt in range(1, 30):
        [stuck] = await app_of(plant).store.outbox.stuck()
        if stuck.quarantined:
            break
        assert stuck.attempts == attempt
        waits.append(stuck.next_at - bench.clock.now())
        await bench.wait(waits[-1] - 0.001)
        assert (await app_of(plant).store.outbox.stuck())[0].attempts == attempt, "not too early"
        await bench.wait(0.002)
    assert stuck.quarantined
    assert stuck.attempts >= SETTINGS.quarantine_attempts
    assert bench.clock.now() - began >= SETTINGS.quarantine_after
    assert all(0.5 * min(60, 2**n) <= wait <= min(60, 2**n) for n, wait in enumerate(waits, 1))
    calls = bench.broker.calls
    await bench.wait(100_000)
    assert bench.broker.calls == calls, "a quarantined row is left alone"
    assert await app_of(plant).store.outbox.retry_stuck(stuck.row.id)
    bench.broker.refuses = lambda frame: None
    await bench.drain()
    assert bench.broker.stored() == [("k", 1)]


async def test_a_quick_row_of_refusals_is_no_reason_to_give_up(bench: Bench) -> None:
    bench.broker.refuses = lambda frame: Verdict(False, "no")
    await bench.say(*made("k", 1))
    await bench.drain()
    for _ in range(20):
        [stuck] = await app_of(plant).store.outbox.stuck()
        await app_of(plant).store.outbox.retry_stuck(stuck.row.id)
        await bench.drain()
    [stuck] = await app_of(plant).store.outbox.stuck()
    assert stuck.attempts > SETTINGS.quarantine_attempts
    assert not stuck.quarantined, "its tries are spent, its time is not"


# Away, or answering into the void.


async def test_while_the_broker_is_away_nothing_is_marked_sent_and_the_relay_asks_ever_more_slowly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness(plant)
    harness.broker = broker = PickyBroker(clock=harness.clock)
    broker.away = True
    async with harness:
        with caplog.at_level(logging.INFO, "posthouse.outage"):
            for number in range(5):
                await harness.publish(ThingMade(key="k", number=number))
            await eventually(lambda: broker.calls >= 1, "a first try")
            for tries in range(2, 8):
                harness.clock.advance(8.1)
                await eventually(lambda least=tries: asyncio.sleep(0, broker.calls >= least), "another try")  # type: ignore[misc]
            counts = await app_of(plant).store.counts()
            assert counts.unsent == {"plant.thing": 5}
            assert counts.stuck == 0
            said = [record.getMessage() for record in caplog.records if record.name == "posthouse.outage"]
            assert "is away" in said[0]
            assert len(said) <= 3, "one line, and rare reminders"
            broker.away = False
            harness.clock.advance(8.1)
            await harness.settled()
            assert [record for record in caplog.records if "is back after" in record.getMessage()]
        assert broker.stored() == [("k", number) for number in range(5)]
        assert heard == [("k", number) for number in range(5)]


async def test_a_lost_answer_makes_duplicates_and_loses_nothing() -> None:
    harness = Harness(plant)
    harness.broker = broker = PickyBroker(clock=harness.clock)
    broker.mute = True
    async with harness:
        for number in range(5):
            await harness.publish(ThingMade(key="k", number=number))

        async def tried_twice() -> bool:
            harness.clock.advance(9)
            return broker.calls >= 2

        await eventually(tried_twice, "two tries")
        assert (await app_of(plant).store.counts()).unsent == {"plant.thing": 5}
        broker.mute = False
        harness.clock.advance(9)
        figures = await harness.settled()
        assert len(broker.stored()) > 5
        assert set(broker.stored()) == {("k", number) for number in range(5)}
        assert heard == [("k", number) for number in range(5)]
        assert figures.quiet


async def test_an_unreachable_broker_hides_no_stuck_key_and_a_stuck_key_no_other() -> None:
    """Both at once, then healed: everything arrives, in order."""
    harness = Harness(plant)
    harness.broker = broker = PickyBroker(clock=harness.clock)
    async with harness:
        broker.refuses = lambda f: Verdict(False, "no") if f.key == "t1:bad" else None
        for number in range(3):
            await harness.publish(ThingMade(key="bad", number=number))
            await harness.publish(ThingMade(key="good", number=number))
        await calm(harness)
        assert heard == [("good", 0), ("good", 1), ("good", 2)]
        broker.away, calls = True, broker.calls
        await harness.publish(ThingMade(key="good", number=3))
        harness.clock.advance(30)
        await eventually(lambda: broker.calls > calls, "a try")
        broker.away, broker.refuses = False, lambda frame: None
        for _ in range(10):
            harness.clock.advance(61)
            await asyncio.sleep(0.01)
        await harness.settled()
        assert [n for key, n in heard if key == "bad"] == [0, 1, 2]
        assert [n for key, n in heard if key == "good"] == [0, 1, 2, 3]
