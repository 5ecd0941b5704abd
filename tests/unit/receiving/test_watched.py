"""What the watchdog sees of a consumer: each handler's call is a sign of life, and one that does not end is none."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from posthouse import Event, Payload, Policy, RetryNow, Service, Tx
from posthouse.app import app_of
from posthouse.errors import StoreCollision
from posthouse.pulse import PATIENCE, Doing, _current
from posthouse.testing import Harness

DEADLINE = 30.0
SLOW = 85.0
"""Seconds that each call seems to take: within the deadline and the patience of the watchdog."""

mills = Service("mills", namespace="grid")


@mills.event("sack.filled.v1", key="mill")
class SackFilled(Payload):
    mill: str
    number: int


class Seen(NamedTuple):
    """A call of the handler, and whether the watchdog would have found that it takes too long."""

    number: int
    late: bool


class Slow:
    """A handler whose every call takes long, as the watchdog counts time; the first ones fail."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.seen: list[Seen] = []

    def take_long(self, number: int) -> None:
        doing = around()
        doing.age += SLOW
        self.seen.append(Seen(number, doing.age > PATIENCE + doing.longer))
        if self.failures:
            raise self.failures.pop(0)


def around() -> Doing:
    """The block of the consumer in which the handler is called. Time goes by for it alone: others wait for the clock."""
    doing = _current.get()
    assert doing is not None
    return doing


async def fill(count: int, mills_: int = 1) -> None:
    async with mills.transaction("t1") as tx:
        for number in range(count):
            tx.publish(SackFilled(mill=f"m{number % mills_}", number=number))


def assert_left_alone(slow: Slow) -> None:
    assert slow.seen
    assert [seen for seen in slow.seen if seen.late] == []


async def test_a_group_redone_one_by_one_may_take_as_long_as_all_its_events_together() -> None:
    slow, stores = Slow(), Service("stores", namespace="grid")

    @stores.on(SackFilled, policy=Policy(grouped=True, deadline=DEADLINE, max_attempts=1))
    async def store(event: Event[SackFilled], tx: Tx) -> None:
        if not slow.seen:
            slow.seen.append(Seen(-1, late=False))
            raise RuntimeError("the group fails")
        slow.take_long(event.data.number)

    async with Harness(mills, stores) as harness:
        await fill(20, 20)
        await harness.settled()
        assert await harness.held(stores) == []
    assert sorted(seen.number for seen in slow.seen) == list(range(-1, 20))
    assert_left_alone(slow)


async def test_a_list_redone_one_by_one_may_take_as_long_as_all_its_events_together() -> None:
    slow, stores = Slow(), Service("stores", namespace="grid")

    @stores.on(SackFilled, policy=Policy(deadline=DEADLINE, max_attempts=1))
    async def store(events: list[Event[SackFilled]], tx: Tx) -> None:
        if len(events) > 1:
            raise RuntimeError("too much at once")
        slow.take_long(events[0].data.number)

    async with Harness(mills, stores) as harness:
        await fill(20)
        await harness.settled()
        assert await harness.held(stores) == []
    assert [seen.number for seen in slow.seen] == list(range(20))
    assert_left_alone(slow)


@pytest.mark.parametrize(
    "failure", [RetryNow("once more"), StoreCollision("another one was in the way")], ids=["at once", "a collision"]
)
async def test_a_handler_that_runs_again_at_once_gets_its_time_again(failure: Exception) -> None:
    slow, stores = Slow(failure, failure, failure), Service("stores", namespace="grid")

    @stores.on(SackFilled, policy=Policy(deadline=DEADLINE))
    async def store(event: Event[SackFilled], tx: Tx) -> None:
        slow.take_long(event.data.number)

    async with Harness(mills, stores) as harness:
        await fill(1)
        await harness.settled()
    assert len(slow.seen) == 4
    assert_left_alone(slow)


async def test_calling_and_writing_down_the_answer_have_their_time_each_also_when_it_was_held() -> None:
    slow, stores = Slow(RuntimeError("nobody answers")), Service("stores", namespace="grid")

    async def ask(event: Event[SackFilled]) -> str:
        slow.take_long(event.data.number)
        return "yes"

    @stores.on(SackFilled, policy=Policy(deadline=DEADLINE), calling=ask)
    async def store(event: Event[SackFilled], tx: Tx, answer: str) -> None:
        slow.take_long(event.data.number)

    async with Harness(mills, stores) as harness:
        await fill(2)
        await harness.settled()
        await harness.advance(3600)
        assert await harness.held(stores) == []
    assert len(slow.seen) == 5
    assert_left_alone(slow)


async def test_a_handler_that_does_not_end_is_seen_whatever_was_done_before_it() -> None:
    stores = Service("stores", namespace="grid")
    began, over = asyncio.Event(), asyncio.Event()

    @stores.on(SackFilled, policy=Policy(deadline=DEADLINE, grouped=True))
    async def store(event: Event[SackFilled], tx: Tx) -> None:
        if event.data.number == 4:
            began.set()
            await over.wait()

    async with Harness(mills, stores) as harness:
        (consumer,) = (await app_of(stores).opened.prepare()).consumers
        await fill(8)
        async with asyncio.timeout(10):
            await began.wait()
        (doing,) = [doing for doing in consumer.pulse._open if doing.what == "applying events"]
        doing.age += SLOW
        assert consumer.pulse.look(1.0) == ""
        assert consumer.pulse.look(DEADLINE) == f"applying events for {SLOW + DEADLINE + 1.0:.0f} s"
        doing.age = 0.0
        over.set()
        await harness.settled()
