"""The pages that say where things are: every place that they name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["docs/architecture.md", "docs/glossary.md"]
PLACE = re.compile(r"`([a-z_]+(?:/[\w.]*)*(?:\.py|\.sql|/)?)(?:::([\w.]+))?`")


def places(page: str) -> list[tuple[str, str]]:
    """Paths, each with the name in it that the page promises, or none."""
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    found = [match.groups("") for row in rows for match in PLACE.finditer(row)]
    return [(path, name) for path, name in found if "/" in path or path.endswith((".py", ".sql"))]


def names_in(path: Path) -> set[str]:
    """Classes, functions, and methods as `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {node.name, *(f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, DEFINED))}
        elif isinstance(node, DEFINED):
            found.add(node.name)
    return found


DEFINED = ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.parametrize("page", PAGES)
def test_every_place_that_a_page_names_is_there(page: str) -> None:
    named = places(page)
    missing = []
    for path, name in named:
        there = next((base / path for base in (ROOT / "src/posthouse", ROOT) if (base / path).exists()), None)
        if there is None or (name and name not in names_in(there)):
            missing.append(f"{path}::{name}" if name else path)
    assert len(named) > 20
    assert missing == []


def test_every_room_is_on_the_page() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    rooms = [path.name for path in (ROOT / "src/posthouse").iterdir() if (path / "__init__.py").exists()]
    assert [room for room in rooms if f"{room}/" not in page] == []
