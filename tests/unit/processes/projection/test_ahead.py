"""What is made ahead comes in order, fails where it is used, and ends with its user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from posthouse.processes.projection.ahead import ahead


class Source:
    """Gives numbers, and remembers what became of it."""

    def __init__(self, *, fails_at: int | None = None, last: int = 5) -> None:
        self.made: list[int] = []
        self.ended = False
        self._fails_at = fails_at
        self._last = last

    async def numbers(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self._last):
                await asyncio.sleep(0)
                if number == self._fails_at:
                    raise ValueError(number)
                self.made.append(number)
                yield number
        finally:
            self.ended = True


async def test_everything_comes_once_and_in_order() -> None:
    source = Source()
    assert [number async for number in ahead(source.numbers())] == [0, 1, 2, 3, 4]
    assert source.ended


async def test_nothing_comes_of_nothing() -> None:
    assert [number async for number in ahead(Source(last=0).numbers())] == []


async def test_the_next_one_is_made_while_the_last_one_is_used_and_no_further() -> None:
    source = Source()
    async with aclosing(ahead(source.numbers())) as numbers:
        async for number in numbers:
            for _ in range(10):
                await asyncio.sleep(0)
            assert source.made[-1] == min(number + 1, 4)


async def test_an_error_comes_after_what_was_made_before_it() -> None:
    source, used = Source(fails_at=2), list[int]()

    async def use() -> None:
        async for number in ahead(source.numbers()):
            used.append(number)

    with pytest.raises(ValueError, match="2"):
        await use()
    assert used == [0, 1]
    assert source.ended


async def test_whoever_stops_early_ends_the_source_and_hears_nothing_of_what_fails_later() -> None:
    source = Source(fails_at=1)
    async with aclosing(ahead(source.numbers())) as numbers:
        async for _ in numbers:
            for _ in range(10):
                await asyncio.sleep(0)
            break
    assert source.ended


async def test_whoever_stops_early_does_not_wait_for_what_comes_next() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(10):
        async with aclosing(ahead(endless())) as numbers:
            assert await anext(numbers) == 1
            await asyncio.sleep(0)
    assert ended.is_set()


async def test_a_source_within_a_source_ends_too_when_it_is_cancelled_half_way() -> None:
    inner, reached = Source(), asyncio.Event()

    async def outer() -> AsyncGenerator[int, None]:
        async with aclosing(ahead(inner.numbers())) as numbers:
            async for number in numbers:
                if number == 1:
                    reached.set()
                    await asyncio.Event().wait()
                yield number

    async def use() -> None:
        async with aclosing(ahead(outer())) as numbers:
            async for _ in numbers:
                pass

    using = asyncio.create_task(use())
    async with asyncio.timeout(10):
        await reached.wait()
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
    assert inner.ended
    assert asyncio.all_tasks() == {asyncio.current_task()}
