"""The notifier between processes: heard, harmless when it cannot be, and gone without a trace."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.local.notifier import LocalNotifier


@pytest.fixture
def bells(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the sockets lie: their paths must be short."""
    with tempfile.TemporaryDirectory(prefix="ph-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield Path(folder)


def folders(bells: Path) -> list[Path]:
    return list(bells.glob("*/*"))


def sockets(bells: Path) -> list[Path]:
    return list(bells.glob("*/*/*"))


async def test_a_ring_wakes_whoever_listens_for_the_same_file(bells: Path) -> None:
    listening, ringing = LocalNotifier("shop.db"), LocalNotifier("shop.db")
    seen = await listening.wait(-1, 0)
    ringing.notify()
    assert await listening.wait(seen, 5) > seen
    listening.close()
    ringing.close()


async def test_the_last_listener_leaves_no_folder_behind(bells: Path) -> None:
    first, second = LocalNotifier("shop.db"), LocalNotifier("shop.db")
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
    notifier = LocalNotifier("shop.db")
    assert await notifier.wait(0, 0.01) == 0
    notifier.close()
    gc.collect()


def planted(bells: Path, *, owner: int, mode: int = 0o755) -> Path:
    """A folder under our name, made by somebody else, with a file and a link to a file that refuse every datagram."""
    treasure = bells / "treasure"
    treasure.write_text("of great worth")
    ours = LocalNotifier("shop.db")._folder
    assert ours is not None
    ours.mkdir(parents=True)
    (ours / "1-0").symlink_to(treasure)
    (ours / "2-0").write_text("of great worth too")
    for place in (ours, ours.parent):
        place.chmod(mode)
        os.chown(place, owner, -1)
    return ours


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can make a folder somebody else's")
async def test_a_folder_that_somebody_else_made_is_not_used_and_nothing_in_it_removed(bells: Path) -> None:
    planted(bells, owner=12345)
    ringing, listening = LocalNotifier("shop.db"), LocalNotifier("shop.db")
    ringing.notify()
    assert await listening.wait(0, 0.01) == 0
    assert ringing.neighbourhood() != listening.neighbourhood()
    assert sorted(path.name for path in sockets(bells)) == ["1-0", "2-0"]
    ringing.close()
    listening.close()


async def test_a_folder_that_anybody_may_write_to_is_not_used(bells: Path) -> None:
    planted(bells, owner=os.getuid(), mode=0o777)
    ringing = LocalNotifier("shop.db")
    ringing.notify()
    assert await ringing.wait(1, 0.01) == 1
    assert sorted(path.name for path in sockets(bells)) == ["1-0", "2-0"]
    ringing.close()


async def test_nothing_but_a_dead_socket_is_ever_removed(bells: Path) -> None:
    ours = planted(bells, owner=os.getuid())
    gone = LocalNotifier("shop.db")
    await gone.wait(-1, 0)
    assert gone._listener is not None
    gone._listener.close()  # as a killed process leaves it
    ringing = LocalNotifier("shop.db")
    ringing.notify()
    assert sorted(path.name for path in ours.iterdir()) == ["1-0", "2-0"]
    assert (bells / "treasure").read_text() == "of great worth"
    ringing.close()


async def test_the_run_time_directory_of_the_user_is_preferred(bells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = bells / "run"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    notifier = LocalNotifier("shop.db")
    await notifier.wait(-1, 0)
    assert len(list(home.glob("posthouse/*/*"))) == 1
    notifier.close()
