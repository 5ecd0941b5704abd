"""docs/melmastoon.md: every path of the five sagas is ticked, with a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "melmastoon.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## The five sagas")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| ([a-z -]+) \| .+ \| `([\w/]+\.py)::(test_\w+)` \|$", SECTION, re.MULTILINE)
SAGAS = {"booking", "cancellation", "check-in", "check-out", "date change"}


def test_every_saga_has_rows_and_every_row_names_a_test() -> None:
    assert {saga for saga, _, _ in ROWS} >= SAGAS
    assert len(ROWS) == SECTION.count("\n| ") - 1  # the heading of the table


@pytest.mark.parametrize(("file", "name"), [(file, name) for _, file, name in ROWS])
def test_each_test_is_there(file: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / "tests" / "unit" / "melmastoon" / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", re.findall(r"`(tests/[\w/]+\.py)`", SECTION))
def test_each_file_of_tests_is_there(path: str) -> None:
    assert (ROOT / path).is_file()
