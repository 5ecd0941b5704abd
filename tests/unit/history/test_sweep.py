"""Rows leave the store once they are in the folder, each of them, wherever somebody dies in between."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec
import pytest
import pytest_asyncio

from posthouse.clock import ManualClock
from posthouse.errors import ArchiveUnavailable
from posthouse.history.audit.place import Place
from posthouse.history.audit.places.folder import Folder
from posthouse.history.sweep import Sweep
from posthouse.store import HeldEvent, HeldFilter, Store
from posthouse.store.retention import SeenRow
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing.store_contract.samples import entry, held
from posthouse.testing.store_contract.steps import claim, hold

DAY = 86_400.0


class Died(Exception):
    """The process ended here."""


class Dying:
    """A folder whose process dies at a step: before it has written, or after."""

    name = "dying"

    def __init__(self, folder: Folder, step: str) -> None:
        self.folder, self.step = folder, step

    def put(self, path: str, data: bytes) -> bool:
        if self.step == "before":
            raise Died
        self.folder.put(path, data)
        raise Died


class DyingStore:
    """A store whose process dies before it has forgotten anything, or after that was committed."""

    def __init__(self, store: Store, step: str) -> None:
        self.inbox, self.retention, self._store, self._step = store.inbox, self, store, step

    async def old_seen(self, age: float, limit: int) -> object:
        return await self._store.retention.old_seen(age, limit)

    async def forget_seen(self, rows: list[SeenRow]) -> int:
        if self._step == "forgotten":
            await self._store.retention.forget_seen(rows)
        raise Died


@pytest_asyncio.fixture
async def store() -> AsyncIterator[Store]:
    store: Store = SqliteStore(":memory:", clock=ManualClock())
    await store.upgrade()
    yield store
    await store.aclose()


def files(folder: Path, what: str) -> list[Path]:
    return sorted(folder.glob(f"{what}/*/*/*/*.jsonl"))


def lines(folder: Path, what: str) -> list[bytes]:
    return [line for file in files(folder, what) for line in file.read_bytes().splitlines()]


async def with_old_rows(clock: ManualClock, store: Store) -> None:
    for number in range(5):
        await claim(store, entry(None, event_id=f"e{number}"))
        clock.advance(1.0)
    await hold(store, *(held(entry(None, event_id=f"h{number}"), "skipped") for number in range(3)))
    clock.advance(40 * DAY)
    await claim(store, entry(None, event_id="young"))


@pytest.mark.parametrize("step", ["before", "after", "not forgotten", "forgotten"])
async def test_wherever_somebody_dies_each_row_is_in_the_folder_once_and_gone_from_the_store(
    tmp_path: Path, step: str
) -> None:
    clock = ManualClock()
    store = SqliteStore(":memory:", clock=clock)
    await store.upgrade()
    await with_old_rows(clock, store)
    local = Folder(tmp_path)
    if step in ("before", "after"):
        folder = cast("Place", Dying(local, step))
        dying = Sweep(store, 30 * DAY, 30 * DAY, folder)
    else:
        dying = Sweep(DyingStore(store, step), 30 * DAY, 30 * DAY, local)  # type: ignore[arg-type]  # two of its tables
    with pytest.raises(Died):
        await dying.inbox()
    left = len(await store.retention.old_seen(-1.0, 100))
    assert left == (1 if step == "forgotten" else 6)

    sweep = Sweep(store, 30 * DAY, 30 * DAY, local)
    for _ in range(3):
        await sweep.inbox()
        await sweep.held()
    seen = [msgspec.json.decode(line, type=SeenRow) for line in lines(tmp_path, "inbox")]
    assert [row.event_id for row in seen] == [f"e{number}" for number in range(5)]
    assert [row.event_id for row in await store.retention.old_seen(-1.0, 100)] == ["young"]
    given_up = [msgspec.json.decode(line, type=HeldEvent) for line in lines(tmp_path, "held")]
    assert sorted(event.entry.event_id for event in given_up) == ["h0", "h1", "h2"]
    assert await store.held.find(HeldFilter()) == []
    async with store.begin() as tx:
        assert await store.inbox.position_of(tx, "billing", entry(None, event_id="young")) is not None
    await store.aclose()


async def test_what_the_folder_does_not_take_stays_and_leaves_when_it_does(tmp_path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(":memory:", clock=clock)
    await store.upgrade()
    await with_old_rows(clock, store)
    place = tmp_path / "rows"
    place.write_text("a file is no folder")
    sweep = Sweep(store, 30 * DAY, 30 * DAY, Folder(place))
    with pytest.raises(ArchiveUnavailable, match="make room, or give the right"):
        await sweep.inbox()
    with pytest.raises(ArchiveUnavailable):
        await sweep.held()
    assert len(await store.retention.old_seen(30 * DAY, 100)) == 5
    assert len(await store.held.find(HeldFilter())) == 3
    place.unlink()
    assert await sweep.inbox() == (5, False)
    assert await sweep.held() == (3, False)
    assert len(lines(place, "inbox")) == 5
    await store.aclose()


async def test_without_a_folder_rows_are_only_deleted_and_given_up_ones_stay_where_that_was_said(store: Store) -> None:
    await claim(store, entry(None))
    await hold(store, held(entry(None), "skipped"))
    assert await Sweep(store, 30 * DAY, None).inbox() == (0, False)
    assert await Sweep(store, -1.0, None).inbox() == (1, False)
    assert await Sweep(store, -1.0, None).held() == (0, False)
    assert await Sweep(store, -1.0, -1.0).held() == (1, False)


async def test_a_file_is_called_by_what_is_in_it(tmp_path: Path, store: Store) -> None:
    await claim(store, entry(None))
    await Sweep(store, -1.0, None, Folder(tmp_path)).inbox()
    (file,) = files(tmp_path, "inbox")
    assert file.stem == hashlib.sha256(file.read_bytes()).hexdigest()[:32]
