"""What a class must be to be a saga, and what is said about one that cannot work."""

from __future__ import annotations

import pytest

from posthouse import Event, Payload, Policy, Service
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from posthouse.governance.listing import catalogue_of
from posthouse.processes import Saga, Turn, deadline, late, on, partial_retry, starts, step, undo
from posthouse.testing import Harness
from tests.unit.processes.saga import hotel

shop = Service("shop")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    cents: int = 0


@shop.event("order.paid.v1", key="order_id")
class OrderPaid(Payload):
    order_id: str


@shop.event("order.sent.v1", key="parcel")
class OrderSent(Payload):
    parcel: str
    oder_id: str = ""


class NoEvent(Payload):
    order_id: str


def declared(cls: type[Saga], *, correlate: str = "order_id", policy: Policy | None = None) -> Service:
    service = Service("shop")
    service.saga("order", correlate=correlate, policy=policy)(cls)
    return service


def problems(cls: type[Saga], *, correlate: str = "order_id") -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        declared(cls, correlate=correlate)
    return list(caught.value.problems)


class Plain(Saga):
    """What one needs at least."""

    order_id: str

    @starts
    def begin(self, turn: Turn) -> None: ...


def test_what_is_declared_can_be_listed() -> None:
    known = hotel.reservation.declared.saga_types["booking"]
    assert (known.consumer, known.cls, known.correlate) == ("reservation.booking", hotel.BookingSaga, "booking_id")
    assert known.description == "Hold the room, commit it, take the money, confirm."
    assert (known.starts, known.started_by) == ("hold", None)
    assert known.steps == ("hold", "room_committed", "paid")
    assert {step: undo.method for step, undo in known.undos.items()} == {
        "hold": "drop_hold",
        "room_committed": "release_room",
    }
    assert known.undos["room_committed"].within == 60.0
    assert known.deadlines == {"hold_expired": 30.0}
    assert known.partial_retry == "look_again"
    assert [(take.method, take.correlate, take.early) for take in known.takes] == [
        ("room_committed", "booking_id", "wait"),
        ("payment_failed", "booking", "wait"),
        ("paid", "booking_id", "wait"),
        ("reviewed", "booking_id", "ignore"),
    ]
    assert [take.method for take in known.lates] == ["paid_too_late"]


def test_a_saga_is_a_consumer_of_its_own_with_a_topic_for_its_deadlines() -> None:
    topology = app_of(hotel.reservation).opened.topology()
    assert topology.groups["reservation.booking"] == [
        "hotel.inventory.allocation",
        "hotel.payment.intent",
        "hotel.payment.review",
        "hotel.reservation.saga",
    ]
    assert "hotel.reservation.saga" in topology.topics


def test_deadlines_are_in_no_catalogue() -> None:
    document = catalogue_of([hotel.reservation])
    assert "saga" not in {entry.aggregate for entry in document.events}
    assert "hotel.reservation.saga" not in {topic.name for topic in document.topics}
    read = {reading.subject for handler in document.handlers for reading in handler.reads}
    assert not any("deadline_passed" in subject for subject in read)
    names = {handler.name.rpartition(".")[2] for handler in document.handlers}
    assert names == {"room_committed", "release_room", "payment_failed", "paid", "reviewed"}


def test_handlers_pass_for_the_users_own_module() -> None:
    handlers = hotel.reservation.declared.consumers["reservation.booking"].values()
    assert {handler.function.__module__ for handler in handlers} == {hotel.__name__}


def test_fields_are_given_by_keyword_in_any_order() -> None:
    class Mixed(Saga):
        first: int = 1
        second: str

    assert Mixed(second="x").first == 1
    with pytest.raises(TypeError):
        Mixed("x")  # type: ignore[call-arg, arg-type]


def test_every_problem_is_said_at_once() -> None:
    class Bad(Saga):
        oder_id: str = ""

        @step(OrderPaid)
        def paid(self, event: Event[OrderPaid], turn: Turn) -> None: ...

        @on(OrderPaid)
        def paid_again(self, event: Event[OrderPaid], turn: Turn) -> None: ...

        @on(OrderSent)
        def sent(self, event: Event[OrderSent], turn: Turn) -> None: ...

        @undo(paid_again)
        def unpay(self, event: Event[OrderPaid], turn: Turn) -> None: ...

        @deadline(0)
        def never(self, turn: Turn) -> None: ...

    assert problems(Bad) == [
        "Bad: it has no field 'order_id' to be found by. Did you mean 'oder_id'?",
        "Bad: one method is marked with @starts, not 0",
        "Bad: sent: OrderSent has no field 'order_id' to find the saga by. Did you mean 'oder_id'? "
        "Name the field with correlate=…",
        "Bad: never: a deadline is above 0 seconds, not 0",
        "Bad: paid and paid_again both take OrderPaid: one method takes an event",
        "Bad: unpay undoes paid_again, which is no step of this saga. Did you mean 'paid'?",
    ]


def test_a_saga_has_one_start() -> None:
    class Two(Plain):
        @starts
        def also(self, turn: Turn) -> None: ...

    assert problems(Two) == ["Two: one method is marked with @starts, not 2: begin, also"]


def test_what_an_event_starts_begins_with_defaults() -> None:
    class Wanting(Saga):
        order_id: str
        cents: int
        name: str

        @starts(OrderPlaced)
        def placed(self, event: Event[OrderPlaced], turn: Turn) -> None: ...

    assert problems(Wanting) == ["Wanting: placed is started by an event, so cents, name need a default"]


def test_only_events_are_taken() -> None:
    class Strange(Plain):
        @on(NoEvent)
        def taken(self, event: Event[NoEvent], turn: Turn) -> None: ...

    (problem,) = problems(Strange)
    assert "which is no event: declare it with @service.event" in problem


def test_a_method_takes_what_its_mark_gives() -> None:
    class Short(Plain):
        @step(OrderPaid)  # type: ignore[arg-type]
        def paid(self, turn: Turn) -> None: ...

        @deadline(5.0)  # type: ignore[arg-type]
        def over(self, event: object, turn: Turn) -> None: ...

    assert problems(Short) == [
        "Short: paid(self, turn) is marked with @step and takes (self, event, turn)",
        "Short: over(self, event, turn) is marked with @deadline and takes (self, turn)",
    ]


def test_a_step_has_one_undo_and_a_method_one_purpose() -> None:
    class Twice(Plain):
        @undo(Plain.begin)
        def back(self, turn: Turn) -> None: ...

        @undo(Plain.begin)
        @deadline(3.0)
        def again(self, turn: Turn) -> None: ...

        @partial_retry
        def more(self, turn: Turn) -> None: ...

        @partial_retry
        def and_more(self, turn: Turn) -> None: ...

    assert problems(Twice) == [
        "Twice: again is marked 2 times: a method has one purpose",
        "Twice: more and and_more are both marked with @partial_retry: one method is what a retry runs",
        "Twice: begin has 2 undos: put what they do into one",
    ]


def test_an_event_may_be_taken_in_time_by_one_method_and_late_by_another() -> None:
    class Both(Plain):
        @on(OrderPaid)
        def paid(self, event: Event[OrderPaid], turn: Turn) -> None: ...

        @late(OrderPaid)
        def paid_late(self, event: Event[OrderPaid], turn: Turn) -> None: ...

    assert [*declared(Both).declared.consumers["shop.order"]] == ["shop.order.paid.v1", "shop.saga.deadline_passed.v1"]


def test_names_and_settings_are_checked() -> None:
    class Frozen(Plain, frozen=True):  # type: ignore[misc]
        @undo(Plain.begin, until=OrderPaid, within=0)
        def back(self, turn: Turn) -> None: ...

        @on(OrderSent, correlate="oder_id", early="later")  # type: ignore[call-overload, untyped-decorator]
        def sent(self, event: Event[OrderSent], turn: Turn) -> None: ...

    with pytest.raises(ConfigurationError) as caught:
        Service("shop").saga("Check In", correlate="order_id")(Frozen)
    assert list(caught.value.problems) == [
        "Frozen: 'Check In' is no name for a saga: write it in snake_case, as in 'check_in'",
        "Frozen: a saga is changed by its methods: leave frozen=True out",
        "Frozen: back: within must be above 0 seconds, not 0",
        "Frozen: sent: early='later'. Known: ignore, wait.",
    ]


def test_one_name_is_one_saga_and_one_consumer() -> None:
    service = declared(Plain)
    with pytest.raises(ConfigurationError, match=r"consumer shop.order already"):
        service.saga("order", correlate="order_id")(Plain)
    with pytest.raises(ConfigurationError, match="is no saga: derive it from"):
        service.saga("other", correlate="order_id")(NoEvent)  # type: ignore[type-var]


async def test_only_its_own_service_starts_a_saga() -> None:
    with pytest.raises(ConfigurationError, match="Plain is no saga of shop: declare it"):
        await Service("shop").start_saga(None, Plain(order_id="o"))  # type: ignore[arg-type]
    mine, theirs = declared(Plain), Service("other")
    async with Harness(mine, theirs), theirs.transaction("t1") as tx:
        with pytest.raises(ConfigurationError, match=r"shop.order: start it in a transaction of shop"):
            await mine.start_saga(tx, Plain(order_id="o"))
