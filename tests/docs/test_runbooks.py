"""The runbooks: each says what it must, and its commands are tried on an application in trouble."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posthouse.cli import app as cli
from posthouse.trust.signatures.keys import Key, write_keys
from posthouse.watch.alerts import alerts, runbooks
from tests.docs.commands import is_one_of_ours
from tests.docs.runbook_pages import PAGES, written
from tests.kit.audit import KEY, Spoilable
from tests.kit.troubled import bring_into_trouble

BLOCK = re.compile(r"```\n(.*?)```", re.DOTALL)
NAMES = sorted(page.stem for page in PAGES.glob("*.md"))
CAUSES = [name for name in NAMES if name != "README"]
ORDER = ("**What it means for the business.**", "<!-- alerts -->", "## Look", "## Press", "## Did it help?")


def blocks(name: str) -> list[str]:
    found: list[str] = BLOCK.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))
    return found


def commands(name: str) -> list[str]:
    """All of a page, in its blocks and in its sentences, those aside that are cut short."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    lines = [line.removeprefix("$ ") for block in blocks(name) for line in block.splitlines()]
    said = re.findall(r"`(posthouse [^`…]+)`", BLOCK.sub("", text))
    return [line for line in lines if line.startswith("posthouse ")] + [one for one in said if " app" in one]


def examples(name: str) -> list[tuple[str, list[str]]]:
    """`$ posthouse …` with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for block in blocks(name):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ posthouse "), []))
            elif found and "$ " in block:
                found[-1][1].append(line)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A shop in trouble, that nobody runs."""
    place = tmp_path_factory.mktemp("troubled")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.syspath_prepend(str(place))
        bring_into_trouble(place)
        _touch_a_log(place)
        yield place
    sys.modules.pop("app", None)


def _touch_a_log(place: Path) -> None:
    """An audit log, of which somebody has changed an event."""
    write_keys(place / "keys.toml", [Key(id="a1", public=KEY.public, source=f"/{KEY.name}", use="audit")])
    log = Spoilable(place)
    log.fill(300)
    touched = [event.replace(b'"o17"', b'"o71"') for event in log.batch(0).events]
    log.rewrite(0, touched)


def test_every_page_has_the_table_of_its_alerts_and_the_index_has_all() -> None:
    for file, text in written().items():
        assert file.read_text(encoding="utf-8") == text, f"{file.name} is old: run python -m tests.docs.runbook_pages"
    assert {f"{one.page}.md" for one in alerts()} | {"README.md"} == {file.name for file in PAGES.iterdir()}


def test_the_package_has_the_pages() -> None:
    assert set(runbooks()) == {file.name for file in PAGES.iterdir()}
    links = {link for text in runbooks().values() for link in re.findall(r"\]\(([^)]+)\)", text)}
    assert links <= set(runbooks()), "pages that are put elsewhere link to nothing that stays here"


@pytest.mark.parametrize("name", CAUSES)
def test_a_page_begins_with_the_business_and_ends_with_whether_it_helped(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    places = [text.find(part) for part in ORDER]
    assert -1 not in places, ORDER[places.index(-1)]
    assert places == sorted(places)
    assert text[: places[0]].count("\n") == 2, "the business comes first"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_of_a_page_is_one_of_ours_with_options_that_it_has(name: str) -> None:
    for command in commands(name):
        is_one_of_ours(command)


@pytest.mark.parametrize("name", [name for name in CAUSES if examples(name)])
def test_what_a_page_says_that_a_command_prints_is_printed(folder: Path, name: str) -> None:
    for command, lines in examples(name):
        sys.modules.pop("app", None)
        run = CliRunner().invoke(cli, shlex.split(command), catch_exceptions=False)
        said = run.output
        assert run.exit_code != 2, said
        assert said
        pattern = ".*".join(".*".join(map(re.escape, line.split("…"))) for line in lines)
        assert re.search(pattern, said, re.DOTALL), f"{command} printed:\n{said}"
