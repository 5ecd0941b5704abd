"""Every example runs, and every code block in the documentation is an excerpt of one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCRIPTS = sorted(path for path in (ROOT / "docs" / "examples").glob("*.py") if not path.name.startswith("test_"))
TESTS = sorted((ROOT / "docs" / "examples").glob("test_*.py"))

BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)
PROMISED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def blocks(page: Path) -> list[tuple[str, str, str]]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [(match["mark"] or "", match["language"], match["text"]) for match in found]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_an_example_runs_and_prints_what_the_page_says(script: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(script)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    promised = [
        text for page in PAGES for mark, _, text in blocks(page) if mark == f"prints {script.relative_to(ROOT)}"
    ]
    for text in promised:
        assert run.stdout == text


@pytest.mark.parametrize("file", TESTS, ids=lambda path: path.name)
def test_an_example_of_a_test_passes(file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", str(file)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_code_on_a_page_is_an_excerpt_of_an_example_that_runs(page: Path) -> None:
    for mark, language, text in blocks(page):
        assert mark or language != "python", f"{page.name}: a python block names no example:\n{text}"
        if mark and not mark.startswith("prints ") and language != "diff":  # those are tried in test_recipes
            assert text in (ROOT / mark).read_text(encoding="utf-8"), f"{page.name}: differs from {mark}:\n{text}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_first_screen_of_the_readme_needs_no_clone_and_names_the_two_commands_of_one() -> None:
    readme = ROOT / "README.md"
    (_, _, first), (_, language, example), (_, _, printed), *_ = blocks(readme)
    assert [line.split("#")[0].strip() for line in first.splitlines()] == [
        "pip install posthouse",
        "posthouse quickstart",
    ]
    assert language == "python"
    assert len([line for line in example.splitlines() if line.strip()]) <= 22
    before, _, _ = readme.read_text(encoding="utf-8").partition(example)
    assert "`make demo`" in before
    assert "`make test`" in before
    assert printed


def test_the_first_example_leaves_what_the_readme_says_and_nothing_else(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "docs/examples/quickstart.py")], cwd=tmp_path, check=True)
    [told] = re.findall(r"leave (.+) in the folder:", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(re.findall(r"`([^`]+)`", told))


def test_every_promise_of_the_readme_names_a_test_that_exists() -> None:
    promised = PROMISED_TEST.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(promised) >= 8
    for file, name in promised:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {name}"
