"""One id, several attempts: what begins again, which attempt an event belongs to, and what a tombstone does with it."""

from __future__ import annotations

import dataclasses

import pytest

from posthouse import Event, Payload, Saga, Service
from posthouse.app import app_of
from posthouse.errors import DeskError
from posthouse.processes import SagaStart, late, on, starts, step, undo
from posthouse.processes.saga import Turn
from posthouse.store.sagas import SagaFilter, SagaRow
from posthouse.testing import Harness
from tests.unit.processes.saga.claims import (
    ClaimApproved,
    ClaimClosed,
    ClaimRefused,
    ClaimSaga,
    InspectionSaga,
    claims,
)


async def start(id: str = "c1", *, correlation: str | None = None) -> SagaStart:
    async with claims.transaction("t1", correlation=correlation) as tx:
        return await claims.start_saga(tx, ClaimSaga(claim_id=id))


async def attempts(id: str = "c1") -> list[SagaRow]:
    return [row async for row in app_of(claims).sagas.find(SagaFilter(saga="claim", id=id, tombstones=True))]


async def test_a_start_answers_started_running_or_ended() -> None:
    async with Harness(claims) as h:
        first, second = await start(), await start()
        await h.publish(ClaimClosed(claim_id="c1"), tenant="t1")
        await h.settled()
        third = await start()
    assert first == SagaStart(outcome="started", attempt=1, status="running")
    assert second == SagaStart(outcome="running", attempt=1, status="running")
    assert third == SagaStart(outcome="ended", attempt=1, status="completed")
    assert [bool(answer) for answer in (first, second, third)] == [True, False, False]


async def test_after_an_end_that_was_named_the_same_id_begins_again_with_a_new_attempt() -> None:
    async with Harness(claims) as h:
        await start()
        await app_of(claims).sagas.cancel("claim", "c1", "a mistake", tenant="t1")
        again = await start()
        running = await start()
        await h.publish(ClaimRefused(claim_id="c1"), tenant="t1")
        await h.settled()
        third = await start()
        rows = await attempts()
    assert again == SagaStart(outcome="started", attempt=2, status="running")
    assert running == SagaStart(outcome="running", attempt=2, status="running")
    assert third == SagaStart(outcome="started", attempt=3, status="running")
    assert [(row.attempt, row.status) for row in rows] == [(1, "cancelled"), (2, "compensated"), (3, "running")]


async def test_without_again_an_id_is_used_once() -> None:
    async with Harness(claims):
        async with claims.transaction("t1") as tx:
            assert await claims.start_saga(tx, InspectionSaga(inspection_id="i1"))
        await app_of(claims).sagas.cancel("inspection", "i1", "a mistake", tenant="t1")
        async with claims.transaction("t1") as tx:
            answer = await claims.start_saga(tx, InspectionSaga(inspection_id="i1"))
    assert answer == SagaStart(outcome="ended", attempt=1, status="cancelled")


async def test_each_attempt_has_deadlines_of_its_own() -> None:
    async with Harness(claims) as h:
        await start()
        await h.advance(400.0)
        await app_of(claims).sagas.cancel("claim", "c1", "a mistake", tenant="t1")
        await start()
        await h.advance(300.0)
        assert [row.status for row in await attempts()] == ["cancelled", "running"]
        await h.advance(300.0)
        assert [(row.status, row.reason) for row in await attempts()] == [
            ("cancelled", "a mistake"),
            ("compensated", "forgotten"),
        ]


async def test_an_event_with_the_correlation_of_an_attempt_belongs_to_it_and_any_other_to_the_newest() -> None:
    async with Harness(claims) as h:
        await start(correlation="monday")
        await app_of(claims).sagas.cancel("claim", "c1", "a mistake", tenant="t1")
        await start(correlation="tuesday")
        for correlation in ("monday", "somebody's request"):
            async with claims.transaction("t1", correlation=correlation) as tx:
                tx.publish(ClaimApproved(claim_id="c1"))
        await h.settled()
        first, second = [
            await app_of(claims).sagas.show("claim", "c1", tenant="t1", attempt=number) for number in (1, 2)
        ]
        newest = await app_of(claims).sagas.show("claim", "c1", tenant="t1")
    assert [(turn.method, turn.late) for turn in first.history[-1:]] == [("", True)]
    assert first.row.status == "cancelled"
    assert [done.step for done in second.row.done] == ["opened", "approved"]
    assert [turn.method for turn in second.history] == ["opened", "approved"], "the one of monday is not its own"
    assert newest == second


async def test_an_attempt_that_begins_in_the_correlation_of_an_older_one_is_given_another() -> None:
    async with Harness(claims) as h:
        await start(correlation="one visit")
        await app_of(claims).sagas.cancel("claim", "c1", "a mistake", tenant="t1")
        assert await start(correlation="one visit")
        async with claims.transaction("t1", correlation="one visit") as tx:
            tx.publish(ClaimApproved(claim_id="c1"))
        await h.settled()
        first, second = await attempts()
    assert first.correlation == "one visit"
    assert second.correlation not in (None, "one visit")
    assert [done.step for done in second.done] == ["opened"], "what the first one set going is not the second one's"


async def test_operators_name_the_attempt_or_mean_the_newest() -> None:
    async with Harness(claims):
        sagas = app_of(claims).sagas
        await start()
        await sagas.cancel("claim", "c1", "a mistake", tenant="t1")
        await start()
        with pytest.raises(DeskError, match="is cancelled: only a running"):
            await sagas.cancel("claim", "c1", "again", tenant="t1", attempt=1)
        with pytest.raises(DeskError, match="there is no saga claim c1"):
            await sagas.cancel("claim", "c1", "again", tenant="t1", attempt=3)
        row = await sagas.cancel("claim", "c1", "again", tenant="t1")
    assert (row.attempt, row.status) == (2, "cancelled")


shop = Service("shop", namespace="town")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.event("order.paid.v1", key="order_id")
class OrderPaid(Payload):
    order_id: str


@shop.event("order.sent.v1", key="order_id")
class OrderSent(Payload):
    order_id: str


@shop.event("order.lost.v1", key="order_id")
class OrderLost(Payload):
    order_id: str


@shop.saga("order", correlate="order_id", again=("compensated",))
class OrderSaga(Saga):
    order_id: str

    @starts(OrderPlaced)
    def placed(self, event: Event[OrderPlaced], turn: Turn) -> None: ...

    @step(OrderPaid)
    def paid(self, event: Event[OrderPaid], turn: Turn) -> None: ...

    @undo(paid)
    def pay_back(self, event: Event[OrderPaid], turn: Turn) -> None: ...

    @on(OrderLost)
    def lost(self, event: Event[OrderLost], turn: Turn) -> None:
        turn.compensate("lost")

    @late(OrderSent)
    def sent_late(self, event: Event[OrderSent], turn: Turn) -> None: ...


async def test_an_event_begins_again_only_when_no_attempt_has_its_correlation() -> None:
    async with Harness(shop) as h:

        async def say(payload: Payload, correlation: str) -> None:
            async with shop.transaction("t1", correlation=correlation) as tx:
                tx.publish(payload)
            await h.settled()

        await say(OrderPlaced(order_id="o1"), "monday")
        await say(OrderLost(order_id="o1"), "monday")
        await say(OrderPlaced(order_id="o1"), "monday")
        once = [row async for row in app_of(shop).sagas.find()]
        await say(OrderPlaced(order_id="o1"), "tuesday")
        twice = [row async for row in app_of(shop).sagas.find()]
    assert [(row.attempt, row.status) for row in once] == [(1, "compensated")]
    assert [(row.attempt, row.status) for row in twice] == [(1, "compensated"), (2, "running")]


async def test_what_is_purged_leaves_a_tombstone_that_keeps_its_id() -> None:
    async with Harness(claims) as h:
        runtime = await app_of(claims).opened.prepare()
        runtime = dataclasses.replace(runtime, saga_retention=1000.0, saga_tombstone_retention=5000.0)
        await start()
        await h.publish(ClaimClosed(claim_id="c1"), tenant="t1")
        await h.settled()
        await h.advance(2000.0)
        await runtime.tidy()
        (row,) = await attempts()
        assert row.tombstone
        assert await start() == SagaStart(outcome="ended", attempt=1, status="completed")
        await h.advance(4000.0)
        await runtime.tidy()
        assert await attempts() == []
        assert await start()


async def test_what_comes_for_a_tombstone_is_noted_without_what_it_said() -> None:
    async with Harness(claims) as h:
        await start()
        await h.publish(ClaimClosed(claim_id="c1"), tenant="t1")
        await h.settled()
        await h.advance(1.0)
        assert await app_of(claims).store.sagas.purge(0.0, 10) == 1
        await h.publish(ClaimApproved(claim_id="c1", cents=7), tenant="t1")
        await h.settled()
        view = await app_of(claims).sagas.show("claim", "c1", tenant="t1")
        assert await h.held(claims) == []
    assert view.row.tombstone
    (turn,) = view.history
    assert (turn.late, turn.note, bytes(turn.input.data)) == (
        True,
        "came late: the saga was completed, and purged",
        b"null",
    )


@pytest.mark.parametrize(("payload", "method"), [(OrderPaid, "pay_back"), (OrderSent, "sent_late")])
async def test_what_a_tombstone_would_have_to_undo_is_a_dead_letter_with_a_reason(
    payload: type[OrderPaid] | type[OrderSent], method: str
) -> None:
    async with Harness(shop) as h:
        await h.publish(OrderPlaced(order_id="o1"))
        await h.settled()
        await h.publish(OrderLost(order_id="o1"))
        await h.settled()
        await h.advance(1.0)
        assert await app_of(shop).store.sagas.purge(0.0, 10) == 1
        await h.publish(payload(order_id="o1"))
        await h.settled()
        (held,) = await h.held(shop)
    assert held.state == "dead"
    assert f"order o1 ended as compensated and was purged: OrderSaga.{method} would take" in (held.error or held.reason)
    assert "Do by hand what it would do" in (held.error or held.reason)
