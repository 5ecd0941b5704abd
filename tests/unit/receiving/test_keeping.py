"""A held event in somebody's hands: hidden from others while they live, and soon free when they do not."""

from __future__ import annotations

import asyncio

import pytest

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.receiving.retrier import LEASE, Retrier
from posthouse.testing import Harness
from tests.kit.waiting import eventually

office = Service("office")


@office.event("letter.sent.v1")
class LetterSent(Payload):
    text: str


class Post:
    """Somebody outside, who refuses at first and then takes as long as they like."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = asyncio.Event()

    async def ask(self) -> str:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("not now")
        await self.answers.wait()
        return "yes"


post = Post()


async def ask(event: Event[LetterSent]) -> str:
    return await post.ask()


@office.on(LetterSent, calling=ask, policy=Policy(deadline=30.0))
async def sent(event: Event[LetterSent], tx: Tx, answer: str) -> None:
    pass


@pytest.fixture
def outside() -> Post:
    post.__init__()  # type: ignore[misc]  # as new
    return post


async def a_letter_in_hand(harness: Harness, outside: Post) -> tuple[Retrier, asyncio.Event, asyncio.Task[None]]:
    """It was refused once; now somebody runs it, and waits for an answer."""
    await harness.publish(LetterSent(text="Dear"))
    await harness.settled()
    harness._stop.set()
    await asyncio.gather(*harness._tasks)
    harness.clock.advance(11)
    [retrier] = harness._runtimes[0].retriers
    stop = asyncio.Event()
    running = asyncio.create_task(retrier.run(stop))

    async def asked() -> bool:
        return outside.asked == 2

    await eventually(asked, "the second call")
    return retrier, stop, running


async def pass_slowly(harness: Harness, seconds: int) -> None:
    """A second at a time, and each who wakes up has all the time they need."""
    for _ in range(seconds):
        harness.clock.advance(1)
        for _ in range(20):
            await asyncio.sleep(0.001)


async def test_an_event_that_runs_for_long_is_kept_from_others(outside: Post) -> None:
    async with Harness(office) as harness:
        retrier, stop, running = await a_letter_in_hand(harness, outside)
        await pass_slowly(harness, int(2 * LEASE))
        other = Retrier(retrier._executor, harness.clock)
        assert not await other.step()
        outside.answers.set()
        stop.set()
        await running
        assert outside.asked == 2
        assert await harness.held(office) == []


async def test_what_a_dead_process_ran_comes_again_long_before_its_handler_must_be_done(outside: Post) -> None:
    async with Harness(office) as harness:
        retrier, _, running = await a_letter_in_hand(harness, outside)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        other = Retrier(retrier._executor, harness.clock)
        assert not await other.step(), "nobody knows yet"
        harness.clock.advance(LEASE)
        outside.answers.set()
        assert await other.step()
        assert outside.asked == 3
        assert await harness.held(office) == []


async def test_a_run_that_hangs_hides_its_event_no_longer_than_it_may_take(outside: Post) -> None:
    async with Harness(office) as harness:
        _, stop, running = await a_letter_in_hand(harness, outside)
        await pass_slowly(harness, 2 * 30)  # one deadline for the call, one for the handler
        assert outside.asked == 2
        await pass_slowly(harness, 5 + int(LEASE))
        assert outside.asked == 3
        outside.answers.set()
        stop.set()
        await running
        assert await harness.held(office) == []
