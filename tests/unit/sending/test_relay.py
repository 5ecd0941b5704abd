"""The relay behind a backlog: larger looks, bounded in bytes, and every key in its order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from posthouse.broker import Frame, Topology, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock
from posthouse.errors import BrokerUnavailable
from posthouse.sending import Relay, RelaySettings
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing.store_contract.samples import TOPIC, row


class Recorder(MemoryBroker):
    """Notes what each call was given; takes its time, and is away for a number of calls, if told to."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.calls: list[Sequence[Frame]] = []
        self.away = 0
        self.takes = 0.0
        self.time = clock

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        if self.away:
            self.away -= 1
            raise BrokerUnavailable("away")
        self.calls.append(frames)
        await asyncio.sleep(0)
        self.time.advance(self.takes)
        return await super().publish(frames)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(clock: ManualClock) -> Recorder:
    recorder = Recorder(clock)
    await recorder.ensure(Topology(topics=[TOPIC]))
    return recorder


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(":memory:", clock=clock)
    await opened.upgrade()
    yield opened
    await opened.aclose()


async def fill(store: SqliteStore, count: int, *, keys: int = 20, size: int = 2) -> None:
    async with store.begin() as tx:
        body = b"{" + b" " * (size - 2) + b"}"
        await store.outbox.append(tx, [row(f"k{number % keys}", body=body) for number in range(count)])


def sizes(broker: Recorder) -> list[int]:
    return [len(frames) for frames in broker.calls]


async def test_a_relay_that_keeps_up_looks_once(store: SqliteStore, broker: Recorder, clock: ManualClock) -> None:
    await fill(store, 10)
    assert await Relay(store, broker, clock).step() == 10
    assert sizes(broker) == [10]


async def test_behind_a_backlog_each_look_is_larger_up_to_a_limit(
    store: SqliteStore, broker: Recorder, clock: ManualClock
) -> None:
    await fill(store, 500)
    settings = RelaySettings(batch=20, backlog_batch=100)
    assert await Relay(store, broker, clock, settings).step() == 500
    assert max(sizes(broker)) == 100
    assert sizes(broker)[:3] == [20, 40, 80]


async def test_a_batch_of_large_events_is_bounded_by_its_bytes(
    store: SqliteStore, broker: Recorder, clock: ManualClock
) -> None:
    await fill(store, 200, size=1_000)
    settings = RelaySettings(batch=20, backlog_bytes=10_000)
    assert await Relay(store, broker, clock, settings).step() == 200
    assert max(sizes(broker)[1:]) <= 10


async def test_after_a_backlog_the_looks_are_as_before(
    store: SqliteStore, broker: Recorder, clock: ManualClock
) -> None:
    relay = Relay(store, broker, clock, RelaySettings(batch=20))
    await fill(store, 300)
    await relay.step()
    broker.calls.clear()
    await fill(store, 25)
    await relay.step()
    assert sizes(broker) == [20, 5]


async def test_every_key_keeps_its_order_when_the_lease_is_renewed_amid_a_backlog(
    store: SqliteStore, broker: Recorder, clock: ManualClock
) -> None:
    await fill(store, 2_000, keys=40)
    broker.takes = 1.0  # the lease grows old: what is left over waits for the next step
    relay = Relay(store, broker, clock, RelaySettings(batch=50, backlog_batch=200, lease=3.0))
    moved = 0
    while moved < 2_000:
        moved += await relay.step()
    lines: dict[str | None, list[bytes]] = {}
    for stored in broker.log.topics[TOPIC]:
        lines.setdefault(stored.frame.key, []).append(stored.frame.body[:36])
    assert len(lines) == 40
    assert all(line == sorted(line) and len(line) == 50 for line in lines.values())


async def test_a_broker_that_goes_away_amid_a_backlog_loses_nothing(
    store: SqliteStore, broker: Recorder, clock: ManualClock
) -> None:
    await fill(store, 600)
    broker.takes = 1.0
    relay = Relay(store, broker, clock, RelaySettings(batch=50, backlog_batch=50, lease=3.0))
    assert await relay.step() == 50
    broker.away = 1
    with pytest.raises(BrokerUnavailable):
        await relay.step()
    assert len(broker.calls) == 1
    while await relay.step():
        pass
    sent = {stored.frame.id for stored in broker.log.topics[TOPIC]}
    assert len(sent) == 600


async def test_after_an_outage_of_any_length_it_tries_again_within_seconds(
    store: SqliteStore, broker: Recorder, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, stop = list[float](), asyncio.Event()

    async def wait(event: asyncio.Event, seconds: float) -> bool:
        waits.append(seconds)
        clock.advance(seconds)
        if not broker.away:
            stop.set()
        await asyncio.sleep(0)
        return event.is_set()

    monkeypatch.setattr(clock, "wait", wait)
    await fill(store, 1)
    broker.away = 50
    await Relay(store, broker, clock).run(stop)
    assert len(waits) >= 50
    assert 2 < max(waits) <= 5, "the server may be back long before"
