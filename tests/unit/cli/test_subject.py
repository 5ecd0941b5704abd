"""`posthouse subject`: what it says of an erasure."""

from __future__ import annotations

import pytest

from posthouse.cli.subject import _show
from posthouse.erasure import SNAPSHOTS, Erased, Found

ERASED = Erased(tenant="t1", subject="g1", dry_run=False, places=[Found("log"), Found(SNAPSHOTS, note="0 dropped")])


def test_what_was_looked_through_is_proven(capsys: pytest.CaptureFixture[str]) -> None:
    _show(ERASED)
    assert "nothing about this person can be read any more\n" in capsys.readouterr().out


def test_a_place_where_nobody_could_look_is_named_with_the_proof(capsys: pytest.CaptureFixture[str]) -> None:
    blind = Erased(tenant="t1", subject="g1", dry_run=False, places=[Found("log", note="not looked at: it keeps none")])
    _show(blind)
    assert "can be read any more where it was looked: not in log\n" in capsys.readouterr().out
