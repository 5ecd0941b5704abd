"""Rows that leave are in the folder, whenever whoever moves them is killed."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from posthouse.clock import SystemClock
from posthouse.stores import open_store
from posthouse.testing.store_contract.samples import entry

ROWS = 6_000
TRIES = 12

MOVER = """
import asyncio, sys
from pathlib import Path
from posthouse.clock import SystemClock
from posthouse.history import sweep
from posthouse.history.audit.places.folder import Folder
from posthouse.stores import open_store

sweep.BATCH = 200


async def main() -> None:
    store = open_store(sys.argv[1], clock=SystemClock())
    moving = sweep.Sweep(store, -1.0, None, Folder(Path(sys.argv[2])))
    print("begun", flush=True)
    while (await moving.inbox())[1]:
        pass
    await store.aclose()


asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue("postgres_url"))


async def filled(url: str) -> list[str]:
    store = open_store(url, clock=SystemClock())
    await store.upgrade()
    rows = [entry(None) for _ in range(ROWS)]
    for first in range(0, ROWS, 1_000):
        async with store.begin() as tx:
            assert all(await store.inbox.claim(tx, "billing", rows[first : first + 1_000]))
    await store.aclose()
    return [row.event_id for row in rows]


def written(folder: Path) -> list[str]:
    return [json.loads(line)["event_id"] for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines()]


async def left(url: str) -> int:
    store = open_store(url, clock=SystemClock())
    number = len(await store.retention.old_seen(-1.0, ROWS + 1))
    await store.aclose()
    return number


def moved(url: str, folder: Path, seconds: float | None) -> bool:
    """Run a mover, and kill it after so long; whether it was killed at work."""
    command = [sys.executable, "-c", MOVER, url, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as mover:
        assert mover.stdout is not None
        mover.stdout.readline()
        try:
            return mover.wait(seconds) != 0
        except subprocess.TimeoutExpired:
            mover.send_signal(signal.SIGKILL)
            return mover.wait() == -signal.SIGKILL


async def test_a_mover_that_is_killed_again_and_again_leaves_no_row_out_and_writes_none_twice(
    url: str, tmp_path: Path
) -> None:
    ids, folder, chance, at_work = await filled(url), tmp_path / "rows", random.Random(7), 0
    for _ in range(TRIES):
        killed = await asyncio.to_thread(moved, url, folder, chance.uniform(0.02, 0.15))
        there = await left(url)
        at_work += killed and 0 < there < ROWS
        assert len(set(written(folder))) + there >= ROWS, "what is gone from the store is in the folder"
    assert at_work > 0, "nobody was killed while rows were on their way"
    assert not await asyncio.to_thread(moved, url, folder, None)
    assert await left(url) == 0
    assert sorted(written(folder)) == sorted(ids)
