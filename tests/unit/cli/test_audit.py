"""`posthouse audit`: what each verb prints, and what it says to wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker import Frame
from posthouse.history.audit.batches import batch_path, travelled
from posthouse.history.audit.keys import verifiers
from posthouse.history.audit.log import AuditLog
from posthouse.history.audit.places.folder import Folder
from tests.unit.cli.conftest import Project

KEYS = ("--keys", "keys.toml")
BOTH = (*KEYS, "--private", "private")
SECOND = ("--second", "second")


def _log(project: Project, start: int, end: int) -> None:
    frames = [
        Frame(topic="shop.orders.order", id=f"e{number}", key="t1:o1", body=b"{}") for number in range(start, end)
    ]
    AuditLog(Folder(project.folder / "log")).append([travelled(frame) for frame in frames])


@pytest.fixture
def signed(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A log of 300 events under one checkpoint."""
    monkeypatch.chdir(project.folder)
    made = project.run("keys", "new", "a1", "--use", "audit", "--source", "/shop", "--file", "keys.toml", *BOTH[2:])
    assert made.exit_code == 0, made.output
    _log(project, 0, 300)
    ran = project.run("audit", "checkpoint", "log", *BOTH, *SECOND)
    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith("300 events signed as shop: checkpoints/0000000000000300-")
    return project


def _touch(project: Project) -> None:
    path = project.folder / "log" / batch_path(0)
    path.write_bytes(path.read_bytes().replace(b"e17\xb1", b"e1X\xb1", 1))


def test_a_log_that_nobody_touched_is_verified(signed: Project) -> None:
    ran = signed.run("audit", "verify", "log", *KEYS, *SECOND)
    assert (ran.exit_code, ran.output) == (0, "300 events as signed, 1 checkpoint\n")
    _log(signed, 300, 301)
    ran = signed.run("audit", "verify", "log", *KEYS)
    assert ran.output == "300 events as signed, 1 checkpoint; 1 event more not under a checkpoint yet\n"


def test_a_touched_event_is_named_and_the_code_is_1(signed: Project) -> None:
    _touch(signed)
    ran = signed.run("audit", "verify", "log", *KEYS)
    assert ran.exit_code == 1
    assert ran.output.splitlines()[0] == "event e17 at position 17 was changed"
    ran = signed.run("audit", "verify", "log", *KEYS, "--json")
    assert ran.exit_code == 1
    told: Any = json.loads(ran.stdout)
    assert (told["good"], told["events"], told["signed"]) == (False, 300, 300)
    assert [(one["kind"], one["id"], one["position"]) for one in told["findings"]] == [("changed", "e17", 17)]


def test_an_archive_that_lacks_what_was_logged_is_told(signed: Project) -> None:
    ran = signed.run("audit", "verify", "log", *KEYS, "--archive", f"file://{signed.folder}/archive")
    assert ran.exit_code == 1
    assert "event e17, logged at position 17, is not in the archive" in ran.output


def test_a_key_for_notes_takes_the_place_of_a_file(signed: Project) -> None:
    [key] = verifiers(signed.folder / "keys.toml")
    assert signed.run("audit", "verify", "log", "--key", str(key)).exit_code == 0
    ran = signed.run("audit", "verify", "log", "--key", "nobody")
    assert ran.exit_code == 2
    assert "--key: 'nobody' is no key for notes" in ran.output


def test_a_checkpoint_of_a_revoked_key_is_told(signed: Project) -> None:
    assert signed.run("keys", "revoke", "a1", "--file", "keys.toml").exit_code == 0
    ran = signed.run("audit", "verify", "log", *KEYS)
    assert ran.exit_code == 1
    assert "is signed with a key that was revoked" in ran.output
    refused = signed.run("audit", "checkpoint", "log", *BOTH)
    assert refused.exit_code == 2
    assert "none of them is active with its private half here" in refused.output
    signed.run("keys", "new", "a2", "--use", "audit", "--source", "/shop", "--file", "keys.toml", *BOTH[2:])
    _log(signed, 300, 310)
    assert signed.run("audit", "checkpoint", "log", *BOTH, *SECOND).exit_code == 0
    ran = signed.run("audit", "verify", "log", *KEYS, *SECOND)
    assert (ran.exit_code, ran.output) == (0, "310 events as signed, 2 checkpoints\n")


def test_a_proof_is_written_and_checked_far_from_the_log(signed: Project, tmp_path: Path) -> None:
    ran = signed.run("audit", "prove", "e17", "log", *KEYS, "--out", "e17.tlog-proof")
    assert ran.exit_code == 0, ran.output
    (signed.folder / "log").rename(signed.folder / "away")
    told: Any = signed.json("audit", "check", "e17.tlog-proof", *KEYS)
    assert (told["id"], told["position"], told["size"], told["log"]) == ("e17", 17, 300, "shop")
    assert signed.run("audit", "check", "e17.tlog-proof", *KEYS).output.endswith(
        "e17 was logged as it is in e17.tlog-proof\n"
    )
    proof = signed.folder / "e17.tlog-proof"
    proof.write_text(proof.read_text().replace("index 17", "index 18"))
    ran = signed.run("audit", "check", "e17.tlog-proof", *KEYS)
    assert ran.exit_code == 1
    assert (
        "e17.tlog-proof proves nothing: the event is not the one that was signed, or not at this position" in ran.output
    )


def test_what_is_not_there_is_said(signed: Project) -> None:
    ran = signed.run("audit", "prove", "e999", "log", *KEYS)
    assert (ran.exit_code, "e999 is not among the 300 events" in ran.output) == (2, True)
    ran = signed.run("audit", "check", "nothing", *KEYS)
    assert (ran.exit_code, "nothing: No such file" in ran.output) == (2, True)
    ran = signed.run("audit", "verify", "s4://bucket", *KEYS)
    assert (ran.exit_code, "no place is called 's4'" in ran.output) == (2, True)
    ran = signed.run("audit", "verify", "empty", *KEYS)
    assert (ran.exit_code, "empty holds no checkpoint" in ran.output) == (1, True)


def test_keys_for_facts_do_not_sign_checkpoints(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.folder)
    project.run("keys", "new", "o1", "--source", "/shop/orders", "--file", "keys.toml", *BOTH[2:])
    for ran in (project.run("audit", "checkpoint", "log", *BOTH), project.run("audit", "verify", "log", *KEYS)):
        assert ran.exit_code == 2
        assert "keys.toml has no key for checkpoints" in ran.output


def test_the_standing_names_what_is_late(signed: Project) -> None:
    told: Any = signed.json("audit", "status", "log", *KEYS, *SECOND)
    assert (told["events"], told["signed"], told["copied"], told["problems"]) == (300, 300, 300, [])
    _log(signed, 300, 400)
    late = signed.run("audit", "status", "log", *KEYS, "--within", "0")
    assert late.exit_code == 1
    assert "100 events wait for the next" in late.output
    assert (
        "second place has a checkpoint of 0 events"
        in signed.run("audit", "status", "log", *KEYS, "--second", "x").output
    )
    (signed.folder / "log" / batch_path(300)).unlink()
    (signed.folder / "log" / batch_path(0)).unlink()
    assert "300 events were signed, and 0 are there" in signed.run("audit", "status", "log", *KEYS).output


def test_a_witness_gets_what_it_asks_for(signed: Project) -> None:
    _log(signed, 300, 400)
    signed.run("audit", "checkpoint", "log", *BOTH)
    ran = signed.run("audit", "consistency", "300", "log", *KEYS)
    assert ran.exit_code == 0
    assert ran.output.startswith("old 300\n")
    assert "\n\nshop\n400\n" in ran.output
