"""A blocked event loop is noticed; a busy or sleeping one is not."""

from __future__ import annotations

import asyncio
import threading

from posthouse import App, Event, Policy, Service, Tx
from posthouse.app import apps_of
from posthouse.cli.run import longest_deadline
from posthouse.cli.watchdog import Watchdog
from tests.kit.shop import OrderPlaced


async def test_a_blocked_loop_is_reported_with_its_stack() -> None:
    stacks: list[str] = []
    stalled = threading.Event()

    def note(stack: str) -> None:
        stacks.append(stack)
        stalled.set()

    with Watchdog(0.05, note).watching():
        assert stalled.wait(10)  # this blocks the loop
    assert "test_a_blocked_loop_is_reported_with_its_stack" in stacks[0]


async def test_a_loop_that_turns_is_left_alone() -> None:
    stacks: list[str] = []
    with Watchdog(0.2, stacks.append).watching():
        for _ in range(100):  # turns of the loop, over several times the limit
            await asyncio.sleep(0.01)
    assert stacks == []


def test_the_longest_deadline_is_that_of_all_services_of_an_app_also_those_nobody_named() -> None:
    orders, billing = Service("orders"), Service("billing")
    orders.event("order.placed.v1", key="order_id")(OrderPlaced)

    @billing.on(OrderPlaced, policy=Policy(deadline=900.0))
    async def slowly(event: Event[OrderPlaced], tx: Tx) -> None: ...

    App(orders, billing, store="sqlite://", broker="memory://")
    assert longest_deadline(apps_of([orders])) == 900.0
