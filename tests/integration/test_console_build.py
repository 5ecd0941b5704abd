"""The interface of the console: the files in the tree are what the sources give; small, from here alone, and harmless."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.kit.interface import ROOT, SOURCES, STATIC, Workshop

BUDGET = 110_000
"""Bytes of everything, gzipped."""
NOT_FETCHED = ("http://www.w3.org/",)
"""Names of namespaces: addresses in form alone."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="module")
def built(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workshop.build(tmp_path_factory.mktemp("built") / "static")


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_the_files_in_the_tree_are_what_the_sources_give(built: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "--", str(STATIC)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if not tracked.stdout:
        pytest.skip("src/posthouse/console/static is not tracked here: there is nothing to compare with")
    names = {Path(line).name for line in tracked.stdout.splitlines()}
    fresh = contents(built)
    assert names == set(fresh), "build the interface anew: cd console && npm install && npm run build"
    for name in names:
        assert (STATIC / name).read_bytes() == fresh[name], f"{name} was not built from these sources"


def test_another_build_elsewhere_gives_the_same_bytes(built: Path, workshop: Workshop, tmp_path: Path) -> None:
    assert contents(workshop.build(tmp_path / "a folder" / "static")) == contents(built)


def test_all_of_it_is_within_the_budget(built: Path) -> None:
    sizes = {name: len(gzip.compress(content, 6)) for name, content in contents(built).items()}
    assert sum(sizes.values()) <= BUDGET, sizes


def test_the_page_loads_files_of_its_own_and_runs_nothing_inline(built: Path) -> None:
    page = (built / "index.html").read_text()
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(addresses) >= 3, "the icon, the style, the script; and what the script needs at once"
    for address in addresses:
        name = address.removeprefix("@BASE@/static/")
        assert address.startswith("data:image/svg+xml,") or (built / name).is_file(), address
    assert not re.search(r"<style|style=|\son\w+=|<script(?! type=\"module\" src=)", page)


def test_all_of_the_style_is_loaded_by_the_page(built: Path) -> None:
    [style] = built.glob("*.css")
    assert style.name in (built / "index.html").read_text(), "import it in style/main.css"


def test_nothing_is_named_that_another_host_would_serve(built: Path) -> None:
    for name, content in contents(built).items():
        if name == "licenses.txt":
            continue
        found = re.findall(r"(?:https?:)?//[\w-]+\.[\w./-]+", content.decode())
        assert [one for one in found if not one.startswith(NOT_FETCHED)] == [], name
        assert "@import" not in content.decode(), name


def test_every_package_in_the_bundle_is_there_with_its_licence(built: Path) -> None:
    text = (built / "licenses.txt").read_text()
    for name in ("@dagrejs/dagre", "@preact/signals", "@preact/signals-core", "preact"):
        assert re.search(rf"^{re.escape(name)} \d+\.\d+\.\d+$", text, re.MULTILINE), name
    assert text.count("Permission is hereby granted") >= 4


def test_versions_are_exact_so_that_tomorrow_builds_the_same() -> None:
    manifest = json.loads((SOURCES / "package.json").read_text())
    pins = {**manifest["dependencies"], **manifest["devDependencies"], **manifest["overrides"]}
    assert [name for name, version in pins.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []


def test_types_are_right(workshop: Workshop) -> None:
    assert workshop.check() == ""


def test_what_needs_no_browser_does_what_its_tests_say(workshop: Workshop) -> None:
    assert workshop.test() == ""


@pytest.mark.parametrize(
    "word", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"]
)
def test_no_source_makes_markup_or_code_of_text(word: str) -> None:
    for source in SOURCES.joinpath("src").rglob("*.ts*"):
        assert word.lower() not in source.read_text().lower(), source
