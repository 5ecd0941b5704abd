"""The anti-pattern gates over all 22 services: nothing is found that is not explained, and nothing is explained in vain."""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path

import pytest

from melmastoon.facts.everything import facts_of as facts_said
from melmastoon.platform import GROUPS, SERVICES, TARGETS
from posthouse.cli.check.gathering import facts_of, settings_in
from posthouse.cli.target import load_all
from posthouse.governance.policies import Examination, Facts, Settings, Severity, examine

ROOT = Path(__file__).parents[3] / "melmastoon"


@cache
def _settings() -> Settings:
    settings, root = settings_in(ROOT)
    assert root == ROOT
    return settings


@cache
def _facts() -> Facts:
    modules = [target.partition(":")[0] for target in TARGETS]
    return facts_of(SERVICES, _settings(), root=ROOT, today=date(2027, 1, 1), modules=modules)


@cache
def _examination() -> Examination:
    return examine(_facts())


@pytest.mark.parametrize("severity", [Severity.ERROR, Severity.WARNING])
def test_nothing_is_found_that_is_not_explained(severity: Severity) -> None:
    assert [finding for finding in _examination().findings if finding.severity == severity] == []


def test_every_exception_is_still_needed() -> None:
    used = {(one.finding.rule, one.because) for one in _examination().allowed}
    assert [one for one in _settings().allow if (one.rule, one.reason) not in used] == []


def test_no_rule_is_switched_off_or_made_milder() -> None:
    assert (_settings().off, _settings().severity) == ((), {})


def test_the_code_of_every_handler_is_read_and_no_fact_is_unheard() -> None:
    handlers = _facts().document.handlers
    unread = [handler.name for handler in handlers if _facts().place_of(handler) is None]
    assert unread == []
    assert {reading.subject for handler in handlers for reading in handler.reads} >= {
        fact.name for fact in facts_said(SERVICES)
    }


def test_the_platform_is_22_services_in_groups_and_each_is_in_one() -> None:
    names = [service.name for group in GROUPS.values() for service in group]
    assert len(names) == len(set(names)) == 22
    assert [service.name for service in SERVICES] == names


def test_every_service_can_be_named_on_the_command_line() -> None:
    assert load_all(TARGETS) == list(SERVICES)
