"""docs/melmastoon.md: every fact of the platform is ticked, with a test that is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from melmastoon.facts.everything import SERVICES, facts_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "melmastoon.md"
TESTS = ROOT / "tests" / "unit" / "melmastoon"
ROW = re.compile(r"^\| `([a-z0-9_.]+\.v1)` \| (.+?) \| (hot|warm|cold) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)

CLASSES = {fact.name: fact.payload.cls.__name__ for fact in facts_of(SERVICES)}
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


@cache
def _functions(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    found = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(found)


def test_the_table_has_a_row_for_each_of_the_82_facts_as_they_are_declared() -> None:
    listed = sorted((f"melmastoon.{subject}", owner, retention) for subject, owner, retention, _, _ in ROWS)
    assert listed == [(fact.name, fact.terms.owner, fact.terms.retention) for fact in facts_of(SERVICES)]


@pytest.mark.parametrize(("subject", "cell"), [(row[0], row[4]) for row in ROWS])
def test_each_fact_names_a_test_that_is_there(subject: str, cell: str) -> None:
    cited = re.findall(r"`([\w/]+\.py)::(test_\w+)`", cell)
    assert cited, f"{subject} is not ticked"
    assert [f"{file}::{name}" for file, name in cited if name not in _functions(file)] == []
    payload = CLASSES[f"melmastoon.{subject}"]
    assert any(payload in (TESTS / file).read_text(encoding="utf-8") for file, _ in cited), f"none looks at {payload}"
