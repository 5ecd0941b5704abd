"""`posthouse hotel`: the platform alive, with the console on it, until it is told to end."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_guests_come_while_processes_are_killed_and_ctrl_c_ends_it_all(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "posthouse", "hotel", "--http", "127.0.0.1:0", "--every", "3", "--no-strikes"]
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "MELMASTOON_PACE": "20"}
    with (tmp_path / "said").open("w") as said:
        living = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
    try:
        _until(living, lambda: re.search(r"http://127\.0\.0\.1:\d+/", (tmp_path / "said").read_text()) is not None)
        _until(living, lambda: _sagas(tmp_path) > 10)
    finally:
        living.send_signal(signal.SIGINT)
        ended = living.wait(60)
    assert ended == 0, (tmp_path / "said").read_text()
    assert list(tmp_path.glob("posthouse-hotel-*")) == []


def _sagas(folder: Path) -> int:
    """Begun so far."""
    for file in folder.glob("posthouse-hotel-*/reservation.db"):
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as store:
            found = store.execute("SELECT count(*) FROM posthouse_saga").fetchone()
            return int(found[0])
    return 0


def _until(living: subprocess.Popen[bytes], happens: object) -> None:
    assert callable(happens)
    while not happens():
        assert living.poll() is None
        time.sleep(0.2)
