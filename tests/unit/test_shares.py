"""`python -m tests`: a test that fails once is named, one that fails again fails the run."""

from __future__ import annotations

from pathlib import Path

import pytest

import tests.__main__ as shares

pytestmark = pytest.mark.slow
STEADY = "def test_well():\n    pass\n"
BAD = "def test_badly():\n    assert False\n"
UNSTEADY = """
from pathlib import Path

def test_now_and_then():
    mark = Path(__file__).with_name("mark")
    first = not mark.exists()
    mark.touch()
    assert not first
"""


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *texts: str) -> int:
    for number, text in enumerate(texts):
        (folder / f"test_{number}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setattr(shares, "ROOT", folder)
    monkeypatch.setattr(shares, "SHARES", {f"share {number}": (f"test_{number}.py",) for number in range(len(texts))})
    return shares.main([])


def test_one_that_fails_beside_the_others_and_passes_alone_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, UNSTEADY, STEADY) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-3] == "UNSTEADY test_0.py::test_now_and_then: failed beside the other shares, passed alone"
    assert said[-2].startswith("share 0: 1 failed in")
    assert said[-1].startswith("share 1: 1 passed in")


def test_one_that_fails_again_fails_the_run_and_is_named_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, STEADY, BAD) == 1
    assert capsys.readouterr().out.splitlines()[-2] == "FAILED test_1.py::test_badly"


def test_many_failures_are_no_bad_luck(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = UNSTEADY + "".join(f"\ndef test_bad_{n}():\n    assert False\n" for n in range(shares.FEW))
    assert run(monkeypatch, tmp_path, many) == 1
    said = capsys.readouterr().out
    assert "UNSTEADY" not in said
    assert "alone" not in said


def test_a_run_without_a_test_is_no_success(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run(monkeypatch, tmp_path, "") != 0


def test_shares_beyond_those_at_once_run_when_one_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shares, "AT_ONCE", 1)
    assert run(monkeypatch, tmp_path, STEADY, STEADY) == 0
    said = [line.partition("|")[0].strip() for line in capsys.readouterr().out.splitlines() if "|" in line]
    assert said == sorted(said), "one after the other"
    assert {*said} == {"share 0", "share 1"}
