"""What Home says is stuck."""

from __future__ import annotations

import inspect
import re

import pytest

from posthouse.console import troubles as module
from posthouse.console.sampling import Look
from posthouse.console.troubles import troubles
from posthouse.store.sagas import FOR_AN_OPERATOR
from posthouse.watch.alerts import runbooks
from posthouse.watch.samples import Sample


@pytest.mark.parametrize("state", FOR_AN_OPERATOR)
def test_a_saga_that_rests_until_somebody_decides_needs_a_person(state: str) -> None:
    [trouble] = troubles(Look(0.0, [Sample("saga_instances", {"service": "s", "saga": "stay", "state": state}, 1.0)]))
    assert trouble.gravity == "now"


def held(state: str, number: float) -> Sample:
    return Sample("held", {"service": "s", "consumer": "c", "topic": "t", "state": state}, number)


def test_what_does_not_go_on_by_itself_is_not_said_to() -> None:
    """An error that no second try can cure leaves a dead event at once: that, and what waits behind it, is a person's."""
    found = {
        one.kind: one for one in troubles(Look(0.0, [held("dead", 1.0), held("blocked", 2.0), held("retrying", 1.0)]))
    }
    assert found["dead"].gravity == "now"
    assert found["blocked"].word == "Waits for an earlier one"
    assert "dead" in found["blocked"].means
    assert "does not heal by itself" in found["retrying"].means


def test_what_waits_says_what_for() -> None:
    for state, word in (("blocked", "earlier"), ("gap", "number"), ("retrying", "tried again")):
        [one] = troubles(Look(0.0, [held(state, 1.0)]))
        assert word in one.word


def test_every_trouble_leads_to_a_runbook_that_is_shipped() -> None:
    look = Look(0.0, [held(state, 1.0) for state in ("dead", "quarantined", "gap", "blocked", "retrying")])
    assert {f"{one.page}.md" for one in troubles(look)} <= set(runbooks())
    named = re.findall(r'page="([a-z-]+)"', inspect.getsource(module))
    assert named
    assert {f"{page}.md" for page in named} <= set(runbooks())


def test_the_age_of_a_saga_is_said_to_be_that_of_its_beginning() -> None:
    labels = {"service": "s", "saga": "stay", "state": "partial"}
    look = Look(0.0, [Sample("saga_instances", labels, 1.0), Sample("saga_oldest_seconds", labels, 600.0)])
    [trouble] = troubles(look)
    assert "begun 10 min ago" in trouble.what


@pytest.mark.parametrize(("metric", "part"), [("store_up", "store"), ("broker_up", "broker")])
def test_one_answer_that_is_late_wakes_nobody_and_silence_that_lasts_does(metric: str, part: str) -> None:
    down = [Sample(metric, {"service": "s"}, 0.0)]
    [late] = troubles(Look(109.0, down, {(metric, "s"): 100.0}))
    [gone] = troubles(Look(110.0, down, {(metric, "s"): 100.0}))
    assert (late.gravity, late.word) == ("soon", "Asked again")
    assert (gone.gravity, gone.what) == ("now", f"The {part} of s cannot be asked.")
