"""The doorbell between processes: heard, harmless when it cannot be, and gone without a trace."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.local.doorbell import Doorbell


@pytest.fixture
def bells(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the sockets lie: their paths must be short."""
    with tempfile.TemporaryDirectory(prefix="ph-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def folders(bells: Path) -> list[Path]:
    return list(bells.glob("*/*"))


def sockets(bells: Path) -> list[Path]:
    return list(bells.glob("*/*/*"))


async def test_a_ring_wakes_whoever_listens_for_the_same_file(bells: Path) -> None:
    listening, ringing = Doorbell("shop.db"), Doorbell("shop.db")
    seen = await listening.wait(-1, 0)
    ringing.ring()
    assert await listening.wait(seen, 5) > seen
    listening.close()
    ringing.close()


async def test_the_last_listener_leaves_no_folder_behind(bells: Path) -> None:
    first, second = Doorbell("shop.db"), Doorbell("shop.db")
    await first.wait(-1, 0)
    await second.wait(-1, 0)
    assert len(sockets(bells)) == 2
    first.close()
    assert len(sockets(bells)) == 1
    second.close()
    assert folders(bells) == []


async def test_where_no_socket_can_be_made_waiting_goes_on_in_silence(
    bells: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(bells / ("long" * 30)))
    bell = Doorbell("shop.db")
    assert await bell.wait(0, 0.01) == 0
    bell.close()
    gc.collect()
