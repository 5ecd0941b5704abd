"""A process that dies while a saga calls outside: the call is made again with the same key, and what was paid is known."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(90)


def member(folder: Path, where: str) -> int:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("POSTHOUSE_")}
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.saga_calling_member", where],
        cwd=folder,
        env={**clean, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        timeout=80,
        check=False,
    ).returncode


def found(folder: Path) -> tuple[list[str], list[str], str]:
    """By which keys the bank was asked, what was booked, and how the claim ended."""
    asked = (folder / "bank.txt").read_text().split() if (folder / "bank.txt").exists() else []
    with sqlite3.connect(folder / "claims.db") as connection:
        booked = [what for (what,) in connection.execute("SELECT what FROM book ORDER BY rowid")]
        [(status,)] = connection.execute("SELECT status FROM posthouse_saga").fetchall()
    connection.close()
    return asked, booked, status


RUNS = [("asked", "nowhere"), ("heard", "nowhere"), ("answered", "nowhere"), ("heard", "called off")]
Found = tuple[list[str], list[str], str]


def lives(folder: Path, where: str, after: str) -> Found:
    folder.mkdir()
    assert member(folder, where) == -signal.SIGKILL
    assert member(folder, after) == 0
    return found(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Found]:
    """All of them side by side: each waits some seconds until what the dead process had in hand is free."""
    folder = tmp_path_factory.mktemp("claims")
    with ThreadPoolExecutor() as pool:
        every = {run: pool.submit(lives, folder / "-".join(run), *run) for run in RUNS}
    return {run: future.result() for run, future in every.items()}


@pytest.mark.parametrize(("where", "times"), [("asked", 1), ("heard", 2), ("answered", 2)])
def test_a_call_that_a_crash_cut_short_is_made_again_by_the_same_key_and_counts_once(
    runs: dict[tuple[str, str], Found], where: str, times: int
) -> None:
    asked, booked, status = runs[where, "nowhere"]
    assert (len(asked), len(set(asked))) == (times, 1)
    assert (booked, status) == (["paid r1"], "completed")


def test_what_was_paid_in_a_crash_is_recalled_when_the_saga_is_called_off(runs: dict[tuple[str, str], Found]) -> None:
    asked, booked, status = runs["heard", "called off"]
    assert len(set(asked)) == 1
    assert (booked, status) == (["recalled r1"], "cancelled")
