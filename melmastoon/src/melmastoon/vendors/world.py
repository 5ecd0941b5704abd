"""The outside world as our processes meet it: the vendors' books, and the weather. Simulators are built upon it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from melmastoon.pace import seconds
from melmastoon.vendors.ledger import Ledger
from melmastoon.vendors.weather import Seeded, VendorDown, VendorTimeout, Weather
from posthouse.errors import ConfigurationError

T = TypeVar("T")

VENDORS = "MELMASTOON_VENDORS"
"""The variable in the environment that names the file of the vendors' books; in memory when there is none."""
SEED = "MELMASTOON_SEED"
FAULTS = "MELMASTOON_FAULTS"
"""The share of requests to vendors that do not simply work, from 0 to 1; 0 unless it is given."""
LATENCY = "MELMASTOON_LATENCY"
"""How much of a vendor's own slowness is really waited for, from 0 to 1; 1 unless it is given. The pace shortens it too."""


class World:
    """What the simulators of all vendors share. `latency` is the share of their slowness that is really waited for."""

    def __init__(self, ledger: Ledger | None = None, weather: Weather | None = None, *, latency: float = 0.0) -> None:
        self.ledger = ledger or Ledger()
        self.weather = weather or Seeded()
        self._latency = latency
        self._late: dict[str, Callable[[], object]] = {}

    async def ask(self, operation: str, id: str, work: Callable[[], T]) -> T:
        """One request to a vendor: `work` is what it does in its books, and its answer. Raises VendorTrouble."""
        mood = self.weather.mood(operation, id, self.ledger.attempt(operation, id))
        await self.wait(self.weather.latency(operation, id, mood))
        overdue = self._late.pop(id, None)
        try:
            if mood == "error":
                raise VendorDown(f"{operation} {id}: internal error, try again later")
            if mood == "late":
                self._late[id] = work
            if mood in ("timeout", "late"):
                raise VendorTimeout(f"{operation} {id}: no answer")
            answer = work()
            if mood == "lost":
                raise VendorTimeout(f"{operation} {id}: no answer")
            return work() if mood == "twice" else answer
        finally:
            if overdue is not None:  # what timed out before is done now, after this request was answered
                overdue()

    async def wait(self, house_seconds: float) -> None:
        """Let time pass at a vendor, or before it is asked again."""
        await asyncio.sleep(seconds(house_seconds) * self._latency)


_worlds: dict[tuple[str, ...], World] = {}
_pretended: list[World] = []


def world(environment: Mapping[str, str] = os.environ) -> World:
    """The world that the environment describes, one per process."""
    if _pretended:
        return _pretended[-1]
    path, seed = environment.get(VENDORS, ""), environment.get(SEED, "0")
    faults, latency = environment.get(FAULTS, "0"), environment.get(LATENCY, "1")
    known = _worlds.get((path, seed, faults, latency))
    if known is None:
        weather = Seeded(seed=_seed(seed), faults=_share(FAULTS, faults))
        known = World(Ledger(path or None), weather, latency=_share(LATENCY, latency))
        _worlds[path, seed, faults, latency] = known
    return known


@contextmanager
def pretending(other: World) -> Iterator[World]:
    """Another world inside the block: for tests."""
    _pretended.append(other)
    try:
        yield other
    finally:
        _pretended.remove(other)


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{SEED} must be a whole number, as in {SEED}=7, not {text!r}") from None


def _share(name: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigurationError(f"{name} must be a number from 0 to 1, as in {name}=0.2, not {text!r}")
    return share
