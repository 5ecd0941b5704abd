"""Live: browsers are told which parts have changed, cheaply, and go on where they were."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from posthouse import App, Event, Payload, Policy, Service, Tx
from posthouse.console import live
from posthouse.console.access.who import Who
from posthouse.console.estate import Estate
from posthouse.operators import OperatorsLog
from posthouse.store import Action
from tests.kit.console import unguarded
from tests.kit.serving import serving
from tests.kit.sse import Listener, listening
from tests.kit.waiting import eventually

orders = Service("orders", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@orders.on(OrderPlaced, policy=Policy(max_attempts=1))
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    if event.data.order_id == "bad":
        raise ValueError("no")


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.setattr(live, "EVERY", 0.05)
    app = App(orders, store=f"sqlite:///{tmp_path}/orders.db", broker=f"memory://{tmp_path.name}")
    await app.open()
    yield app
    await app.aclose()


def topics(listener: Listener) -> set[str]:
    return {topic for message in listener.messages for topic in message["topics"]}


async def place(order: str) -> None:
    async with orders.transaction("t1") as tx:
        tx.publish(OrderPlaced(order_id=order))


async def test_a_change_is_told_with_the_parts_that_show_it(app: App) -> None:
    async with serving(unguarded(Estate(app))) as url, listening(f"{url}/api/live", {}) as one:
        await one.hears("ready")
        await place("o1")
        await eventually(lambda: "outbox:orders" in topics(one))
        assert {"home", "map"} <= topics(one)
        assert "held:orders" not in topics(one)
        assert "log:orders" not in topics(one)
        async with app.running():
            await place("bad")
            await eventually(lambda: {"held:orders", "consumers:orders", "processes:orders"} <= topics(one))
        async with app.store.begin() as tx:
            await OperatorsLog(app.store, "orders").note(tx, Action(verb="skip", by="ada", why="it is bad"))
        await eventually(lambda: "log:orders" in topics(one))


async def test_nothing_is_told_while_nothing_changes(app: App) -> None:
    async with serving(unguarded(Estate(app))) as url, listening(f"{url}/api/live", {}) as one:
        await one.hears("ready")
        looks = counted(app)
        await eventually(lambda: len(looks) > 3)
        assert one.messages == []


async def test_whoever_was_away_is_told_what_it_missed(app: App) -> None:
    async with serving(unguarded(Estate(app))) as url:
        async with listening(f"{url}/api/live", {}) as one:
            await one.hears("ready")
        await place("o1")
        async with listening(f"{url}/api/live", {}, one.last_id) as again:
            await eventually(lambda: "outbox:orders" in topics(again))
        assert "ready" not in [heard.event for heard in again.heard]
        async with listening(f"{url}/api/live?after={one.last_id}", {}) as follower:
            await eventually(lambda: "outbox:orders" in topics(follower))


async def test_a_position_of_another_console_is_told_to_fetch_anew(app: App) -> None:
    async with serving(unguarded(Estate(app))) as url:
        for odd in ("other~3", "x", "~", "other~99999999999999999999"):
            async with listening(f"{url}/api/live", {}, odd) as one:
                await one.hears("must-refetch")


async def test_many_browsers_cost_no_more_looks_than_one(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.3)
    looks = counted(app)
    async with serving(unguarded(Estate(app))) as url, contextlib.AsyncExitStack() as stack:
        many = [await stack.enter_async_context(listening(f"{url}/api/live", {})) for _ in range(20)]
        for one in many:
            await one.hears("ready")
        loop = asyncio.get_running_loop()
        before, began = len(looks), loop.time()
        await eventually(lambda: len(looks) >= before + 3)
        assert len(looks) - before <= (loop.time() - began) / 0.3 + 2


async def test_nobody_looks_while_nobody_listens(app: App) -> None:
    looks = counted(app)
    async with serving(unguarded(Estate(app))) as url:
        async with listening(f"{url}/api/live", {}) as one:
            await one.hears("ready")
        begun = {task for task in asyncio.all_tasks() if "Broadcast._read" in repr(task)}
        await eventually(lambda: all(task.done() for task in begun), "the reader ends")
        assert looks


def scoped(inner: ASGIApp) -> ASGIApp:
    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        who = Who(name="ada", roles=frozenset(("reader",)), tenants=frozenset(("t2",)))
        scope.setdefault("state", {})["who"] = who
        await inner(scope, receive, send)

    return around


async def test_who_sees_some_tenants_hears_a_clock_and_nothing_of_others(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told does not depend on what happens: figures of a store are those of all tenants."""
    async with serving(scoped(unguarded(Estate(app)))) as url:
        async with listening(f"{url}/api/live", {}) as one:
            await one.hears("ready")
            async with app.running():
                await place("bad")
                await eventually(lambda: app.store.counts(), right=lambda counts: bool(counts.held))
            monkeypatch.setattr(live, "EVERY_SCOPED", 0.2)
            await eventually(lambda: len(one.messages) > 1)
            assert {tuple(message["topics"]) for message in one.messages} == {
                ("held:orders", "sagas:orders", "timers:orders")
            }
        async with listening(f"{url}/api/live", {}, one.last_id) as again:
            await eventually(lambda: bool(again.messages))


async def test_no_person_takes_the_places_of_others(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EACH", 3)
    inner = unguarded(Estate(app))
    person = "eve"

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["who"] = Who(name=person, roles=frozenset(("reader",)))
        await inner(scope, receive, send)

    async with serving(named) as url, contextlib.AsyncExitStack() as stack:
        many = [await stack.enter_async_context(listening(f"{url}/api/live", {})) for _ in range(3)]
        for one in many:
            await one.hears("ready")
        more = await stack.enter_async_context(listening(f"{url}/api/live", {}))
        await more.hears("busy")
        person = "ada"
        another = await stack.enter_async_context(listening(f"{url}/api/live", {}))
        await another.hears("ready")


def counted(app: App) -> list[float]:
    """When the store was looked at."""
    looks: list[float] = []
    gauges = app.store.gauges

    async def counting(*, timeout: float = 5.0) -> object:  # as the port has it
        looks.append(asyncio.get_running_loop().time())
        return await gauges(timeout=timeout)

    app.store.gauges = counting  # type: ignore[method-assign,assignment]
    return looks
