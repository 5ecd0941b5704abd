"""`posthouse run` as a real process: it works, it stops when asked, and it ends when it is blocked."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.shell import PATIENCE, Shell

SLOW = """
import asyncio
import pathlib
import time

from posthouse import Event, Policy, Service, Tx

slow = Service("slow")


@slow.event("job.requested.v1", key="job")
class JobRequested:
    job: str


@slow.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS done (job TEXT)")


@slow.on(JobRequested)
async def work(event: Event[JobRequested], tx: Tx) -> None:
    pathlib.Path("began").touch()
    if event.data.job == "block":
        time.sleep(3600)
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    await tx.execute("INSERT INTO done VALUES (?)", (event.data.job,))


@slow.on(JobRequested, consumer="deaf", policy=Policy(deadline=0.1))
async def refuse_to_end(event: Event[JobRequested]) -> None:
    while event.data.job == "deaf":
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


async def request(job: str) -> None:
    async with slow.transaction("t1") as tx:
        tx.publish(JobRequested(job=job))
    await slow.aclose()
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path) as made:
        yield made


@pytest.fixture
def slow(shell: Shell) -> Shell:
    (shell.folder / "slow.py").write_text(SLOW)
    return shell


def _request(shell: Shell, job: str) -> None:
    shell.call("-c", f"import asyncio, slow; asyncio.run(slow.request({job!r}))")


def _began(shell: Shell) -> bool:
    return (shell.folder / "began").exists()


def test_a_new_project_runs_applies_what_is_published_and_stops_when_asked(shell: Shell) -> None:
    shell.posthouse("new", "bakery")
    project = Shell(shell.folder / "bakery")
    project.running = shell.running
    process = project.start("app")
    project.call("publish.py", "20")
    project.wait_until(
        lambda: project.rows("bakery.db", "SELECT sum(cents) FROM spending") == [(24_000,)], "the effect of 20 orders"
    )
    assert _members_of_session(process.pid) == [process.pid]
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert "relay, consumers, timers on sqlite:///bakery.db, through embedded:///posthouse-log.db" in project.log()
    assert "stopped, 0 tasks left behind" in project.log()
    assert _members_of_session(process.pid) == []
    assert project.rows("bakery.db", "SELECT count(*) FROM posthouse_shard WHERE owner IS NOT NULL") == [(0,)]
    report = json.loads(project.posthouse("status", "app", "--json"))
    assert report["adds_up"]
    assert (report["lines"][0]["applied"], report["lines"][0]["in_flight"]) == (20, 0)


def test_what_is_in_flight_is_finished_before_the_process_ends(slow: Shell) -> None:
    _request(slow, "a")
    process = slow.start("slow")
    slow.wait_until(lambda: _began(slow), "the first run")
    process.send_signal(signal.SIGTERM)
    slow.wait_until(lambda: "finishing what is in flight" in slow.log(), "the answer to SIGTERM")
    assert process.poll() is None
    (slow.folder / "go").touch()
    assert process.wait(PATIENCE) == 0
    assert slow.rows("slow.db", "SELECT job FROM done") == [("a",)]
    assert json.loads(slow.posthouse("status", "slow", "--json"))["lines"][0]["in_flight"] == 0


def test_a_handler_that_does_not_listen_cannot_keep_the_process(slow: Shell) -> None:
    (slow.folder / "go").touch()
    _request(slow, "deaf")
    process = slow.start("slow")
    slow.wait_until(lambda: "was given up" in slow.log(), "the deadline")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert "stopped, 1 tasks left behind" in slow.log()


def test_a_second_signal_ends_the_process_at_once(slow: Shell) -> None:
    _request(slow, "a")
    process = slow.start("slow")
    slow.wait_until(lambda: _began(slow), "the first run")
    process.send_signal(signal.SIGINT)
    slow.wait_until(lambda: "finishing what is in flight" in slow.log(), "the answer to SIGINT")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    assert slow.rows("slow.db", "SELECT job FROM done") == []


def test_a_second_signal_ends_even_a_process_whose_loop_is_blocked(slow: Shell) -> None:
    _request(slow, "block")
    process = slow.start("slow")
    slow.wait_until(lambda: _began(slow), "the first run")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130


def test_a_process_whose_loop_is_blocked_ends_with_code_70_and_says_where(slow: Shell) -> None:
    _request(slow, "block")
    process = slow.start("slow", "--stall-exit", "1")
    assert process.wait(PATIENCE) == 70
    assert _began(slow)
    assert "the event loop is blocked" in slow.log()
    assert "time.sleep(3600)" in slow.log()


def test_parts_can_run_in_processes_of_their_own(slow: Shell) -> None:
    (slow.folder / "go").touch()
    relay = slow.start("slow", "--only", "relay", "--only", "timers")
    consumers = slow.start("slow", "--only", "consumers")
    _request(slow, "a")
    slow.wait_until(lambda: slow.rows("slow.db", "SELECT job FROM done") == [("a",)], "the effect")
    for process in (relay, consumers):
        process.send_signal(signal.SIGTERM)
    assert [process.wait(PATIENCE) for process in (relay, consumers)] == [0, 0]
    assert "slow: relay, timers on" in slow.log()
    assert "slow: consumers on" in slow.log()


def test_several_services_share_one_process_and_log_json(slow: Shell) -> None:
    (slow.folder / "quiet.py").write_text("from posthouse import Service\nquiet = Service('quiet')\n")
    process = slow.start("slow", "quiet:quiet", "--log-json", "--log-level", "warning")
    slow.wait_until(lambda: "quiet: relay" in slow.log(), "the start of both")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    lines = [json.loads(line) for line in slow.log().splitlines()]
    assert {"slow", "quiet"} <= {line["event"].partition(":")[0] for line in lines}
    assert all({"time", "level", "event"} <= line.keys() for line in lines)


def _members_of_session(session: int) -> list[int]:
    """Processes that a process started and left behind."""
    listed = subprocess.run(["ps", "-o", "pid=", "-s", str(session)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]
