"""A blocked event loop is noticed; a busy or sleeping one is not."""

from __future__ import annotations

import asyncio
import threading

from posthouse.cli.watchdog import Watchdog


async def test_a_blocked_loop_is_reported_with_its_stack() -> None:
    stacks: list[str] = []
    stalled = threading.Event()

    def note(stack: str) -> None:
        stacks.append(stack)
        stalled.set()

    with Watchdog(0.05, note).watching():
        assert stalled.wait(10)  # this blocks the loop
    assert "test_a_blocked_loop_is_reported_with_its_stack" in stacks[0]


async def test_a_loop_that_turns_is_left_alone() -> None:
    stacks: list[str] = []
    with Watchdog(0.2, stacks.append).watching():
        for _ in range(100):  # turns of the loop, over several times the limit
            await asyncio.sleep(0.01)
    assert stacks == []
