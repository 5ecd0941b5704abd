"""The clock that many processes share."""

from __future__ import annotations

import asyncio
from pathlib import Path

from melmastoon.demo.clock import SharedClock


def test_whoever_opens_the_file_sees_the_same_time(tmp_path: Path) -> None:
    mine = SharedClock.made(tmp_path / "clock", 1000.0)
    theirs = SharedClock(tmp_path / "clock")
    mine.move(1030.5)
    assert theirs.now() == 1030.5


def test_it_never_goes_back(tmp_path: Path) -> None:
    clock = SharedClock.made(tmp_path / "clock", 1000.0)
    clock.move(10.0)
    assert clock.now() == 1000.0


async def test_who_waits_is_woken_when_another_process_moves_the_hand(tmp_path: Path) -> None:
    SharedClock.made(tmp_path / "clock", 1000.0)
    waiting, moving = SharedClock(tmp_path / "clock"), SharedClock(tmp_path / "clock")
    tasks = [asyncio.create_task(waiting.wait(asyncio.Event(), seconds)) for seconds in (30.0, 31.0)]
    await asyncio.sleep(0)
    moving.move(1030.0)
    async with asyncio.timeout(5):
        assert await tasks[0] is False
    assert not tasks[1].done()
    moving.move(1031.0)
    async with asyncio.timeout(5):
        assert await tasks[1] is False


async def test_an_event_ends_the_wait_at_once(tmp_path: Path) -> None:
    clock, event = SharedClock.made(tmp_path / "clock", 1000.0), asyncio.Event()
    task = asyncio.create_task(clock.wait(event, 30.0))
    await asyncio.sleep(0)
    event.set()
    async with asyncio.timeout(5):
        assert await task is True
    assert await clock.wait(event, 30.0) is True
