"""The benchmarks run and say what they promise to say; how fast anything is, no test decides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks import report
from benchmarks.__main__ import MEASURES, run
from benchmarks.postgres.fencing import faults
from benchmarks.postgres.measures import BIG
from benchmarks.postgres.measures import MEASURES as POSTGRES
from benchmarks.reading import Scale, at_most
from posthouse.broker import Delivery, Frame

KEYS = {"measure", "ours", "limit", "ratio", "goal", "met", "unit"}


@pytest.mark.slow
def test_a_measure_prints_one_json_object_per_line() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "benchmarks", "--only", "publish-100", "--quick", "--rounds", "1", "--json"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=True)
    [reading] = [json.loads(line) for line in done.stdout.splitlines()]
    assert set(reading) == KEYS
    assert reading["measure"] == "publish-100"
    assert reading["ours"] > 0 < reading["limit"]


@pytest.mark.slow
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
    assert all(measure.__doc__ for measure in (*MEASURES.values(), *POSTGRES.values(), *BIG.values()))


def test_readings_go_between_the_markers_of_their_name_and_nowhere_else(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "speed.json"
    page.write_text("before\n<!-- speed: begin -->\nold\n<!-- speed: end -->\nafter\n", encoding="utf-8")
    results.write_bytes(msgspec.json.encode([at_most("idle", 1.5, 5.0, "% of a core")]))
    report.main(page, results)
    assert page.read_text(encoding="utf-8") == (
        f"before\n<!-- speed: begin -->\n{report.HEAD}\n| idle | 1.50 |  | % of a core |  | ≤ 5 % of a core | yes |\n"
        "<!-- speed: end -->\nafter\n"
    )


def test_a_page_without_the_markers_is_refused(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "speed.json"
    page.write_text("nothing\n", encoding="utf-8")
    results.write_bytes(b"[]")
    with pytest.raises(SystemExit, match="speed: begin"):
        report.main(page, results)


def test_a_repeat_is_no_fault_but_an_event_before_its_turn_and_a_missing_one_are() -> None:
    assert faults(logged(1, 2, 1, 2, 3), 3) == (0, 0)
    assert faults(logged(1, 3, 2), 3) == (2, 0)
    assert faults(logged(1, 2), 3) == (0, 1)


def logged(*numbers: int) -> list[Delivery]:
    """What a log holds of one key."""
    return [
        Delivery(
            frame=Frame(topic="t", id=str(n), body=json.dumps({"subject": "k", "sequence": f"{n:020d}"}).encode()),
            position=position,
            stored_at=0.0,
        )
        for position, n in enumerate(numbers)
    ]
