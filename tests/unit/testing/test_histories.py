"""Stored histories, run against a release that changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from posthouse import Event, Payload, Policy, Service
from posthouse.app import app_of
from posthouse.clock import new_id
from posthouse.errors import ConfigurationError
from posthouse.processes import Saga, SagaView, Turn, deadline, on, partial_retry, starts, step, undo
from posthouse.testing import Harness, given
from posthouse.testing.histories import Difference, assert_replays, dump, histories, load, replay
from tests.unit.processes.saga.hotel import AllocationCommitted, BookingSaga, IntentFailed, reservation


class Release:
    """One release of a shop. Tests make two, which differ."""

    fails = 0

    def __init__(
        self, *, seconds: float = 30.0, says_more: bool = False, ends: bool = True, field: bool = False
    ) -> None:
        self.shop = Service("shop")

        @self.shop.event("order.placed.v1", key="order_id")
        class Placed(Payload):
            order_id: str

        @self.shop.event("order.paid.v1", key="order_id")
        class Paid(Payload):
            order_id: str

        @self.shop.event("order.doubted.v1", key="order_id")
        class Doubted(Payload):
            order_id: str

        @self.shop.event("order.sent.v1", key="order_id")
        class Sent(Payload):
            order_id: str
            parcel: str

        @self.shop.event("order.dropped.v1", key="order_id")
        class Dropped(Payload):
            order_id: str

        release = self

        class Order(Saga):
            order_id: str
            parcel: str = ""

            @starts
            def begin(self, turn: Turn) -> None:
                turn.publish(Placed(order_id=self.order_id))
                turn.set(self.too_slow)

            @undo(begin)
            async def drop(self, turn: Turn) -> None:
                await turn.execute("SELECT 1")
                turn.publish(Dropped(order_id=self.order_id))
                if release.fails:
                    release.fails -= 1
                    raise RuntimeError("not now")

            @deadline(seconds)
            def too_slow(self, turn: Turn) -> None:
                turn.compensate("too slow")

            @on(Doubted)
            def doubted(self, event: Event[Doubted], turn: Turn) -> None:
                turn.partial("in doubt")

            @partial_retry
            def again(self, turn: Turn) -> None:
                turn.publish(Placed(order_id=self.order_id))

            @step(Paid)
            def paid(self, event: Event[Paid], turn: Turn) -> None:
                self.parcel = new_id()
                turn.publish(Sent(order_id=self.order_id, parcel=self.parcel))
                if says_more:
                    turn.publish(Placed(order_id=self.order_id))
                if ends:
                    turn.complete()

        if field:

            class Wider(Order):
                colour: str = "red"

            chosen: type[Order] = Wider
        else:
            chosen = Order
        policy = Policy(max_attempts=2, first_delay=5.0, last_delay=5.0)
        self.order: Callable[..., Any] = self.shop.saga("order", correlate="order_id", policy=policy)(chosen)
        self.paid, self.doubted = Paid, Doubted


async def recorded() -> list[SagaView]:
    """Three orders of the first release: paid, too slow, doubted and tried again, and one whose undo failed for good."""
    first = Release()
    async with Harness(first.shop) as harness:
        for order_id in ("paid", "doubted"):
            async with first.shop.transaction("t1") as tx:
                await first.shop.start_saga(tx, first.order(order_id=order_id))
        await harness.publish(first.paid(order_id="paid"))
        await harness.publish(first.doubted(order_id="doubted"))
        await harness.settled()
        await app_of(first.shop).sagas.retry("order", "doubted", tenant="t1", by="anna")
        await app_of(first.shop).sagas.cancel("order", "doubted", "enough", tenant="t1", by="anna")
        async with first.shop.transaction("t1") as tx:
            await first.shop.start_saga(tx, first.order(order_id="slow"))
        await harness.settled()
        first.fails = 2
        await harness.advance(30)
        await harness.advance(10)
        await app_of(first.shop).sagas.resume("order", "slow", tenant="t1", note="by hand")
        return [view async for view in histories(first.shop)]


@pytest.fixture(scope="module")
def stored() -> list[SagaView]:
    return asyncio.run(recorded())


def turns(found: list[Difference]) -> list[tuple[str, int, str]]:
    return [(one.id, one.turn, one.input) for one in found]


async def test_the_histories_are_what_the_tests_are_about(stored: list[SagaView]) -> None:
    assert [(view.row.id, view.row.status, len(view.history)) for view in stored] == [
        ("paid", "completed", 2),
        ("doubted", "cancelled", 4),
        ("slow", "compensated", 4),
    ]
    assert [turn.status for turn in stored[2].history] == [
        "running",
        "compensating",
        "compensation_failed",
        "compensated",
    ]


async def test_the_same_release_does_the_same_but_for_ids_that_are_new(stored: list[SagaView]) -> None:
    assert await replay(Release().shop, stored, ignore=["parcel"]) == []
    ((_, number, given_),) = turns(await replay(Release().shop, stored))
    assert (number, given_) == (2, "event shop.order.paid.v1")


async def test_the_first_turn_that_differs_is_named_with_what_differs(stored: list[SagaView]) -> None:
    found = await replay(Release(says_more=True, ends=False).shop, stored, ignore=["parcel"])
    (one,) = found
    assert (one.id, one.turn, one.input) == ("paid", 2, "event shop.order.paid.v1")
    status, published, *rest = one.what
    assert status == 'status: was "completed", is "running"'
    assert published.startswith('published: was [["shop.order.sent.v1",')
    assert "shop.order.placed.v1" in published.partition("is ")[2]
    assert rest == ['deadlines cleared: was ["too_slow"], is []']


async def test_a_deadline_of_another_length_differs_where_it_is_set(stored: list[SagaView]) -> None:
    found = await replay(Release(seconds=60).shop, stored, ignore=["parcel"])
    assert turns(found) == [("paid", 1, "start begin"), ("doubted", 1, "start begin"), ("slow", 1, "start begin")]
    assert found[0].what == ['deadlines set: was {"too_slow":30.0}, is {"too_slow":60.0}']


async def test_a_new_field_with_a_default_is_no_difference(stored: list[SagaView]) -> None:
    assert await replay(Release(field=True).shop, stored, ignore=["parcel"]) == []


async def test_a_method_that_raises_is_a_difference(stored: list[SagaView]) -> None:
    answers = {"SELECT 1": ValueError("the table is gone")}
    found = await replay(Release().shop, stored, ignore=["parcel"], answers=answers)
    assert turns(found) == [("doubted", 4, "operator cancel")]
    assert found[0].what[0] == 'status: was "cancelled", is "compensating"'


async def test_histories_survive_a_file(stored: list[SagaView]) -> None:
    again = load(dump(stored))
    assert dump(again) == dump(stored)
    await assert_replays(Release().shop, again, ignore=["parcel"])
    with pytest.raises(ConfigurationError, match="line 2 is not the history of a saga"):
        load(dump(stored[:1]) + b"{}\n")


async def test_the_assertion_tells_every_saga_that_differs(stored: list[SagaView]) -> None:
    with pytest.raises(AssertionError) as told:
        await assert_replays(Release(seconds=60).shop, stored)
    lines = str(told.value).splitlines()
    assert lines[0] == "order paid of t1, turn 1 (start begin):"
    assert [line for line in lines if line.startswith("order")][1:] == [
        "order doubted of t1, turn 1 (start begin):",
        "order slow of t1, turn 1 (start begin):",
    ]


async def test_a_saga_that_is_gone_is_refused(stored: list[SagaView]) -> None:
    with pytest.raises(ConfigurationError, match="desk has no saga 'order' any more, and paid is one"):
        await replay(Service("desk"), stored)


async def test_an_undo_whose_fact_did_not_come_is_given_up_again() -> None:
    committed, refused = AllocationCommitted(allocation_id="a1", booking_id="b1"), IntentFailed(booking="b1")
    case = await given(reservation, BookingSaga(booking_id="b1"), committed, refused)
    await case.advance(60)
    assert case.row.status == "compensation_failed"
    await assert_replays(reservation, [SagaView(row=case.row, history=case.history)])


async def test_the_moment_at_which_an_early_event_was_noted_is_no_difference() -> None:
    """The clock goes on between the arrival of an event and its turn."""
    release = Release()
    async with Harness(release.shop) as harness:
        await harness.publish(release.paid(order_id="o1"), tenant="t1")
        await harness.settled()
        found = [view async for view in histories(release.shop)]
    (early,) = found[0].history
    moved = msgspec.structs.replace(early, deadlines_set={"stop waiting": 3600.000017})
    assert early.deadlines_set.keys() == moved.deadlines_set.keys()
    await assert_replays(Release().shop, [SagaView(row=found[0].row, history=[moved])])


async def test_a_history_of_the_kit_can_be_replayed_too() -> None:
    release = Release()
    case = await given(release.shop, release.order(order_id="o1"), release.paid(order_id="o1"))
    await assert_replays(Release().shop, [SagaView(row=case.row, history=case.history)], ignore=["parcel"])
