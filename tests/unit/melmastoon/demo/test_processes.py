"""Processes that end though nobody asked them to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from melmastoon.demo.clock import SharedClock
from melmastoon.demo.ground import LONG_AGO, Ground
from melmastoon.demo.processes import Fleet
from melmastoon.demo.signatures import make_keys
from melmastoon.platform import SERVICES
from posthouse.errors import PosthouseError

PATIENCE = 60.0


async def watch(fleet: Fleet) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            fleet.check()
            await asyncio.sleep(0.01)


async def test_a_process_that_falls_is_named_with_its_last_words(tmp_path: Path) -> None:
    ground = Ground(folder=str(tmp_path), seed=1, bookings=1, store="nowhere://{service}", broker="nowhere://")
    SharedClock.made(ground.clock_file, LONG_AGO)
    make_keys(tmp_path, SERVICES)
    fleet = Fleet(ground, {"houses": ["property"]})
    fleet.start()
    try:
        with pytest.raises(PosthouseError, match=r"(?s)processes of houses fell.*ConfigurationError.*nowhere"):
            await watch(fleet)
    finally:
        fleet.stop()
