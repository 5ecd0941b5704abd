"""The platform under faults: in many seeded runs, under SIGKILL on files, and on servers. Whatever is killed, money adds up, no
night is sold twice, no key outlives its stay, every saga ends in a state that has a name, and no fact is lost, applied twice or
out of order. POSTHOUSE_LONG takes 200 runs, and a longer one on servers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec
import pytest

from melmastoon.demo.figures import Figures
from melmastoon.demo.play import played
from melmastoon.demo.runs import runs
from tests.kit.long import LONG
from tests.kit.servers.house import house
from tests.kit.servers.postgres import Unavailable
from tests.kit.servers.table import give_up

SEEDS, BOOKINGS = (200, 15) if LONG else (10, 4)
OUTCOME = ("bookings", "sagas_by_kind", "compensations", "partials", "money")
"""What must not depend on what is killed."""


@pytest.mark.slow
@pytest.mark.timeout(7200 if LONG else 400)
def test_the_invariants_hold_in_many_seeded_runs_with_kills_and_a_broker_that_has_a_bad_day() -> None:
    wrong: dict[int, object] = {}
    kills, fates = 0, set[str]()
    for seed, figures in runs(range(1, SEEDS + 1), BOOKINGS, jobs=2):
        kills += figures.kills
        fates |= figures.bookings.keys()
        if not figures.adds_up:
            wrong[seed] = figures.findings
    assert wrong == {}
    assert kills > SEEDS
    assert {"checked_out", "cancelled: guest"} <= fates


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_same_seed_has_the_same_outcome_whether_processes_are_killed_or_not(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as aside:  # the witness stays with a process
        calm, stormy = aside.map(_played, [tmp_path / "calm", tmp_path / "stormy"], [0.0, 0.9])
    assert calm.adds_up, calm.findings
    assert stormy.adds_up, stormy.findings
    assert stormy.kills >= calm.kills + 5
    for play in (calm, stormy):
        assert (play.erased, play.forged, play.readable) == (3, 8, 0), "one guest of each hotelier; one forged payment"
        assert play.noise > 3
    for name in OUTCOME:
        assert getattr(stormy, name) == getattr(calm, name), name


def _played(folder: Path, killing: float) -> Figures:
    folder.mkdir()
    return asyncio.run(played(folder, bookings=6, seed=5, killing=killing))


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_command_prints_one_object_and_nothing_else() -> None:
    command = [sys.executable, "-m", "posthouse", "demo", "--bookings", "2", "--seed", "3", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert sum(said["bookings"].values()) == 2
    assert sum(said["sagas"].values()) >= 2
    assert said["money_balanced"] is True
    names = ("nights_oversold", "keys_lingering", "lost", "duplicated", "out_of_order")
    assert {name: said[name] for name in names} == dict.fromkeys(names, 0)
    assert len(said["events"]) == 83
    assert msgspec.convert(said, Figures).adds_up


@pytest.mark.slow
@pytest.mark.timeout(1800 if LONG else 400)
def test_the_invariants_hold_on_postgresql_and_nats_with_a_process_killed_every_few_seconds() -> None:
    bookings = "60" if LONG else "3"
    demo = ["demo", "--bookings", bookings, "--seed", "2", "--every", "4", "--json"]
    environment = {**os.environ, "MELMASTOON_PACE": "20"}
    try:
        with house() as urls:
            command = [sys.executable, "-m", "posthouse", *demo, "--store", urls.store, "--broker", urls.broker]
            ended = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=1700 if LONG else 360, env=environment
            )
    except Unavailable as error:
        give_up("postgresql", f"no PostgreSQL for the platform: {error}")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    figures = msgspec.json.decode(ended.stdout, type=Figures)
    assert figures.adds_up, figures.findings
    assert figures.kills >= 3
    assert sum(figures.bookings.values()) == int(bookings)
