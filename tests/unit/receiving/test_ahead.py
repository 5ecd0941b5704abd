"""Many signed frames at once, verified in threads: in their order, by the keys as they are, and none of them unproved."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from posthouse import Event, Tx
from posthouse.broker import Delivery, Frame, Topology
from posthouse.brokers.memory import MemoryBroker
from posthouse.events import STRUCTURED, decode_any
from posthouse.receiving import Consumer
from posthouse.receiving.ahead import FEW, PART, Ahead, Part
from posthouse.receiving.inbound import InboundEvent
from posthouse.seam import Seam
from posthouse.seam.inward import BegunFrame
from posthouse.store.outbox import Number
from posthouse.trust.signatures.claims import FactClaim
from posthouse.trust.signatures.keys import read_keys
from tests.kit.signing import Keys, numbered
from tests.kit.waiting import eventually
from tests.unit.receiving.conftest import NOTES, TOPIC, Bench, MeterRead, handled_by

MANY = 3 * PART + 7


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    keys = Keys(tmp_path)
    keys.make("grid-1", source="/grid")
    return keys


def seam_of(bench: Bench, keys: Keys) -> Seam:
    return keys.signing("grid-1").applied(Seam(), bench.clock, "grid")


def signed(bench: Bench, seam: Seam, numbers: Sequence[int], meter: str = "m1") -> list[Delivery]:
    """Readings of a meter, as they come in."""
    assert seam.sealing is not None
    made = []
    for number in numbers:
        came = bench.delivery(MeterRead(meter=meter, value=number))
        event, given = decode_any(came.frame.headers, came.frame.body), Number("", True, number, 1)
        sealed = STRUCTURED.encode(seam.sealing.seal(TOPIC, numbered(event, given)))
        frame = msgspec.structs.replace(came.frame, headers=sealed.headers, body=sealed.body)
        made.append(msgspec.structs.replace(came, frame=frame))
    return made


def changed(delivery: Delivery) -> Frame:
    """The frame with another value in it."""
    body = delivery.frame.body.replace(b'"value":', b'"value":9')
    return msgspec.structs.replace(delivery.frame, body=body)


async def taken(bench: Bench, seam: Seam, received: Sequence[Delivery]) -> list[InboundEvent]:
    """What comes of them, all at once."""

    async def nothing(event: Event[MeterRead], tx: Tx) -> None:
        pass

    decoder = bench.executor(handled_by(nothing), seam=seam).decoder
    found: list[InboundEvent] = []

    def take(part: Part) -> None:
        found.extend(decoder.from_delivery(delivery, begun) for delivery, begun in part)

    assert seam.seals is not None
    ahead = Ahead()
    assert ahead.pays(received)
    try:
        await ahead.take_in(received, partial(decoder.begin, seam.seals), take)
    finally:
        ahead.close()
    return found


async def test_many_are_verified_in_threads_and_heard_in_order_but_for_the_forged(
    bench: Bench, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    verify = FactClaim.verify

    def noting(claim: FactClaim) -> None:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        verify(claim)

    monkeypatch.setattr(FactClaim, "verify", noting)
    heard: dict[str, list[int]] = defaultdict(list)

    async def hear(event: Event[MeterRead], tx: Tx) -> None:
        heard[event.data.meter].append(event.data.value)

    seam = seam_of(bench, keys)
    lanes = [signed(bench, seam, range(1, MANY // 3 + 1), f"m{lane}") for lane in range(3)]
    frames = [delivery.frame for row in zip(*lanes, strict=True) for delivery in row]
    for place, lane in ((5, "x"), (PART, "y"), (len(frames) - 1, "z")):
        frames.insert(place, changed(signed(bench, seam, [1], lane)[0]))
    broker = MemoryBroker(clock=bench.clock)
    await broker.ensure(Topology(topics=[TOPIC, NOTES], groups={}))
    await broker.publish(frames)
    consumer, stop = Consumer(bench.executor(handled_by(hear), seam=seam), broker, bench.clock), asyncio.Event()
    running = asyncio.create_task(consumer.run(stop))
    await eventually(lambda: sum(map(len, heard.values())) == len(frames) - 3 and consumer.idle)
    stop.set()
    await running
    assert heard == {f"m{lane}": list(range(1, MANY // 3 + 1)) for lane in range(3)}
    assert [(held.state, held.reason[:6]) for held in await bench.held()] == [("quarantined", "forged")] * 3
    assert threads == {"posthouse-verify"}
    await eventually(lambda: not any(thread.name.startswith("posthouse-verify") for thread in threading.enumerate()))


async def test_a_key_that_is_revoked_while_frames_are_verified_proves_none_of_them(
    bench: Bench, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    seam = seam_of(bench, keys)
    received = signed(bench, seam, range(1, MANY + 1))
    verify, before = BegunFrame.verify, []

    def revoking(begun: BegunFrame) -> None:
        before.append(begun)
        verify(begun)
        if len(before) == PART:
            [key] = read_keys(keys.file).values()
            keys.change(msgspec.structs.replace(key, revoked=0.0))
            bench.clock.advance(2.0)

    monkeypatch.setattr(BegunFrame, "verify", revoking)
    found = await taken(bench, seam, received)
    assert len(found) == MANY
    assert {inbound.defect for inbound in found[PART:]} == {"forged: key 'grid-1' was revoked before it arrived"}


async def test_one_that_cannot_be_verified_at_all_is_its_own_trouble(
    bench: Bench, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    seam = seam_of(bench, keys)
    verify, calls = FactClaim.verify, []

    def failing(claim: FactClaim) -> None:
        calls.append(claim)
        if len(calls) == 3:
            raise ValueError("the library broke")
        verify(claim)

    monkeypatch.setattr(FactClaim, "verify", failing)
    found = await taken(bench, seam, signed(bench, seam, range(1, PART)))
    assert [(place, inbound.defect) for place, inbound in enumerate(found) if inbound.defect] == [
        (2, "unreadable: the library broke")
    ]


async def test_where_no_signatures_are_asked_for_no_thread_is_made(bench: Bench, keys: Keys) -> None:
    seam = keys.signing("grid-1", verify={"*": "off"}).applied(Seam(), bench.clock, "grid")
    received = signed(bench, seam, range(1, MANY + 1))
    before = threading.active_count()
    found = await taken(bench, seam, [msgspec.structs.replace(one, frame=changed(one)) for one in received])
    assert [inbound.defect for inbound in found] == [""] * MANY
    assert threading.active_count() == before


async def test_a_consumer_that_ends_while_frames_are_verified_hands_none_of_them_on(
    bench: Bench, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_go_on = threading.Event(), threading.Event()
    verify = FactClaim.verify

    def slow(claim: FactClaim) -> None:
        began.set()
        may_go_on.wait(30)
        verify(claim)

    heard: list[int] = []

    async def hear(event: Event[MeterRead], tx: Tx) -> None:
        heard.append(event.data.value)

    seam = seam_of(bench, keys)
    broker = MemoryBroker(clock=bench.clock)
    await broker.ensure(Topology(topics=[TOPIC, NOTES], groups={}))
    await broker.publish([delivery.frame for delivery in signed(bench, seam, range(1, MANY + 1))])
    executor = bench.executor(handled_by(hear), seam=seam)
    consumer, stop = Consumer(executor, broker, bench.clock), asyncio.Event()
    with monkeypatch.context() as patched:
        patched.setattr(FactClaim, "verify", slow)
        running = asyncio.create_task(consumer.run(stop))
        try:
            await eventually(began.is_set)
            assert not consumer.idle
            stop.set()
            await running
        finally:
            may_go_on.set()
    assert heard == []
    assert (await broker.progress("books", [TOPIC]))[TOPIC].pending == MANY, "all of them come again"


def test_a_few_frames_and_a_single_core_need_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [Delivery(frame=Frame(topic=TOPIC, id=str(n), body=b""), position=n, stored_at=0.0) for n in range(FEW + 1)]
    assert Ahead().pays(some)
    assert not Ahead().pays(some[:FEW])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert not Ahead().pays(some)
