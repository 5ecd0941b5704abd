"""Given, when, then: what the kit says about a saga is what a service would do with it."""

from __future__ import annotations

import pytest

from posthouse import Event, Payload, Service
from posthouse.errors import ConfigurationError
from posthouse.processes import Saga, Turn, deadline, starts, step, undo
from posthouse.testing import given
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
    reservation,
)

COMMITTED = AllocationCommitted(allocation_id="a1", booking_id="b1")


def booking() -> BookingSaga:
    return BookingSaga(booking_id="b1")


async def test_starting_is_the_first_word() -> None:
    case = await given(reservation, booking())
    case.then(published=[BookingHeld(booking_id="b1")], status="running", done=["hold"], deadlines={"hold_expired": 30})


async def test_what_came_before_is_not_spoken_of() -> None:
    case = await given(reservation, booking(), COMMITTED)
    await case.when(IntentCaptured(booking_id="b1"))
    case.then(
        published=[BookingConfirmed(booking_id="b1")],
        status="completed",
        done=["hold", "room_committed", "paid"],
        deadlines={},
        state={"allocation_id": "a1"},
    )
    assert case.saga.allocation_id == "a1"
    assert [statement for statement, _ in case.statements] == ["INSERT OR REPLACE INTO booking VALUES (?, 'paid')"]


async def test_time_passes_and_deadlines_fire_at_their_own_moment() -> None:
    case = await given(reservation, booking())
    began = case.row.started_at
    await case.advance(29.9)
    case.then(published=[], status="running")
    await case.advance(60)
    case.then(published=[BookingCancelled(booking_id="b1", reason="hold_expired")], status="compensated", done=[])
    assert case.row.ended_at == began + 30


async def test_a_cleared_deadline_does_not_fire() -> None:
    case = await given(reservation, booking(), COMMITTED)
    (await case.advance(1000)).then(published=[], status="running", deadlines={})


async def test_an_undo_that_waits_for_its_fact_goes_on_with_it() -> None:
    case = await given(reservation, booking(), COMMITTED, IntentFailed(booking="b1"))
    case.then(status="compensating", done=["hold", "room_committed"], reason="payment_failed")
    await case.when(AllocationReleased(allocation_id="a1", booking_id="b1"))
    case.then(published=[BookingCancelled(booking_id="b1", reason="payment_failed")], status="compensated")


async def test_an_undo_whose_fact_does_not_come_fails_and_an_operator_goes_on() -> None:
    case = await given(reservation, booking(), COMMITTED, IntentFailed(booking="b1"))
    (await case.advance(60)).then(status="compensation_failed")
    await case.resume(by="anna", note="released by hand")
    case.then(status="compensated", published=[BookingCancelled(booking_id="b1", reason="payment_failed")])
    assert case.history[-1].note == "released by hand"


async def test_an_answer_can_be_an_error_so_that_an_undo_fails_and_is_tried_again() -> None:
    answers = {"INSERT OR REPLACE INTO booking": RuntimeError("the database says no")}
    case = await given(reservation, booking(), answers=answers)
    (await case.advance(30)).then(status="compensating", published=[], done=["hold"])
    assert case.statements == [], "what was rolled back was not done"
    assert case.saga.tries == 0
    await case.advance(100)
    case.then(status="compensation_failed", published=[])
    assert "the database says no" in case.history[-1].undo_failed


async def test_a_partial_saga_is_tried_again_by_an_operator() -> None:
    case = await given(reservation, booking(), COMMITTED, ReviewOpened(booking_id="b1"))
    case.then(status="partial", reason="under review")
    (await case.retry()).then(status="running", state={"tries": 100})


async def test_an_operator_cancels() -> None:
    case = await given(reservation, booking())
    await case.cancel("the hotel is closed")
    case.then(status="cancelled", published=[BookingCancelled(booking_id="b1", reason="the hotel is closed")])


async def test_what_comes_late_may_be_answered() -> None:
    case = await given(reservation, booking())
    await case.advance(30)
    await case.when(IntentCaptured(booking_id="b1", cents=7))
    case.then(status="compensated", published=[RefundRequested(booking_id="b1", cents=7)])


async def test_every_difference_is_told_at_once() -> None:
    case = await given(reservation, booking())
    with pytest.raises(AssertionError) as told:
        case.then(published=[], status="completed", done=["paid"], deadlines={}, state={"tries": 3}, reason="why")
    assert str(told.value).splitlines() == [
        "after start hold:",
        "  published: expected [], got [BookingHeld(booking_id='b1')]",
        "  status: expected 'completed', got 'running'",
        "  done: expected ['paid'], got ['hold']",
        "  deadlines: expected {}, got {'hold_expired': 30.0}",
        "  reason: expected 'why', got ''",
        "  tries: expected 3, got 0",
    ]


async def test_an_event_that_the_saga_does_not_take_is_refused() -> None:
    case = await given(reservation, booking())
    with pytest.raises(ConfigurationError, match=r"BookingSaga takes no hotel\.reservation\.booking\.held\.v1"):
        await case.when(BookingHeld(booking_id="b1"))


async def test_an_early_event_waits_and_is_taken_with_the_start() -> None:
    case = await given(reservation, BookingSaga)
    with pytest.raises(AssertionError, match="booking was not started"):
        case.then(status="running")
    (await case.when(COMMITTED)).then(status="awaited")
    assert case.waiting == ["hotel.inventory.allocation.committed.v1"]
    await case.start(booking())
    assert case.waiting == []
    case.then(status="running", done=["hold", "room_committed"])


async def test_a_class_that_is_no_saga_of_the_service_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="BookingSaga is no saga of desk"):
        await given(Service("desk"), booking())


shop = Service("shop")
warehouse = Service("warehouse")


@shop.event("order.placed.v1", key="order_id")
class Placed(Payload):
    order_id: str
    cents: int = 0


@shop.event("reminder.sent.v1", key="order_id")
class Reminded(Payload):
    order_id: str


@shop.event("order.dropped.v1", key="order_id")
class Dropped(Payload):
    order_id: str


@warehouse.event("parcel.sent.v1", key="order_id")
class ParcelSent(Payload):
    order_id: str
    weight: int


@shop.external("warehouse.parcel.sent.v1", key="order_id")
class ParcelSeen(Payload):
    order_id: str


@shop.saga("order", correlate="order_id")
class OrderSaga(Saga):
    order_id: str
    rate: int = 0
    parcels: int = 0

    @starts(Placed)
    async def placed(self, event: Event[Placed], turn: Turn) -> None:
        ((rate,),) = await turn.execute("SELECT rate FROM rates WHERE id = ?", (self.order_id,))
        self.rate = int(str(rate))
        turn.publish(Reminded(order_id=self.order_id), after=600.0, timer="reminder")
        turn.set(self.lost)

    @undo(placed)
    def drop(self, event: Event[Placed], turn: Turn) -> None:
        turn.publish(Dropped(order_id=self.order_id))

    @deadline(3600.0)
    def lost(self, turn: Turn) -> None:
        turn.compensate("lost")

    @step(ParcelSeen)
    async def sent(self, event: Event[ParcelSeen], turn: Turn) -> None:
        if self.parcels:
            raise ValueError("two parcels")
        self.parcels += 1
        await turn.tx.cancel("reminder")


ANSWERS = {"SELECT rate": [(1200,)]}


async def test_an_event_starts_a_saga_and_statements_answer_as_told() -> None:
    case = await given(shop, OrderSaga, Placed(order_id="o1"), answers=ANSWERS)
    case.then(status="running", state={"rate": 1200}, published=[], later=[Reminded(order_id="o1")])
    assert case.statements == [("SELECT rate FROM rates WHERE id = ?", ("o1",))]


async def test_what_is_to_be_said_later_is_said_when_its_time_comes() -> None:
    case = await given(shop, OrderSaga, Placed(order_id="o1"), answers=ANSWERS)
    (await case.advance(599)).then(published=[])
    (await case.advance(1)).then(published=[Reminded(order_id="o1")], later=[], status="running")


async def test_a_timer_that_was_cancelled_says_nothing_and_a_foreign_fact_is_read_as_the_saga_reads_it() -> None:
    case = await given(shop, OrderSaga, Placed(order_id="o1"), ParcelSent(order_id="o1", weight=3), answers=ANSWERS)
    (await case.advance(1000)).then(published=[], later=[], done=["placed", "sent"])


async def test_a_turn_that_raises_changes_nothing() -> None:
    seen = ParcelSent(order_id="o1", weight=3)
    case = await given(shop, OrderSaga, Placed(order_id="o1"), seen, answers=ANSWERS)
    with pytest.raises(ValueError, match="two parcels"):
        await case.when(seen)
    assert case.saga.parcels == 1
    assert len(case.history) == 2


async def test_a_start_that_raises_leaves_no_saga() -> None:
    case = await given(shop, OrderSaga, answers={"SELECT rate": RuntimeError("no rates")})
    with pytest.raises(RuntimeError, match="no rates"):
        await case.when(Placed(order_id="o1"))
    with pytest.raises(AssertionError, match="order was not started"):
        case.then(status="running")
