"""What an operator sees of sagas, and does with them."""

from __future__ import annotations

import pytest

from posthouse import Payload, Service
from posthouse.app import app_of
from posthouse.errors import ConfigurationError, DeskError
from posthouse.processes import Saga, Turn, partial_resume, starts
from posthouse.store.sagas import SagaFilter, SagaRow
from posthouse.testing import Harness
from tests.unit.processes.saga.hotel import (
    AllocationCommitted,
    AllocationReleased,
    BookingCancelled,
    BookingConfirmed,
    IntentCaptured,
    IntentFailed,
    ReviewOpened,
    Weather,
    reservation,
    said,
    shown,
    start,
    status,
)

BOOKING = ("booking", "b1")


async def failed(h: Harness) -> None:
    """A booking whose compensation failed for good, with nothing but the hold to undo."""
    Weather.drop_hold_fails = 3
    await start()
    await h.settled()
    for seconds in (30.0, 10.0, 10.0):
        await h.advance(seconds)
    assert await status() == "compensation_failed"


async def partial(h: Harness) -> None:
    await start()
    await h.publish(ReviewOpened(booking_id="b1"))
    await h.settled()
    assert await status() == "partial"


async def test_a_retry_runs_the_failed_undo_again(h: Harness) -> None:
    await failed(h)
    row = await app_of(reservation).sagas.retry(*BOOKING, tenant="t1", by="ada")
    assert (row.status, row.reason) == ("compensated", "hold_expired")
    await h.settled()
    turn = (await shown()).history[-1]
    assert (turn.input.kind, turn.input.type, bytes(turn.input.data)) == ("operator", "retry", b'{"by":"ada"}')
    assert turn.undone == ("drop_hold",)
    (cancelled,) = await h.published(BookingCancelled)
    assert cancelled.actor is not None
    assert (cancelled.actor.id, cancelled.correlation) == ("ada", row.correlation)


async def test_a_retry_that_fails_has_all_its_attempts_again(h: Harness) -> None:
    await failed(h)
    Weather.drop_hold_fails = 2
    row = await app_of(reservation).sagas.retry(*BOOKING, tenant="t1")
    assert row.status == "compensating"
    assert row.undoing is not None
    assert row.undoing.attempts == 1
    await h.advance(10.0)
    await h.advance(10.0)
    assert await status() == "compensated"
    assert await said(h, BookingCancelled) == 1


async def test_a_retry_need_not_wait_for_the_schedule(h: Harness) -> None:
    Weather.drop_hold_fails = 1
    await start()
    await h.settled()
    await h.advance(30.0)
    assert await status() == "compensating"
    assert (await app_of(reservation).sagas.retry(*BOOKING, tenant="t1")).status == "compensated"
    figures = await h.advance(10.0)
    assert figures.timers == {"reservation": 0}
    assert await said(h, BookingCancelled) == 1


async def test_resume_goes_on_without_the_failed_undo(h: Harness) -> None:
    await failed(h)
    row = await app_of(reservation).sagas.resume(*BOOKING, tenant="t1", note="dropped by hand")
    assert (row.status, row.steps) == ("compensated", ())
    await h.settled()
    assert await said(h, BookingCancelled) == 0
    assert (await shown()).history[-1].note == "dropped by hand"


async def test_resume_undoes_the_steps_before_the_failed_one(h: Harness) -> None:
    await start()
    await h.publish(AllocationCommitted(allocation_id="a1", booking_id="b1"))
    await h.settled()
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    await h.advance(60.0)
    assert await status() == "compensation_failed"
    assert (await app_of(reservation).sagas.resume(*BOOKING, tenant="t1")).status == "compensated"
    await h.settled()
    assert await said(h, BookingCancelled) == 1


async def test_a_retry_of_an_undo_that_waits_calls_it_again_and_waits_again(h: Harness) -> None:
    await start()
    await h.publish(AllocationCommitted(allocation_id="a1", booking_id="b1"))
    await h.settled()
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    await h.advance(60.0)
    row = await app_of(reservation).sagas.retry(*BOOKING, tenant="t1")
    assert row.status == "compensating"
    assert row.undoing is not None
    assert row.undoing.waiting
    await h.advance(59.0)
    await h.publish(AllocationReleased(allocation_id="a1", booking_id="b1"))
    await h.settled()
    assert await status() == "compensated"


async def test_a_retry_of_a_partial_saga_runs_its_method_and_it_is_running_again(h: Harness) -> None:
    await partial(h)
    row = await app_of(reservation).sagas.retry(*BOOKING, tenant="t1")
    assert row.status == "running"
    assert b'"tries":100' in row.state
    assert (await shown()).history[-1].method == "look_again"
    await h.publish(IntentCaptured(booking_id="b1"))
    await h.settled()
    assert await status() == "completed"


async def test_resume_completes_a_partial_saga_and_stops_its_deadlines(h: Harness) -> None:
    await partial(h)
    row = await app_of(reservation).sagas.resume(*BOOKING, tenant="t1", by="ada")
    assert (row.status, row.deadlines, row.ended_at) == ("completed", {}, h.clock.now())
    figures = await h.advance(30.0)
    assert figures.timers == {"reservation": 0}
    assert await status() == "completed"
    assert await said(h, BookingConfirmed) == 0


async def test_cancel_compensates_and_ends_as_cancelled(h: Harness) -> None:
    await start()
    await h.settled()
    row = await app_of(reservation).sagas.cancel(*BOOKING, "the guest called", tenant="t1", by="ada")
    assert (row.status, row.reason, row.deadlines) == ("cancelled", "the guest called", {})
    figures = await h.settled()
    assert [event.data.reason for event in await h.published(BookingCancelled)] == ["the guest called"]
    assert figures.timers == {"reservation": 0}


async def test_a_cancelled_saga_that_waits_ends_as_cancelled_later(h: Harness) -> None:
    await start()
    await h.publish(AllocationCommitted(allocation_id="a1", booking_id="b1"))
    await h.settled()
    assert (await app_of(reservation).sagas.cancel(*BOOKING, "no", tenant="t1")).status == "compensating"
    await h.publish(AllocationReleased(allocation_id="a1", booking_id="b1"))
    await h.settled()
    assert await status() == "cancelled"


async def test_a_verb_that_does_not_fit_changes_nothing(h: Harness) -> None:
    await start()
    await h.settled()
    before = await shown()
    for verb, words in (
        (app_of(reservation).sagas.retry, "nothing to retry"),
        (app_of(reservation).sagas.resume, "nothing to resume"),
    ):
        with pytest.raises(DeskError, match=f"booking b1 is running: there is {words}"):
            await verb(*BOOKING, tenant="t1")
    assert await shown() == before
    await app_of(reservation).sagas.cancel(*BOOKING, "no", tenant="t1")
    with pytest.raises(DeskError, match="booking b1 is cancelled: only a running or partial saga can be cancelled"):
        await app_of(reservation).sagas.cancel(*BOOKING, "again", tenant="t1")


async def test_who_is_not_there_is_named(h: Harness) -> None:
    with pytest.raises(DeskError, match="no saga booking b9 of the tenant t1"):
        await app_of(reservation).sagas.retry("booking", "b9", tenant="t1")
    with pytest.raises(ConfigurationError, match=r"no saga 'boking'. Did you mean 'booking'\?"):
        await app_of(reservation).sagas.retry("boking", "b9", tenant="t1")


async def test_sagas_are_listed_and_counted(h: Harness) -> None:
    for number in range(120):
        await start(f"b{number}")
    await app_of(reservation).sagas.cancel("booking", "b7", "no", tenant="t1")
    assert [row.id for row in await every(SagaFilter())] == [f"b{number}" for number in range(120)]
    assert [row.id for row in await every(SagaFilter(status="cancelled"))] == ["b7"]
    assert await app_of(reservation).sagas.counts() == {("booking", "running"): 119, ("booking", "cancelled"): 1}


async def every(wanted: SagaFilter) -> list[SagaRow]:
    return [row async for row in app_of(reservation).sagas.find(wanted)]


async def test_resume_runs_the_method_for_what_was_done_by_hand_and_that_decides_no_more() -> None:
    desk = Service("desk", namespace="hotel")

    @desk.event("guest.arrived.v1", key="guest_id")
    class GuestArrived(Payload):
        guest_id: str

    @desk.saga("entry", correlate="guest_id")
    class InboxEntry(Saga):
        guest_id: str
        hasty: bool = False

        @starts
        def come(self, turn: Turn) -> None:
            turn.partial("no key")

        @partial_resume
        def let_in(self, turn: Turn) -> None:
            turn.publish(GuestArrived(guest_id=self.guest_id))
            if self.hasty:
                self.hurry(turn)

        def hurry(self, turn: Turn) -> None:
            turn.complete()

    async with Harness(desk) as h:
        async with desk.transaction("t1") as tx:
            await desk.start_saga(tx, InboxEntry(guest_id="g1"))
            await desk.start_saga(tx, InboxEntry(guest_id="g2", hasty=True))
        row = await app_of(desk).sagas.resume("entry", "g1", tenant="t1", by="ada")
        with pytest.raises(ConfigurationError, match=r"InboxEntry.let_in calls turn.complete\(\)"):
            await app_of(desk).sagas.resume("entry", "g2", tenant="t1")
        await h.settled()
        assert row.status == "completed"
        assert [event.data.guest_id for event in await h.published(GuestArrived)] == ["g1"]
        assert (await app_of(desk).sagas.show("entry", "g1", tenant="t1")).history[-1].method == "let_in"
        assert (await app_of(desk).sagas.show("entry", "g2", tenant="t1")).row.status == "partial"
