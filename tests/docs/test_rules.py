"""Each rule of `posthouse check` has a page, an example that it catches and one that it leaves alone."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from posthouse.cli.check.gathering import facts_of
from posthouse.governance.policies import RULES, Facts, Settings, examine
from posthouse.service import Service
from tests.docs.rule_pages import EXAMPLES, PAGES, written

TODAY = date(2026, 11, 15)


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    """Examples are called `before` and `after` in every folder."""
    yield
    for name in ("before", "after"):
        sys.modules.pop(name, None)


def facts(folder: Path, name: str) -> Facts:
    """What is known about the services of an example, and about the files beside it."""
    file = folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    services = [value for value in vars(module).values() if isinstance(value, Service)]
    beside = (
        [str(other.relative_to(folder)) for other in sorted(folder.glob("adapters/*.py"))] if name == "after" else []
    )
    settings = Settings(sources=(file.name, *beside), cross_tenant={"shop.analytics.*": ("analytics",)})
    return facts_of(services, settings, root=folder, today=TODAY)


def found(folder: Path, name: str) -> set[str]:
    return {finding.rule for finding in examine(facts(folder, name)).findings}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_catches_its_bad_example(rule: str) -> None:
    assert rule in found(EXAMPLES / rule, "before")


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_leaves_its_good_example_alone(rule: str) -> None:
    left = examine(facts(EXAMPLES / rule, "after"))
    assert not [finding for finding in left.findings if finding.rule == rule]
    assert not left.allowed


@pytest.mark.parametrize("rule", RULES)
def test_a_good_example_breaks_no_other_rule(rule: str) -> None:
    assert not [f for f in examine(facts(EXAMPLES / rule, "after")).findings if f.severity != "info"]


def test_every_page_is_as_its_rule_and_its_examples_say() -> None:
    for file, text in written().items():
        assert file.exists(), f"{file.name} is missing: run python -m tests.docs.rule_pages"
        assert file.read_text(encoding="utf-8") == text, f"{file.name} is old: run python -m tests.docs.rule_pages"


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_what_is_promised_is_how_many_rules_there_are(name: str) -> None:
    assert f" {len(RULES)} anti-patterns" in (PAGES.parents[1] / name).read_text(encoding="utf-8")


def test_no_page_and_no_example_is_left_of_a_rule_that_is_gone() -> None:
    assert {file.stem for file in PAGES.glob("*.md")} == {*RULES, "README"}
    assert {folder.name for folder in EXAMPLES.iterdir()} == set(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_says_what_why_how_and_where_from(rule: object) -> None:
    assert all(getattr(rule, part).strip() for part in ("title", "sees", "why", "fix", "seeds"))
