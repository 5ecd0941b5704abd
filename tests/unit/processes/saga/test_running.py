"""A saga from its start to its end, as its events and deadlines come."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

from posthouse.app import app_of
from posthouse.errors import DeskError
from posthouse.store import Timer
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
    booked,
    reservation,
    said,
    shown,
    start,
    status,
)


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
    assert (view.row.status, view.row.note, view.row.steps) == (
        "completed",
        "all is well",
        ("hold", "room_committed", "paid"),
    )
    assert view.row.ended_at == h.clock.now()
    assert figures.timers == {"reservation": 0}
    assert [e.data.booking_id for e in await h.published(BookingConfirmed)] == ["b1"]
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
    assert [e.data.reason for e in await h.published(BookingCancelled)] == ["hold_expired"]
    assert [t.input.kind for t in view.history] == ["start", "deadline"]
    assert view.history[1].undone == ("drop_hold",)
    assert figures.quiet
    assert len(await h.published(BookingHeld)) == 1
    assert await h.published(RefundRequested) == []
    assert await h.published(BookingConfirmed) == []


async def test_undos_run_in_reverse_and_wait_for_their_fact(h: Harness) -> None:
    await start()
    await commit_room(h)
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    row = (await shown()).row
    assert (row.status, row.steps, row.reason) == ("compensating", ("hold", "room_committed"), "payment_failed")
    assert row.undoing is not None
    assert row.undoing.waiting
    assert await h.published(BookingCancelled) == []
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    figures = await h.settled()
    view = await shown()
    assert (view.row.status, view.row.steps, view.row.undoing) == ("compensated", (), None)
    assert [turn.undone for turn in view.history] == [(), (), ("release_room",), ("drop_hold",)]
    assert len(await h.published(BookingCancelled)) == 1
    assert figures.timers == {"reservation": 0}


async def test_an_event_before_its_saga_waits_for_it_or_is_passed_over(h: Harness) -> None:
    await h.publish(ReviewOpened(booking_id="b1"))
    await h.publish(IntentCaptured(booking_id="b1"))
    await h.settled()
    assert [one.type for one in (await shown()).row.waiting] == ["hotel.payment.intent.captured.v1"]
    await start()
    await h.settled()
    assert (await shown()).row.status == "completed"
    assert await h.held(reservation) == []


async def test_a_second_start_does_nothing(h: Harness) -> None:
    assert await start()
    assert not await start()
    assert await start(tenant="t2")
    await h.settled()
    assert len((await shown()).history) == 1
    assert [event.tenant for event in await h.published(BookingHeld)] == ["t1", "t2"]
    await h.advance(30.0)
    assert await status() == "compensated"
    assert not await start()


async def test_a_start_that_is_rolled_back_never_was(h: Harness) -> None:
    with suppress(KeyError):
        async with reservation.transaction("t1") as tx:
            assert await reservation.start_saga(tx, BookingSaga(booking_id="b1"))
            raise KeyError
    figures = await h.settled()
    with pytest.raises(DeskError, match="no saga booking b1"):
        await shown()
    assert figures.timers == {"reservation": 0}
    assert await said(h, BookingHeld) == 0


async def test_everything_of_one_saga_shares_a_correlation(h: Harness) -> None:
    await start()
    await h.settled()
    await h.advance(30.0)
    row = (await shown()).row
    (held,), (cancelled,) = await h.published(BookingHeld), await h.published(BookingCancelled)
    assert held.correlation == cancelled.correlation == row.correlation
    assert row.correlation
    await start("b2")
    await h.settled()
    assert (await h.published(BookingHeld))[1].correlation != held.correlation


async def test_a_caller_who_has_a_correlation_gives_it_to_the_saga(h: Harness) -> None:
    async with reservation.transaction("t1", correlation="c1") as tx:
        await reservation.start_saga(tx, BookingSaga(booking_id="b1"))
    await h.settled()
    assert [event.correlation for event in await h.published(BookingHeld)] == ["c1"]


async def test_after_the_end_events_are_noted_and_change_nothing(h: Harness) -> None:
    await start()
    await h.settled()
    await h.advance(30.0)
    before = (await shown()).row
    await h.publish(ReviewOpened(booking_id="b1"))
    await h.publish(IntentFailed(booking="b1"))
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    figures = await h.settled()
    view = await shown()
    assert (view.row.status, view.row.state, view.row.steps) == (before.status, before.state, before.steps)
    assert view.row.ended_at == before.ended_at
    late = view.history[2:]
    assert [(turn.late, turn.method, turn.status, turn.published) for turn in late] == [
        (True, "", "compensated", ())
    ] * 3
    assert late[0].note == "came late: the saga was compensated"
    assert figures.timers == {"reservation": 0}
    assert await said(h, BookingCancelled) == 1


async def test_what_comes_late_and_has_a_method_is_given_to_it(h: Harness) -> None:
    await start()
    await h.settled()
    await h.advance(30.0)
    await h.publish(IntentCaptured(booking_id="b1", cents=1200))
    await h.settled()
    view = await shown()
    assert [event.data.cents for event in await h.published(RefundRequested)] == [1200]
    assert (view.row.status, view.history[-1].method, view.history[-1].late) == ("compensated", "paid_too_late", True)
    assert await said(h, BookingConfirmed) == 0


async def test_when_the_event_comes_first_a_deadline_that_fired_already_is_stale(h: Harness) -> None:
    await start()
    await h.settled()
    (timer,) = await app_of(reservation).store.timers.pending()
    await commit_room(h)
    before = await shown()
    await fire(timer)
    await h.settled()
    after = await shown()
    assert after == before
    assert after.row.status == "running"


async def test_when_the_deadline_comes_first_the_event_is_late(h: Harness) -> None:
    await start()
    await h.settled()
    await h.advance(30.0)
    await commit_room(h)
    view = await shown()
    assert view.row.status == "compensating", "the room is released again"
    assert [(turn.input.kind, turn.late, turn.method) for turn in view.history] == [
        ("start", False, "hold"),
        ("deadline", False, "hold_expired"),
        ("event", True, "release_room"),
    ]
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    await h.settled()
    assert (await shown()).row.status == "compensated"
    assert await said(h, BookingCancelled) == 1


async def test_deadlines_of_another_saga_or_of_none_are_passed_over(h: Harness) -> None:
    await start("b1")
    await h.settled()
    (timer,) = await app_of(reservation).store.timers.pending()
    async with app_of(reservation).store.begin() as tx:
        await tx.execute("DELETE FROM posthouse_saga")
    await fire(timer)
    await h.settled()
    assert await h.held(reservation) == []


async def test_a_second_delivery_of_everything_changes_nothing(h: Harness) -> None:
    await start()
    await commit_room(h)
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    await h.settled()
    before = await shown()
    await h.assert_replay_safe()
    assert await shown() == before


async def test_an_undo_that_fails_leaves_nothing_and_runs_again(h: Harness) -> None:
    Weather.drop_hold_fails = 1
    await start()
    await h.settled()
    await h.advance(30.0)
    view = await shown()
    assert (view.row.status, view.row.steps, tries_in(view.row.state)) == ("compensating", ("hold",), 0)
    assert view.row.undoing is not None
    assert (view.row.undoing.attempts, view.row.undoing.waiting) == (1, False)
    assert view.history[-1].undo_failed == "drop_hold: RuntimeError: the hold would not drop"
    assert view.history[-1].published == ()
    assert await booked() is None
    assert await said(h, BookingCancelled) == 0
    await h.advance(10.0)
    view = await shown()
    assert (view.row.status, tries_in(view.row.state)) == ("compensated", 1)
    assert view.history[-1].input.type == "retry undo"
    assert await booked() == "dropped: hold_expired"
    assert await said(h, BookingCancelled) == 1
    assert await h.held(reservation) == []


async def test_an_undo_that_keeps_failing_waits_for_an_operator(h: Harness) -> None:
    Weather.drop_hold_fails = 3
    await start()
    await h.settled()
    await h.advance(30.0)
    await h.advance(10.0)
    assert await status() == "compensating"
    figures = await h.advance(10.0)
    view = await shown()
    assert view.row.status == "compensation_failed"
    assert view.row.undoing is not None
    assert view.row.undoing.error == "drop_hold: RuntimeError: the hold would not drop"
    assert figures.timers == {"reservation": 0}
    assert await said(h, BookingCancelled) == 0
    assert view.row.ended_at is None


async def test_undos_that_succeeded_stay_done_when_a_later_one_fails(h: Harness) -> None:
    Weather.drop_hold_fails = 1
    await start()
    await commit_room(h)
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    await h.settled()
    row = (await shown()).row
    assert (row.status, row.steps) == ("compensating", ("hold",))
    await h.advance(10.0)
    view = await shown()
    assert view.row.status == "compensated"
    assert [turn.undone for turn in view.history if turn.undone] == [("release_room",), ("drop_hold",)]


async def test_a_fact_that_does_not_come_in_time_fails_the_compensation(h: Harness) -> None:
    await start()
    await commit_room(h)
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    await h.advance(59.0)
    assert await status() == "compensating"
    await h.advance(1.0)
    row = (await shown()).row
    assert row.status == "compensation_failed"
    assert row.undoing is not None
    assert row.undoing.error == "release_room: hotel.inventory.allocation.released.v1 did not come within 60 s"


async def test_a_fact_that_comes_after_all_lets_a_failed_compensation_go_on(h: Harness) -> None:
    await start()
    await commit_room(h)
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    await h.advance(60.0)
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    figures = await h.settled()
    assert await status() == "compensated"
    assert figures.timers == {"reservation": 0}


async def test_a_fact_that_an_undo_may_wait_for_means_nothing_while_the_saga_runs(h: Harness) -> None:
    await start()
    await commit_room(h)
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    await h.settled()
    view = await shown()
    assert (view.row.status, view.history[-1].late, view.history[-1].method) == ("running", False, "")
    assert view.history[-1].note


async def test_while_an_undo_waits_other_events_do_not_end_it(h: Harness) -> None:
    await start()
    await commit_room(h)
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    await h.publish(ReviewOpened(booking_id="b1"))
    await commit_room(h)
    view = await shown()
    assert (view.row.status, view.row.steps) == ("compensating", ("hold", "room_committed", "room_committed"))
    assert [(turn.late, turn.method) for turn in view.history[-2:]] == [(True, ""), (True, "")]
    for _ in range(2):
        await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
        await h.settled()
    view = await shown()
    assert (view.row.status, view.row.steps) == ("compensated", ())
    assert [turn.method for turn in view.history[-2:]] == ["release_room", "drop_hold"]


async def test_a_fact_that_comes_before_its_undo_was_done_does_not_count(h: Harness) -> None:
    Weather.release_fails = 1
    await start()
    await commit_room(h)
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    await h.settled()
    row = (await shown()).row
    assert (row.status, row.steps) == ("compensating", ("hold", "room_committed"))
    await h.advance(10.0)
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    await h.settled()
    assert await status() == "compensated"


async def test_the_deadlines_of_one_undo_are_over_with_it(h: Harness) -> None:
    Weather.release_fails = Weather.drop_hold_fails = 1
    await start()
    await commit_room(h)
    await h.publish(IntentFailed(booking="b1"))
    await h.settled()
    assert [*(await shown()).row.deadlines] == ["retry undo"]
    await app_of(reservation).sagas.retry("booking", "b1", tenant="t1")
    assert [*(await shown()).row.deadlines] == ["undo within"]
    await h.publish(AllocationReleased(allocation_id="a-b1", booking_id="b1"))
    await h.settled()
    assert [*(await shown()).row.deadlines] == ["retry undo"]


async def test_what_the_caller_says_besides_is_not_the_sagas(h: Harness) -> None:
    async with reservation.transaction("t1") as tx:
        tx.publish(RefundRequested(booking_id="x", cents=1))
        await reservation.start_saga(tx, BookingSaga(booking_id="b1"))
        tx.publish(RefundRequested(booking_id="x", cents=2))
    await h.settled()
    view = await shown()
    assert [one.type for one in view.history[0].published] == ["hotel.reservation.booking.held.v1"]
    others = {event.correlation for event in await h.published(RefundRequested)}
    assert len(others) == 2
    assert view.row.correlation not in others


async def test_a_partial_saga_still_takes_events(h: Harness) -> None:
    await start()
    await commit_room(h)
    await h.publish(ReviewOpened(booking_id="b1"))
    await h.settled()
    row = (await shown()).row
    assert (row.status, row.reason, row.ended_at) == ("partial", "under review", None)
    await h.publish(IntentCaptured(booking_id="b1"))
    await h.settled()
    assert await status() == "completed"
    assert await said(h, BookingConfirmed) == 1


async def test_deadlines_of_a_partial_saga_still_count(h: Harness) -> None:
    await start()
    await h.publish(ReviewOpened(booking_id="b1"))
    await h.settled()
    assert await status() == "partial"
    await h.advance(30.0)
    assert await status() == "compensated"


async def test_the_history_holds_what_came_in_and_what_went_out(h: Harness) -> None:
    await start()
    await h.publish(IntentCaptured(booking_id="b1", cents=700))
    await h.settled()
    begun, paid = (await shown()).history
    assert bytes(begun.input.data) == b'{"booking_id":"b1","allocation_id":"","tries":0}'
    (captured,) = await h.published(IntentCaptured)
    assert (paid.input.type, paid.input.event_id) == ("hotel.payment.intent.captured.v1", captured.id)
    assert bytes(paid.input.data) == b'{"booking_id":"b1","cents":700}'
    (confirmed,) = await h.published(BookingConfirmed)
    (out,) = paid.published
    assert (out.type, out.event_id, bytes(out.data)) == (confirmed.type, confirmed.id, b'{"booking_id":"b1"}')
    assert (paid.note, paid.deadlines_cleared) == ("all is well", ("hold_expired",))
    assert bytes(paid.state) == (await shown()).row.state


async def test_sagas_that_ended_are_forgotten_in_time_and_others_never(h: Harness) -> None:
    await start("done")
    await start("rests")
    await h.publish(IntentCaptured(booking_id="done"))
    await commit_room(h, "rests")
    runtime = await app_of(reservation).opened.prepare()
    await h.advance(90 * 86_400.0 - 1)
    await runtime.tidy()
    assert await status("done") == "completed"
    await h.advance(2.0)
    await runtime.tidy()
    assert (await shown("done")).row.tombstone
    assert (await shown("done")).history == []
    assert await status("rests") == "running"
    async with app_of(reservation).store.begin() as tx:
        assert (await tx.execute("SELECT count(DISTINCT number) FROM posthouse_saga_turn")).scalar() == 1


def tries_in(state: bytes) -> int:
    """How often the undo of the hold left its mark."""
    return msgspec.json.decode(state, type=BookingSaga).tries


async def fire(timer: Timer) -> None:
    """Say what a timer would say, as if it had fired a moment before it was cancelled."""
    async with app_of(reservation).store.begin() as tx:
        await app_of(reservation).store.outbox.append(tx, [timer.row])
