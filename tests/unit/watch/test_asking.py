"""Readings on the loop of the workers, for a server on a loop of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from posthouse.watch.asking import FRESH, Asked, Unanswered
from tests.kit.waiting import eventually


@pytest.fixture
def there() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class Source:
    """Counts how often it is read; waits for `go` where one is given."""

    def __init__(self, go: threading.Event | None = None) -> None:
        self.read_in: list[int] = []
        self.go = go

    async def read(self) -> int:
        self.read_in.append(threading.get_ident())
        await eventually(lambda: self.go is None or self.go.is_set(), "the word to go on")
        return len(self.read_in)


async def test_a_hundred_who_ask_at_once_are_one_reading_on_the_other_loop(there: asyncio.AbstractEventLoop) -> None:
    source = Source()
    asked = Asked(source.read, there)
    assert await asyncio.gather(*(asked.latest() for _ in range(100))) == [1] * 100
    assert source.read_in != [threading.get_ident()]
    assert await asked.latest() == 1, "it is fresh"


async def test_it_is_read_anew_when_it_is_no_longer_fresh(there: asyncio.AbstractEventLoop) -> None:
    asked = Asked(Source().read, there)
    began = time.monotonic()
    await eventually(asked.latest, "a second reading", right=lambda number: number == 2)
    assert time.monotonic() - began >= FRESH


async def test_a_reading_that_hangs_is_waited_for_so_long_and_never_doubled(there: asyncio.AbstractEventLoop) -> None:
    go = threading.Event()
    source = Source(go)
    asked = Asked(source.read, there, within=0.2)
    try:
        for _ in range(2):
            with pytest.raises(Unanswered, match=r"within 0\.2 s"):
                await asked.latest()
        assert len(source.read_in) == 1
    finally:
        go.set()


async def test_a_loop_that_is_blocked_gets_no_second_request(there: asyncio.AbstractEventLoop) -> None:
    block, source = threading.Event(), Source()
    asked = Asked(source.read, there, within=0.1)
    there.call_soon_threadsafe(block.wait)
    try:
        for _ in range(3):
            with pytest.raises(Unanswered):
                await asked.latest()
        assert source.read_in == []
    finally:
        block.set()
    assert await asked.latest() == 1


async def test_an_error_is_told_to_everybody_and_not_tried_at_once_again(there: asyncio.AbstractEventLoop) -> None:
    tries: list[int] = []

    async def fail() -> None:
        tries.append(1)
        raise ValueError("broken")

    asked = Asked(fail, there)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            await asked.latest()
    assert len(tries) == 1


async def test_what_is_being_read_at_the_end_is_given_up(there: asyncio.AbstractEventLoop) -> None:
    source = Source(threading.Event())
    asked = Asked(source.read, there)
    waiting = asyncio.create_task(asked.latest())
    await eventually(lambda: source.read_in, "the reading")
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked.aclose(), there))
    with pytest.raises(Unanswered, match="this process ends"):
        await waiting
