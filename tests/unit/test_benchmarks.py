"""The benchmarks run and say what they promise to say; how fast anything is, no test decides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import MEASURES, run
from benchmarks.reading import Scale

KEYS = {"measure", "ours", "limit", "ratio", "goal", "met", "unit"}


def test_a_measure_prints_one_json_object_per_line() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "benchmarks", "--only", "publish-100", "--quick", "--rounds", "1", "--json"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=True)
    [reading] = [json.loads(line) for line in done.stdout.splitlines()]
    assert set(reading) == KEYS
    assert reading["measure"] == "publish-100"
    assert reading["ours"] > 0 < reading["limit"]


def test_an_unknown_measure_is_refused_with_the_names_of_all() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "benchmarks", "--only", "flying"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "flying" in done.stderr
    assert "publish-100" in done.stderr


@pytest.mark.parametrize("name", ["relay", "consume", "consume-unordered", "consume-grouped", "consume-list"])
async def test_a_comparison_works_with_very_few_events(name: str) -> None:
    [reading] = await run(name, Scale(share=0.0, rounds=1))
    assert reading.measure == name
    assert reading.ratio is not None


def test_every_measure_says_what_it_does() -> None:
    assert all(measure.__doc__ for measure in MEASURES.values())
