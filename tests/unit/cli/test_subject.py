"""`posthouse subject`: what it says of an erasure."""

from __future__ import annotations

import pytest

from posthouse.cli.subject import _show
from posthouse.erasure import SNAPSHOTS, Erased
from posthouse.remains import Found

ERASED = Erased(tenant="t1", subject="g1", dry_run=False, places=[Found("log"), Found(SNAPSHOTS, note="0 dropped")])


def test_what_was_looked_through_is_proven(capsys: pytest.CaptureFixture[str]) -> None:
    _show(ERASED)
    assert "nothing about this person can be read any more\n" in capsys.readouterr().out


def test_a_place_where_nobody_could_look_leaves_it_unproven(capsys: pytest.CaptureFixture[str]) -> None:
    blind = Found("log", note="not looked at to its end: it keeps none", unseen=True)
    erased = Erased(tenant="t1", subject="g1", dry_run=False, places=[blind])
    assert not erased.proven
    _show(erased)
    said = capsys.readouterr().out
    assert "not proven: nobody could look at all of log\n" in said
    assert "can be read any more" not in said
