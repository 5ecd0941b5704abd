"""Replays and what is secret: a failure says nothing about a person, and keys that are away cost no run."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from posthouse import reprocessing
from posthouse.history.replay import Choice
from posthouse.store.jobs import Job
from posthouse.store.replays import Staged
from posthouse.watch.status import drained
from tests.kit.guests import Hotel
from tests.kit.waiting import eventually

NAME = "Ada-Lovelace"


async def _registered(folder: Path) -> None:
    hotel = Hotel(folder)
    async with hotel.app.running():
        await hotel.register("g1", NAME)
        await eventually(lambda: hotel.heard)
        await drained(hotel.service)
    await hotel.app.aclose()


async def _begun(hotel: Hotel) -> Job:
    choice = Choice(consumer="hotel", reprocess=True)
    return await reprocessing.begin(hotel.service, choice, total=1, rate=0.0, by="ada", why="ticket 7")


async def _aside(hotel: Hotel, job: Job) -> list[Staged]:
    table = hotel.app.store.replays
    return [row for line in await table.lines(job.id, None, 10) for row in await table.of_line(job.id, line, None, 10)]


def _kept(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("*.db*"))


def _take_away(folder: Path) -> None:
    for path in folder.glob("keys.db*"):
        path.rename(path.with_name(f"away-{path.name}"))
    (folder / "keys.db").mkdir()


def _bring_back(folder: Path) -> None:
    (folder / "keys.db").rmdir()
    for path in folder.glob("away-keys.db*"):
        path.rename(path.with_name(path.name.removeprefix("away-")))


async def test_what_a_failed_handler_says_about_a_person_is_kept_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _registered(tmp_path)
    hotel = Hotel(tmp_path)
    hotel.fails = True
    await hotel.app.open()
    with caplog.at_level(logging.DEBUG):
        job = await reprocessing.run(hotel.service, (await _begun(hotel)).id, look=0.02)
    (row,) = await _aside(hotel, job)
    assert (job.state, "no room for …" in row.error, "no room for …" in job.note) == ("paused", True, True)
    assert "no room for …" in caplog.text
    assert NAME not in caplog.text
    await hotel.app.aclose()
    assert NAME.encode() not in _kept(tmp_path)


async def test_while_keys_are_away_no_run_is_counted_and_it_goes_on_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _registered(tmp_path)
    hotel = Hotel(tmp_path)
    await hotel.app.open()
    _take_away(tmp_path)
    job = await _begun(hotel)
    with caplog.at_level(logging.INFO, "posthouse.replay"):
        running = asyncio.create_task(reprocessing.run(hotel.service, job.id, look=0.02))
        await eventually(lambda: caplog.text.count("tried again") > 2)
    (row,) = await _aside(hotel, job)
    assert (row.attempts, row.error, running.done(), hotel.heard) == (0, "", False, [])
    _bring_back(tmp_path)
    assert (await asyncio.wait_for(running, 30.0)).state == "done"
    assert [(event.data.name, event.replayed) for event in hotel.heard] == [(NAME, True)]
    await hotel.app.aclose()
