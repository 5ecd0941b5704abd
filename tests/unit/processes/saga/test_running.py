from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from posthouse.processes import SagaView
from posthouse.testing import Harness
from tests.unit.processes.saga.hotel import (
    AllocationCommitted,
    AllocationReleased,
    BookingCancelled,
    BookingConfirmed,
    BookingHeld,
    BookingSaga,
    IntentCaptured,
    IntentFailed,
    RefundRequested,
    ReviewOpened,
    Weather,
    reservation,
)


@pytest.fixture
async def h() -> AsyncIterator[Harness]:
    Weather.drop_hold_fails = Weather.release_fails = 0
    async with Harness(reservation) as harness:
        yield harness


async def start(id: str = "b1") -> bool:
    async with reservation.transaction("t1") as tx:
        return await reservation.start_saga(tx, BookingSaga(booking_id=id))


async def shown(id: str = "b1") -> SagaView:
    return await reservation.sagas.show("booking", "t1", id)


async def commit_room(h: Harness, id: str = "b1") -> None:
    await h.publish(AllocationCommitted(allocation_id=f"a-{id}", booking_id=id))
    await h.settled()


async def test_the_goal_is_reached_and_no_deadline_is_left(h: Harness) -> None:
    assert await start()
    await h.settled()
    assert [*(await shown()).row.deadlines] == ["hold_expired"]
    await commit_room(h)
    assert (await shown()).row.deadlines == {}
    await h.publish(IntentCaptured(booking_id="b1"))
    figures = await h.settled()
    view = await shown()
    assert (view.row.status, view.row.note, view.row.done) == (
        "completed",
        "all is well",
        ("hold", "room_committed", "paid"),
    )
    assert view.row.ended_at == h.clock.now()
    assert figures.timers == {"reservation": 0}
    assert [e.data.booking_id for e in h.published(BookingConfirmed)] == ["b1"]
    assert [(t.turn, t.input.kind, t.method, t.status) for t in view.history] == [
        (1, "start", "hold", "running"),
        (2, "event", "room_committed", "running"),
        (3, "event", "paid", "completed"),
    ]
    assert [said.type for said in view.history[0].published] == ["hotel.reservation.booking.held.v1"]
    assert view.history[0].deadlines_set == {"hold_expired": 30.0}
    assert view.history[1].deadlines_cleared == ("hold_expired",)
    assert view.history[2].steps_done == ("paid",)
    assert await h.held(reservation) == []


async def test_a_deadline_that_passes_is_taken_once(h: Harness) -> None:
    await start()
    await h.settled()
    figures = await h.advance(30.0)
    view = await shown()
    assert (view.row.status, view.row.reason) == ("compensated", "hold_expired")
    assert [e.data.reason for e in h.published(BookingCancelled)] == ["hold_expired"]
    assert [t.input.kind for t in view.history] == ["start", "deadline"]
    assert view.history[1].undone == ("drop_hold",)
    assert figures.quiet
    assert len(h.published(BookingHeld)) == 1
    assert h.published(RefundRequested) == []
    assert h.published(BookingConfirmed) == []


async def test_undos_run_in_reverse_and_wait_for_their_fact(h: Harness) -> None:
    await start()
    await commit_room(h)
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    row = (await shown()).row
    assert (row.status, row.done, row.reason) == ("compensating", ("hold", "room_committed"), "payment_failed")
    assert row.undoing is not None and row.undoing.waiting
    assert h.published(BookingCancelled) == []
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    figures = await h.settled()
    view = await shown()
    assert (view.row.status, view.row.done, view.row.undoing) == ("compensated", (), None)
    assert [turn.undone for turn in view.history] == [(), (), ("release_room",), ("drop_hold",)]
    assert len(h.published(BookingCancelled)) == 1
    assert figures.timers == {"reservation": 0}


async def test_an_event_before_its_saga_waits_for_it_or_is_passed_over(h: Harness) -> None:
    await h.publish(ReviewOpened(booking_id="b1"))
    await h.publish(IntentCaptured(booking_id="b1"))
    await h.settled()
    assert [held.type for held in await h.held(reservation)] == ["hotel.payment.intent.captured.v1"]
    await start()
    await h.advance(10.0)
    assert (await shown()).row.status == "completed"
    assert await h.held(reservation) == []
