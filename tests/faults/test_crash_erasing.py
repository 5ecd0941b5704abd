"""`posthouse subject erase`, killed at its steps and run again: the guest ends erased, it is proven, and it was said once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from posthouse.events import decode_any
from tests.kit.long import LONG

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

ERASE = (
    "subject", "erase", "tests.faults.erase_member:service", "--tenant", "t1", "--subject", "g1", "--why", "asked", "--yes",
    "--json", "--within", "30",
)  # fmt: skip
AT_ONCE = 3
SHORT = 6
"""So many of the commits are tried where there is no time for all."""


def member(folder: Path, *words: str, step: int = 0, moment: str = "after") -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POSTHOUSE_")}
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.erase_member", *words],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(Path(__file__).parents[2]), "ERASE_STEP": str(step), "ERASE_MOMENT": moment},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def lasting(steps: Sequence[str]) -> list[int]:
    """Commits of something that was written to the store or to the keys, up to the last one that counts."""
    found, writes = list[int](), set[str]()
    for number, step in enumerate(steps, 1):
        book, _, statement = step.partition(": ")
        if statement.startswith("COMMIT") and book in writes and book != "log":
            found.append(number)
        if statement.startswith(("BEGIN", "COMMIT")):
            writes.discard(book)
        elif not statement.startswith(("SELECT", "PRAGMA")):
            writes.add(book)
    return found


def receipts(folder: Path) -> int:
    with sqlite3.connect(folder / "hotel.db") as store:
        rows = store.execute("SELECT headers, body FROM posthouse_outbox").fetchall()
    store.close()
    types = [decode_any(json.loads(headers), body).type for headers, body in rows]
    return types.count("hotel.subject.erased.v1")


def test_an_erasure_that_is_killed_at_any_commit_is_finished_by_running_it_again(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    registered = member(first, "register")
    assert registered.returncode == 0, registered.stderr
    whole = shutil.copytree(first, tmp_path / "whole")
    undisturbed = member(whole, *ERASE)
    assert undisturbed.returncode == 0, undisturbed.stderr
    commits = lasting((whole / "steps").read_text().splitlines())
    assert len(commits) >= SHORT
    chosen = commits if LONG else commits[:SHORT]
    points = [
        (step, moment)
        for number, step in enumerate(chosen)
        for moment in (("before", "after") if LONG else (("before", "after")[number % 2],))
    ]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert sum(threads.map(lambda point: killed_and_run_again(first, *point), points)) == len(points)


def killed_and_run_again(first: Path, step: int, moment: str) -> int:
    """One kill, in a folder of its own."""
    folder, where = shutil.copytree(first, first.parent / f"{step} {moment}"), f"killed {moment} step {step}"
    died = member(folder, *ERASE, step=step, moment=moment)
    assert died.returncode == -signal.SIGKILL, (where, died.stderr)
    again = member(folder, *ERASE)
    assert again.returncode == 0, (where, again.stdout, again.stderr)
    done = json.loads(again.stdout)
    assert done["proven"], (where, done)
    assert {one["opened"] for one in done["places"]} == {0}, where
    assert sum(one["boxes"] for one in done["places"]) >= 4, where
    assert receipts(folder) == 1, where
    return 1
