"""A process that is killed while it waits for a vendor."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(90)


def member(folder: Path, *words: str) -> int:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("POSTHOUSE_")}
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.calling_member", *words],
        cwd=folder,
        env={**clean, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        timeout=60,
        check=False,
    ).returncode


def test_a_call_that_a_crash_cut_short_is_made_again_with_the_same_event_and_counts_once(tmp_path: Path) -> None:
    assert member(tmp_path, "publish") == -signal.SIGKILL
    assert member(tmp_path, "go on") == 0
    asked = [line.split() for line in (tmp_path / "calls.txt").read_text().splitlines()]
    of_the_first = [event_id for event_id, order in asked if order == "o1"]
    assert len(of_the_first) == 2
    assert len(set(of_the_first)) == 1, "the vendor can tell that it is the same charge"
    with sqlite3.connect(tmp_path / "desk.db") as connection:
        rows = connection.execute("SELECT * FROM charge ORDER BY order_id").fetchall()
    connection.close()
    assert rows == [(f"o{n}", f"receipt o{n}") for n in (1, 2, 3)]
