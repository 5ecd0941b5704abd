"""A fleet: places that are always filled, and the dice that decide who is struck."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence

from posthouse.runtime import Part
from tests.faults.kit.nursery import Child
from tests.faults.kit.world import World
from tests.kit.waiting import until


def seeded() -> tuple[random.Random, int]:
    """Dice that can be thrown again: the seed is printed when a test fails."""
    seed = int(os.environ.get("POSTHOUSE_SEED", random.randrange(1_000_000)))
    print(f"POSTHOUSE_SEED={seed}")
    return random.Random(seed), seed


def pause(seconds: float) -> None:
    """Let the others run for so long: how often something is struck is part of the fault."""
    over = time.monotonic() + seconds
    until(lambda: time.monotonic() > over, "the end of a pause")


class Fleet:
    """Places that are always filled: whoever dies there is replaced."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._places: list[tuple[Sequence[str], Sequence[Part], Child]] = []

    def add(self, services: Sequence[str], parts: Sequence[Part]) -> None:
        self._places.append((services, parts, self._world.work(services, parts)))

    def strike(self, dice: random.Random) -> None:
        """Kill one, or let one stand still for up to twice the leases."""
        place = dice.randrange(len(self._places))
        services, parts, child = self._places[place]
        if dice.random() < 0.6:
            self._world.kill(child)
            self._places[place] = (services, parts, self._world.work(services, parts))
            return
        child.stop()
        pause(dice.uniform(0.2, 1.5))
        child.go_on()

    def disband(self) -> list[int]:
        """Ask all of them to end."""
        return [child.terminate() for _, _, child in self._places]
