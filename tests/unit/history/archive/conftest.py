"""An archive that tests read, ask and spoil."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock
from posthouse.history.archive.places import open_place
from posthouse.stores.sqlite import SqliteStore
from tests.kit.archives import member, published, until_archived


@pytest.fixture
async def archive(tmp_path: Path) -> Path:
    """A sound one, of three rounds on two days."""
    clock = ManualClock()
    store, broker = SqliteStore(":memory:", clock=clock), MemoryBroker(clock=clock)
    await store.upgrade()
    place = open_place(f"file://{tmp_path}/archive")
    for turn in range(3):
        await published(broker, 9, first=9 * turn)
        await until_archived(broker, clock, member(broker, place, store.archives, clock))
        clock.advance(50_000.0)
    await store.aclose()
    return tmp_path / "archive"
