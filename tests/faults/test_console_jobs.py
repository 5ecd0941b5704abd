"""A console is killed in the middle of a job, and another goes on: nothing is left out, and nothing is dealt with twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from posthouse import App, Service
from posthouse.console.access.who import Role, Who
from posthouse.console.acting.table import pressed
from posthouse.console.estate import Estate
from posthouse.store import HeldFilter
from posthouse.store.actions import ActionFilter
from posthouse.store.jobs import Job
from posthouse.testing.store_contract.samples import entry, held
from posthouse.testing.store_contract.steps import hold
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(120)

EVENTS = 100
SHOP = """
from posthouse import Event, Payload, Saga, Service, Turn, partial_retry, starts

shop = Service("shop")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.on(OrderPlaced)
async def bill(event: Event[OrderPlaced]) -> None: ...


@shop.saga("delivery", correlate="delivery_id")
class Delivery(Saga):
    delivery_id: str
    tries: int = 0

    @starts
    def load(self, turn: Turn) -> None:
        turn.partial("no van")

    @partial_retry
    def load_again(self, turn: Turn) -> None:
        self.tries += 1
        turn.complete()
"""
ADA = Who(name="ada", roles=frozenset[Role](("operator",)))


def the_shop() -> Service:
    made: dict[str, Service] = {}
    exec(compile(SHOP, "shop.py", "exec"), made)  # the same declarations as the process has
    return made["shop"]


async def console(folder: Path, store: str) -> asyncio.subprocess.Process:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("POSTHOUSE_")}
    named = {"POSTHOUSE_STORE": store, "POSTHOUSE_BROKER": "memory://?single_host=true"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "posthouse", "console", "shop:shop", "--http", "127.0.0.1:0",
        cwd=folder, env={**clean, **named}, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else f"sqlite:///{tmp_path}/shop.db"


async def outlived(folder: Path, app: App, id: str) -> Job:
    """The job at its end, of which a console that was killed has done a part."""

    async def job() -> Job | None:
        return await app.store.jobs.get(id)

    process: asyncio.subprocess.Process | None = None
    try:
        process = await console(folder, app.opened.ports.store_url)
        await eventually(job, right=lambda job: job.done >= 40, within=40)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        process = await console(folder, app.opened.ports.store_url)
        return await eventually(job, right=lambda job: job.state == "done", within=40)
    finally:
        if process is not None and process.returncode is None:
            process.terminate()
            await process.wait()


async def test_a_job_outlives_a_console_that_is_killed(tmp_path: Path, store_url: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    shop = the_shop()
    app = App(shop, store=store_url, broker="memory://")
    await app.store.upgrade()
    dead = [held(entry(1, key=f"o-{number}"), "dead") for number in range(EVENTS)]
    await hold(app.store, *(msgspec.structs.replace(event, consumer="shop") for event in dead))
    estate, body = Estate(app), {"service": "shop", "state": "dead", "rate": 60}

    seen = await _sent(estate, "held.skip.all", **body, dry=True)
    id = (await _sent(estate, "held.skip.all", **body, why="ticket 7", seen=seen["seen"], press=seen["press"]))["job"]

    done = await outlived(tmp_path, app, id)
    assert (done.total, done.done, done.refused, done.token) == (EVENTS, EVENTS, 0, 2)
    noted = Counter(action.event_id for action in await app.actions.find(ActionFilter(verb="held skip"), 1_000))
    assert noted == Counter(event.entry.event_id for event in dead)
    states = Counter(event.state for event in await app.store.held.find(HeldFilter(), limit=1_000))
    assert states == {"skipped": EVENTS}
    await app.aclose()


async def test_a_job_over_sagas_outlives_one_too(tmp_path: Path, store_url: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    made: dict[str, Any] = {}
    exec(compile(SHOP, "shop.py", "exec"), made)
    shop, app = made["shop"], App(made["shop"], store=store_url, broker="memory://?single_host=true")
    await app.store.upgrade()
    await app.open()
    async with shop.transaction("t1") as tx:
        for number in range(EVENTS):
            await shop.start_saga(tx, made["Delivery"](delivery_id=f"d-{number}"))
    estate, body = Estate(app), {"service": "shop", "saga": "delivery", "failure": "no van", "rate": 60}
    seen = await _sent(estate, "saga.retry.all", **body, dry=True)
    assert seen["counts"] == {"sagas": EVENTS}
    answer = await _sent(estate, "saga.retry.all", **body, why="a van came", seen=seen["seen"], press=seen["press"])
    done = await outlived(tmp_path, app, answer["job"])
    assert (done.total, done.done, done.applied, done.refused, done.token) == (EVENTS, EVENTS, EVENTS, 0, 2)
    noted = Counter(action.target for action in await app.actions.find(ActionFilter(verb="saga retry"), 1_000))
    assert noted == Counter(f"saga delivery d-{number}" for number in range(EVENTS))
    rows = [row async for row in app.sagas.find()]
    assert len(rows) == EVENTS
    assert {(row.status, msgspec.json.decode(row.state)["tries"]) for row in rows} == {("completed", 1)}
    await app.aclose()


async def _sent(estate: Estate, name: str, **body: object) -> Any:
    answer = await pressed(estate, ADA, name, msgspec.json.encode(body))
    return msgspec.json.decode(msgspec.json.encode(answer))
