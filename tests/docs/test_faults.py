"""Every line of the table of faults is proven by tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_fault_names_tests_that_exist() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    faults = [line for line in lines if not re.match(r"\| (\| )?fault ", line)]
    assert len(faults) >= 35
    for line in faults:
        named = PROOF.findall(line)
        assert named, f"nothing proves {line}"
        for file, name in named:
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {name}"


def test_the_faults_that_postgresql_must_stand_are_all_there() -> None:
    numbers = {int(found) for found in re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)}
    assert {*range(1, 13), 20, *range(24, 29), 33, 34, 42, 43, 45, 47, *range(51, 55), 59, 60} <= numbers
