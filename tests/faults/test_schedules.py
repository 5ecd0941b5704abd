"""Two processes at the due moments of a schedule, of which one is killed: each moment is run, and once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from posthouse.store import Store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.sqlite import SqliteStore
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(120)

MOMENTS = 30


class Hotel:
    """The store of the members, and how they are started."""

    def __init__(self, folder: Path, store: Store, url: str) -> None:
        self.store = store
        self._folder = folder
        self._url = url

    async def member(self, word: str) -> asyncio.subprocess.Process:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("POSTHOUSE_")}
        root = Path(__file__).parents[2]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.faults.schedule_member",
            word,
            cwd=self._folder,
            env={
                **clean,
                "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
                "POSTHOUSE_STORE": self._url,
                "POSTHOUSE_BROKER": "embedded:///log.db?single_host=true",
            },
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def both_run(self) -> bool:
        return bool(await self.store.schedules.find()) and len(await self.store.workers.read()) == 2

    async def set_back(self, times: int) -> None:
        """Half an hour is due, again and again half an hour earlier."""
        async with self.store.begin() as tx:
            row = await self.store.schedules.lock(tx, "hotel", "audit")
            assert row is not None
            await self.store.schedules.save(tx, replace(row, next_at=row.now // 60 * 60 - times * MOMENTS * 60))

    async def runs(self) -> Counter[str]:
        async with self.store.begin() as tx:
            return Counter(str(moment) for (moment,) in await tx.execute("SELECT moment FROM audit"))


@pytest.fixture(params=["sqlite", "postgres"])
def hotel(request: pytest.FixtureRequest, tmp_path: Path) -> Hotel:
    if request.param == "sqlite":
        return Hotel(tmp_path, SqliteStore(tmp_path / "hotel.db"), "sqlite:///hotel.db")
    url = request.getfixturevalue("postgres_url")
    return Hotel(tmp_path, PostgresStore(url), url)


@pytest.mark.parametrize("where", ["begin", "run"])
async def test_each_moment_is_run_once_though_one_of_two_processes_is_killed_in_the_middle(
    hotel: Hotel, where: str
) -> None:
    await hotel.store.upgrade()
    staying, dying = await hotel.member("stay"), await hotel.member(where)
    try:
        await eventually(hotel.both_run, "both processes", within=30.0, pause=0.05)
        times = 0
        while dying.returncode is None:  # it may have had no share of them yet
            times += 1
            assert times < 40, "it was to die in the middle"
            await hotel.set_back(times)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(dying.wait(), 1.0)
        assert dying.returncode == -signal.SIGKILL

        async def all_done() -> bool:
            """As many as were due at the least, and none is left out; what the dead process had comes after its lease."""
            moments = sorted(map(datetime.fromisoformat, await hotel.runs()))
            steps = {later - earlier for earlier, later in pairwise(moments)}
            return len(moments) >= times * MOMENTS and steps == {timedelta(minutes=1)}

        await eventually(all_done, "what was due to be worked off", within=60.0, pause=0.05)
        assert set((await hotel.runs()).values()) == {1}, "each once"
    finally:
        for process in (staying, dying):
            if process.returncode is None:
                process.kill()
                await process.wait()
        await hotel.store.aclose()
