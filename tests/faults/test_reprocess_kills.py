"""A replay killed at every commit that it makes, before it and after it: resumed it applies each event once and in order, cancelled it
leaves each key at the end of a part that was applied again, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest

from posthouse import reprocessing
from posthouse.app import app_of
from posthouse.stores.sqlite.database import SqliteTransaction
from tests.faults.test_reprocess import Shop, decided, in_order
from tests.kit.long import LONG

pytestmark = pytest.mark.timeout(600)

REPLAYING: contextvars.ContextVar[bool] = contextvars.ContextVar("replaying", default=False)

Moment = Literal["before", "after"]
THIN = 1 if LONG else 3
"""Of the kills one in so many is made."""


class Killed(BaseException):
    """The process is gone."""


class Kills:
    """Counts the commits of a replay, and kills it at one."""

    def __init__(self) -> None:
        self.commits = 0
        self.at: tuple[int, Moment] | None = None

    async def leave(self, inner: Any, tx: SqliteTransaction, kind: Any, error: Any, trace: Any) -> None:
        if not REPLAYING.get() or kind is not None:
            await inner(tx, kind, error, trace)
            return
        self.commits += 1
        if self.at == (self.commits, "before"):
            killed = Killed()
            await inner(tx, Killed, killed, None)
            raise killed
        await inner(tx, kind, error, trace)
        if self.at == (self.commits, "after"):
            raise Killed


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Kills:
    found, inner = Kills(), SqliteTransaction.__aexit__

    async def leave(self: SqliteTransaction, kind: Any, error: Any, trace: Any) -> None:
        await found.leave(inner, self, kind, error, trace)

    monkeypatch.setattr(SqliteTransaction, "__aexit__", leave)
    return found


@contextlib.asynccontextmanager
async def copied(place: Path, scene: Path) -> AsyncIterator[Shop]:
    """The shop as it was prepared, with its orders and its billing running."""
    shutil.rmtree(scene, ignore_errors=True)
    shutil.copytree(place, scene)
    shop = Shop(scene)
    shop.release = "mended"
    shop.numbers.update({"a": 3, "b": 2, "c": 1})
    async with shop.running(shop.orders, shop.billing):
        yield shop


async def prepared(place: Path) -> None:
    shop = Shop(place)
    async with shop.running(shop.orders, shop.billing):
        await shop.say(*"aababc")
        await shop.at_rest_of(shop.orders, shop.billing)


async def killed(shop: Shop, id: str) -> None:
    """Run the job until it dies of it; what it had leased is free at once."""

    async def die() -> None:
        REPLAYING.set(True)
        with pytest.raises(Killed):
            await reprocessing.run(shop.billing, id, look=0.02)

    await asyncio.create_task(die())
    with contextlib.closing(sqlite3.connect(shop.place / "billing.db")) as connection:
        connection.execute("UPDATE posthouse_job SET leased_until = 0")
        connection.commit()


async def commits_of(place: Path, scene: Path, kills: Kills) -> int:
    async with copied(place, scene) as shop:
        job = await shop.begun()

        async def run() -> None:
            REPLAYING.set(True)
            await reprocessing.run(shop.billing, job.id, look=5.0)

        await asyncio.create_task(run())
    return kills.commits


@pytest.mark.parametrize("then", ["resumed", "cancelled"])
async def test_a_replay_killed_at_any_commit_applies_each_event_once_and_in_order(
    tmp_path: Path, kills: Kills, then: str
) -> None:
    place, scene = tmp_path / "prepared", tmp_path / "scene"
    place.mkdir()
    await prepared(place)
    commits = await commits_of(place, scene, kills)
    assert commits >= 12
    moments: list[tuple[int, Moment]] = [(n, m) for n in range(1, commits) for m in ("before", "after")]
    chosen = moments[(then == "cancelled") :: THIN]
    parts = set()
    for at in chosen:
        async with copied(place, scene) as shop:
            job = await shop.begun()
            kills.commits, kills.at = 0, at
            await killed(shop, job.id)
            await shop.say(*"abcd")
            if then == "resumed":
                done = await reprocessing.run(shop.billing, job.id, look=0.02)
                assert done.state == "done", (at, done)
            else:
                await decided(shop, job, "cancelled")
            await shop.at_rest_of(shop.orders, shop.billing)
            applied = in_order(shop.applied(shop.billing, "mended"))
            said = {"a": [1, 2, 3], "b": [1, 2], "c": [1], "d": []}
            for key, numbers in said.items():
                live, found = [len(numbers) + 1], applied[key]
                if then == "cancelled":
                    assert found == numbers[: len(found) - 1] + live, (at, key, applied)
                else:  # what was said before its key was closed is applied at once, and again behind what is older
                    assert found in (numbers + live, live + numbers + live), (at, key, applied)
            parts.add(sum(map(len, applied.values())))
            with contextlib.closing(sqlite3.connect(scene / "billing.db")) as connection:
                assert connection.execute(
                    "SELECT count(*) FROM posthouse_head WHERE replay <> '' OR held <> 0"
                ).fetchone() == (0,)
                assert connection.execute("SELECT count(*) FROM posthouse_replay_event").fetchone() == (0,)
    assert then == "resumed" or len(parts) > 3, parts


async def test_two_owners_of_one_job_apply_each_event_once_and_in_order(tmp_path: Path) -> None:
    """Whoever was paused for longer than its lease goes on beside the one who took the job over."""
    place = tmp_path / "prepared"
    place.mkdir()
    await prepared(place)
    async with copied(place, tmp_path / "scene") as shop:
        job = await shop.begun()
        await asyncio.gather(*(reprocessing.run(shop.billing, job.id, lease=0.0, look=0.001) for _ in range(4)))
        done = await app_of(shop.billing).store.jobs.get(job.id)
        assert done is not None
        assert done.state == "done"
        await shop.at_rest_of(shop.orders, shop.billing)
        assert in_order(shop.applied(shop.billing, "mended")) == {"a": [1, 2, 3], "b": [1, 2], "c": [1]}
