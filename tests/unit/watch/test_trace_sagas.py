"""A whole saga is one trace: its steps, deadlines, compensations, children and calls, whoever's events led to them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from opentelemetry.trace import StatusCode

from posthouse import App, Event, Payload, Saga, Service, Turn, app_of, deadline, starts, step, undo
from posthouse.clock import new_id
from posthouse.events.trace import correlation_to_trace_id
from posthouse.testing import Harness
from tests.kit.spans import Collected, linked, place, trace_id, tree

hotel, bank = Service("hotel"), Service("bank")


@hotel.event("booking.held.v1", key="booking_id")
class Held(Payload):
    booking_id: str


@hotel.event("booking.cancelled.v1", key="booking_id")
class Cancelled(Payload):
    booking_id: str


@hotel.event("letter.written.v1", key="booking_id")
class Written(Payload):
    booking_id: str


@bank.event("money.taken.v1", key="booking_id")
class Taken(Payload):
    booking_id: str


@bank.event("money.returned.v1", key="booking_id")
class Returned(Payload):
    booking_id: str


def weigh(event: Event[Returned]) -> int:
    with collected.tracer.start_as_current_span("GET /weight"):
        return 7


@hotel.saga("letter", correlate="booking_id")
class Letter(Saga):
    booking_id: str

    @starts
    def write(self, turn: Turn) -> None:
        turn.publish(Written(booking_id=self.booking_id))


@hotel.saga("booking", correlate="booking_id")
class Booking(Saga):
    booking_id: str
    grams: int = 0

    @starts
    def hold(self, turn: Turn) -> None:
        turn.publish(Held(booking_id=self.booking_id))
        turn.set(self.expired)

    @undo(hold)
    def drop(self, turn: Turn) -> None:
        turn.publish(Cancelled(booking_id=self.booking_id))

    @deadline(30.0)
    def expired(self, turn: Turn) -> None:
        turn.compensate("nobody paid")

    @step(Taken)
    async def paid(self, event: Event[Taken], turn: Turn) -> None:
        turn.clear(self.expired)
        await hotel.start_saga(turn.tx, Letter(booking_id=self.booking_id))

    @step(Returned, calling=weigh)
    def gave_back(self, event: Event[Returned], turn: Turn, grams: int) -> None:
        self.grams = grams
        turn.compensate("it came back")


collected = Collected()


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    collected.exporter.clear()
    before = app_of(hotel)
    App(hotel, store="sqlite://", broker=before.broker, tracer_provider=collected.provider)
    App(bank, store="sqlite://", broker=before.broker, tracer_provider=collected.provider)
    async with Harness(hotel, bank) as made:
        yield made


async def start() -> None:
    with collected.tracer.start_as_current_span("POST /bookings"):
        async with hotel.transaction("t1") as tx:
            assert await hotel.start_saga(tx, Booking(booking_id="b1"))


def story() -> list[str]:
    """The spans of the trace in which the saga began."""
    return tree_of(trace_id(collected.one("POST /bookings")))


def tree_of(id: str) -> list[str]:
    return tree([span for span in collected.spans if trace_id(span) == id])


async def test_a_deadline_and_what_it_undoes_are_in_the_trace_of_the_request(harness: Harness) -> None:
    await start()
    await harness.advance(30.0)
    assert story() == [
        "POST /bookings",
        "  create booking.held.v1",
        "  create saga.deadline_passed.v1",
        "    process Booking.(deadlines)",
        "      create booking.cancelled.v1",
        "    process Letter.(deadlines)",
        "  saga booking",
    ]


async def test_a_step_that_another_trace_led_to_says_its_facts_in_the_trace_of_the_saga(harness: Harness) -> None:
    await start()
    await harness.publish(Taken(booking_id="b1"))
    await harness.settled()
    assert story() == [
        "POST /bookings",
        "  create booking.held.v1",
        "  create saga.deadline_passed.v1",
        "  saga booking",
        "    create letter.written.v1",
        "    saga letter",
    ]
    paid = collected.one("posthouse.process")
    assert trace_id(paid) != trace_id(collected.one("POST /bookings"))
    letter = next(span for span in collected.spans if (span.attributes or {}).get("posthouse.saga") == "letter")
    written = collected.named("posthouse.create")[-1]
    assert linked(letter) == linked(written) == [place(paid).span_id]


async def test_a_call_and_what_it_leads_to_are_in_the_trace_too(harness: Harness) -> None:
    await start()
    await harness.publish(Returned(booking_id="b1"))
    await harness.settled()
    assert story() == [
        "POST /bookings",
        "  create booking.held.v1",
        "  create saga.deadline_passed.v1",
        "  saga booking",
        "    create saga.call_wanted.v1",
        "      process Booking.(calls)",
        "        GET /weight",
        "        create booking.cancelled.v1",
    ]


async def test_an_operator_goes_on_in_the_trace_of_the_saga(harness: Harness) -> None:
    await start()
    await app_of(hotel).sagas.cancel("booking", "b1", "no more", tenant="t1")
    assert "    create booking.cancelled.v1" in story()


async def test_a_saga_that_no_request_began_has_the_trace_of_its_correlation(harness: Harness) -> None:
    async with hotel.transaction("t1", correlation=(correlation := new_id())) as tx:
        await hotel.start_saga(tx, Booking(booking_id="b1"))
    await harness.advance(30.0)
    assert tree_of(correlation_to_trace_id(correlation) or "") == [
        "saga booking",
        "  create booking.held.v1",
        "  create saga.deadline_passed.v1",
        "    process Booking.(deadlines)",
        "      create booking.cancelled.v1",
        "    process Letter.(deadlines)",
    ]


async def test_a_saga_that_was_not_started_leaves_a_span_that_says_so(harness: Harness) -> None:
    with pytest.raises(KeyError):
        await begin_and_leave()
    begun = collected.one("posthouse.saga")
    assert (begun.attributes or {})["posthouse.outcome"] == "rolled back"
    assert begun.status.status_code is StatusCode.ERROR


async def begin_and_leave() -> None:
    async with hotel.transaction("t1") as tx:
        await hotel.start_saga(tx, Booking(booking_id="b1"))
        raise KeyError
