"""Pressing while a handler holds what is needed: it waits for so long and no longer, says so, and nothing was done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from posthouse.console.acting import pressing, running
from posthouse.console.acting.running import Run
from posthouse.console.acting.table import pressed
from posthouse.console.asking import Refusal
from posthouse.store import HeldFilter
from tests.kit.console_shop import ADMIN, Desk, a_desk
from tests.kit.waiting import eventually


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setattr(pressing, "WAITS", 0.3)
    monkeypatch.setattr(running, "WAITS", 0.3)
    store = (
        f"sqlite:///{tmp_path / 'shop.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    )
    async with a_desk(store, tmp_path) as made:
        yield made


@asynccontextmanager
async def a_handler_at_work(desk: Desk, key: str) -> AsyncIterator[None]:
    """On this key, in a transaction of its own that takes its time."""
    begun, over = asyncio.Event(), asyncio.Event()
    [dead, *_] = await desk.app.store.held.find(HeldFilter(key=key, state="dead"), limit=1)

    async def work() -> None:
        async with desk.app.store.begin() as tx:
            await desk.app.store.inbox.position_of(tx, dead.consumer, dead.entry)
            begun.set()
            await over.wait()

    working = asyncio.create_task(work())
    await begun.wait()
    try:
        yield
    finally:
        over.set()
        await working


async def send(desk: Desk, name: str, **body: object) -> Any:
    answer = await pressed(desk.estate, ADMIN, name, msgspec.json.encode({"service": "billing", **body}))
    return msgspec.json.decode(msgspec.json.encode(answer))


async def test_a_press_waits_no_longer_than_it_says_for_a_key_that_a_handler_holds(desk: Desk) -> None:
    [dead, *_] = await desk.app.store.held.find(HeldFilter(key="bad", state="dead"), limit=1)
    for name in ("held.retry", "held.release", "held.skip"):
        seen = await send(desk, name, id=str(dead.id), dry=True)
        body = {"id": str(dead.id), "why": "ticket 7", "seen": seen["seen"], "press": seen["press"]}
        async with a_handler_at_work(desk, "bad"):
            with pytest.raises(Refusal) as caught:
                async with asyncio.timeout(10):
                    await send(desk, name, **body)
        assert caught.value.status == 503
        assert "Somebody else holds what this needs" in caught.value.message
        assert "Nothing was changed" in caught.value.hint
        [now] = await desk.app.store.held.find(HeldFilter(ids=[dead.id]), limit=1)
        assert now.turn == dead.turn
        assert await desk.app.store.actions.get(dead.entry.tenant, seen["press"]) is None
    assert "is skipped" in (await send(desk, name, **body))["sentence"], "the same press, once the handler is done"


@pytest.mark.parametrize("desk", ["postgres"], indirect=True)
async def test_a_job_passes_over_what_a_handler_holds_and_says_so(desk: Desk) -> None:
    """On SQLite there is one writer, and a job cannot note how far it is either: it waits as a whole."""
    seen = await send(desk, "held.skip.all", consumer="billing", state="dead", dry=True)
    keys = {"why": "ticket 7", "seen": seen["seen"], "press": seen["press"], "consumer": "billing", "state": "dead"}
    begun = await send(desk, "held.skip.all", **keys)
    service = desk.app.services[1]
    job = await desk.app.store.jobs.take([service.name], "one", 30.0)
    assert job is not None
    assert job.id == begun["job"]
    run = Run(service, msgspec.structs.replace(job, rate=1000.0), look=0.01)
    async with a_handler_at_work(desk, "bad"):
        working = asyncio.create_task(run.whole())
        await eventually(lambda: run.job.refused > 0, "one was passed over")
    await working
    ended = await desk.app.store.jobs.get(job.id)
    assert ended is not None
    assert (ended.state, ended.done + ended.refused) == ("done", 3)
    assert "The last refusal" in ended.note
