"""Sagas in a trace: the turn that an event was, and deadlines by their names."""

from __future__ import annotations

import pytest

from posthouse import Service
from posthouse.app import app_of
from posthouse.cli.trace.showing import show
from posthouse.processes import Saga, Turn, deadline, starts
from posthouse.testing import Harness
from posthouse.tracing import SagaStep, trace
from tests.unit.processes.saga.claims import ClaimApproved, ClaimSaga, PayoutOrdered, claims
from tests.unit.processes.saga.hotel import (
    AllocationCommitted,
    BookingSaga,
    IntentCaptured,
    IntentFailed,
    inventory,
    payment,
    reservation,
)

HOTEL = (reservation, inventory, payment)


async def start(booking_id: str) -> None:
    async with reservation.transaction("t1", correlation="req-1") as tx:
        await reservation.start_saga(tx, BookingSaga(booking_id=booking_id))


async def test_the_turn_of_a_saga_stands_beside_the_event_that_it_took() -> None:
    async with Harness(*HOTEL) as harness:
        await start("b1")
        await harness.publish(AllocationCommitted(allocation_id="a1", booking_id="b1"), correlation="req-1")
        await harness.settled()
        await harness.publish(IntentFailed(booking="b1"), correlation="req-1")
        await harness.settled()
        await harness.publish(IntentCaptured(booking_id="b1", cents=5), correlation="req-1")
        await harness.settled()
        found = await trace(HOTEL, "req-1")
        heard = {
            branch.spot.event.type.removeprefix("hotel."): found.heard[branch.spot.event.id][0].saga
            for branch in found.branches
            if branch.spot.event.id in found.heard
        }
        assert heard == {
            "inventory.allocation.committed.v1": SagaStep(
                saga="booking", id="b1", turn=2, correlation="req-1", method="room_committed", status="running"
            ),
            "payment.intent.failed.v1": SagaStep(
                saga="booking", id="b1", turn=3, correlation="req-1", method="payment_failed", status="compensating"
            ),
            "payment.intent.captured.v1": SagaStep(
                saga="booking",
                id="b1",
                turn=4,
                correlation="req-1",
                method="paid_too_late",
                status="compensating",
                late=True,
            ),
        }


async def test_a_deadline_is_named_before_and_after_it_passed(capsys: pytest.CaptureFixture[str]) -> None:
    async with Harness(*HOTEL) as harness:
        await start("b1")
        await harness.settled()
        before = await trace(HOTEL, "req-1")
        ((waiting, named),) = before.deadlines.items()
        assert named == "hold_expired of booking b1"
        assert waiting not in before.heard
        await harness.advance(30)
        after = await trace(HOTEL, "req-1")
        assert after.deadlines[waiting] == named
        (heard,) = after.heard[waiting]
        assert heard.saga is not None
        assert (heard.state, heard.saga.method, heard.saga.status) == ("applied", "hold_expired", "compensated")
        caused = [branch.spot.event.type for branch in after.branches if branch.spot.event.causation == waiting]
        assert caused == ["hotel.reservation.booking.cancelled.v1"]
        show(after)
        shown = capsys.readouterr().out
        assert (
            "hotel.reservation.saga.deadline_passed.v1  reservation  +30.000 s  t1  hold_expired of booking b1" in shown
        )
        assert "→ reservation.booking applied, booking b1 turn 2: hold_expired, compensated" in shown


async def test_a_deadline_is_heard_by_its_own_saga_and_by_no_other() -> None:
    desk = Service("desk")

    @desk.saga("first", correlate="id")
    class First(Saga):
        id: str

        @starts
        def begin(self, turn: Turn) -> None:
            turn.set(self.over)

        @deadline(5.0)
        def over(self, turn: Turn) -> None:
            turn.complete()

    @desk.saga("second", correlate="id")
    class Second(First):
        """The same, under another name."""

    async with Harness(desk) as harness:
        async with desk.transaction("t1", correlation="req-1") as tx:
            await desk.start_saga(tx, Second(id="x"))
        await harness.advance(5.0)
        found = await trace([desk], "req-1")
        ((heard,),) = found.heard.values()
        assert (heard.consumer, heard.saga and heard.saga.status) == ("desk.second", "completed")


async def test_what_a_saga_says_keeps_its_correlation_however_long_a_person_takes() -> None:
    async with Harness(claims) as harness:
        async with claims.transaction("t1", correlation="monday") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c1"))
        await harness.advance(300.0)
        async with claims.transaction("t1", correlation="the request of a manager") as tx:
            approval = tx.publish(ClaimApproved(claim_id="c1"))
        await harness.advance(600.0)
        (payout,) = await harness.published(PayoutOrdered)
        assert (payout.correlation, payout.causation) == ("monday", approval)

        ours = await trace([claims], "monday")
        types = [(branch.depth, branch.spot.event.type.split(".")[-2]) for branch in ours.branches]
        assert (0, "opened") in types
        assert types[types.index((0, "approved")) + 1] == (1, "ordered"), (
            "the cause, though it is of another correlation"
        )
        assert (0, "deadline_passed") in types
        theirs = await trace([claims], "the request of a manager")
        (branch,) = theirs.branches
        (heard,) = theirs.heard[branch.spot.event.id]
        assert heard.saga is not None
        assert (heard.saga.id, heard.saga.method, heard.saga.correlation) == ("c1", "approved", "monday")


async def test_a_person_is_told_where_a_trace_leaves_a_correlation_and_where_it_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Harness(claims) as harness:
        async with claims.transaction("t1", correlation="monday") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c1"))
        await harness.publish(ClaimApproved(claim_id="c1"), correlation="a-request")
        await harness.settled()
        show(await trace([claims], "monday"))
        show(await trace([claims], "a-request"))
    told = capsys.readouterr().out
    assert "→ of another correlation, a-request" in told
    assert "claim c1 turn 2: approved, running; it goes on in monday" in told


async def test_the_turn_of_an_older_attempt_is_told_as_such() -> None:
    async with Harness(claims) as harness:
        for correlation in ("monday", "tuesday"):
            async with claims.transaction("t1", correlation=correlation) as tx:
                assert await claims.start_saga(tx, ClaimSaga(claim_id="c1"))
            if correlation == "monday":
                await app_of(claims).sagas.cancel("claim", "c1", "a mistake", tenant="t1")
        ids = [await harness.publish(ClaimApproved(claim_id="c1"), correlation=c) for c in ("monday", "tuesday")]
        await harness.settled()
        found = [(await trace([claims], c)).heard[id][0].saga for c, id in zip(("monday", "tuesday"), ids, strict=True)]
    assert [(step.attempt, step.late) for step in found if step is not None] == [(1, True), (2, False)]
