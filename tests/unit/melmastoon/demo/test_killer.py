"""Whoever is killed is started again, whatever else happens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from melmastoon.demo.killer import Killer

PATIENCE = 10.0


class Processes:
    """Two of them. A kill takes as long as `slow` is not set, as on a machine that has other things to do."""

    names: Sequence[str] = ("desk", "rooms")

    def __init__(self) -> None:
        self.alive = set(self.names)
        self.kills = 0
        self.killing = threading.Event()
        self.slow = threading.Event()
        self.slow.set()

    def kill(self, name: str) -> None:
        self.alive.remove(name)
        self.kills += 1
        self.killing.set()
        assert self.slow.wait(PATIENCE)

    def start_one(self, name: str) -> None:
        assert name not in self.alive
        self.alive.add(name)


async def test_a_killer_that_is_told_to_stop_in_the_middle_of_a_kill_starts_the_victim_again_first() -> None:
    processes = Processes()
    processes.slow.clear()
    killer = Killer(processes, seed=1, every=0.001)
    killer.start()
    assert await asyncio.to_thread(processes.killing.wait, PATIENCE)
    stopping = asyncio.create_task(killer.stop())
    await asyncio.sleep(0)
    assert len(processes.alive) == 1
    processes.slow.set()
    async with asyncio.timeout(PATIENCE):
        await stopping
    assert processes.alive == {"desk", "rooms"}
    assert processes.kills == 1


async def test_nobody_is_killed_while_somebody_is_away() -> None:
    processes = Processes()
    killer = Killer(processes, seed=1, every=0.001)
    async with killer.away("desk"):
        killer.start()
        for _ in range(50):
            await asyncio.sleep(0.001)
            assert processes.alive == {"rooms"}
    processes.killing.clear()
    assert await asyncio.to_thread(processes.killing.wait, PATIENCE), "it goes on afterwards"
    await killer.stop()
    assert processes.alive == {"desk", "rooms"}


async def test_a_killer_without_a_pace_kills_nobody() -> None:
    processes = Processes()
    killer = Killer(processes, seed=1, every=0.0)
    killer.start()
    await killer.stop()
    await killer.stop()
    assert processes.kills == 0
