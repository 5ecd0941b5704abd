"""What is refused when a saga is declared, because its methods could not do what their marks say."""

from __future__ import annotations

from typing import Any

from posthouse import Event, Payload, Service
from posthouse.errors import ConfigurationError
from posthouse.processes import Saga, Turn, late, on, partial_resume, starts, step, undo

shop = Service("shop")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.event("order.paid.v1", key="order_id")
class OrderPaid(Payload):
    order_id: str


@shop.event("order.sent.v1", key="order_id")
class OrderSent(Payload):
    order_id: str


class Begun(Saga):
    order_id: str

    @starts
    def begin(self, turn: Turn) -> None: ...


def problems(cls: type[Saga]) -> list[str]:
    try:
        Service("shop").saga("order", correlate="order_id")(cls)
    except ConfigurationError as error:
        return list(error.problems)
    return []


def test_a_step_of_two_events_is_annotated_for_both() -> None:
    class Of(Begun):
        @step(OrderPaid, OrderSent)  # type: ignore[arg-type]
        def paid(self, event: Event[OrderPaid], turn: Turn) -> None: ...

    assert problems(Of) == [
        "Of: paid is given Event[OrderPaid | OrderSent], and it is annotated as Event[OrderPaid]: "
        "write `event: Event[OrderPaid | OrderSent]`"
    ]


def test_every_mark_that_takes_an_event_looks_at_its_annotation() -> None:
    class Started(Saga):
        order_id: str

        @starts(OrderPlaced)  # type: ignore[arg-type]
        def begin(self, event: Event[OrderPaid], turn: Turn) -> None: ...

        @on(OrderPaid)  # type: ignore[arg-type]
        def paid(self, event: Event[OrderSent], turn: Turn) -> None: ...

        @late(OrderPaid)  # type: ignore[arg-type]
        def too_late(self, event: Event[OrderSent], turn: Turn) -> None: ...

    said = " and ".join(problems(Started))
    for word in ("begin is given Event[OrderPlaced]", "paid is given Event[OrderPaid]", "too_late is given Event["):
        assert word in said


def test_a_payload_is_no_event() -> None:
    class Of(Begun):
        @step(OrderPaid)  # type: ignore[arg-type]
        def paid(self, event: OrderPaid, turn: Turn) -> None: ...

    assert problems(Of) == [
        "Of: paid is given Event[OrderPaid], and its payload is event.data: write `event: Event[OrderPaid]`"
    ]


Answer = OrderPaid | OrderSent


def test_annotations_that_say_as_much_or_more_are_fine() -> None:
    class Of(Begun):
        @step(OrderPaid, OrderSent)
        def answered(self, event: Event[Answer], turn: Turn) -> None: ...

        @on(OrderPlaced)
        def whatever(self, event: Event[Any], turn: Turn) -> None: ...

        @late(OrderPaid)
        def some(self, event: Event[Payload], turn: Turn) -> None: ...

        @late(OrderSent)
        def bare(self, event, turn):  # type: ignore[no-untyped-def]
            ...

    assert problems(Of) == []


def test_names_that_cannot_be_found_from_here_are_left_to_the_type_checker() -> None:
    class Of(Begun):
        @step(OrderPaid)
        def paid(self, event: Event[Nowhere], turn: Turn) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert problems(Of) == []


def test_what_decides_in_an_undo_is_refused_when_it_is_declared() -> None:
    class Of(Begun):
        @step(OrderPaid)
        def paid(self, event: Event[OrderPaid], turn: Turn) -> None:
            turn.partial("a part is missing")

        @undo(Begun.begin)
        def give_back(self, turn: Turn) -> None:
            if self.order_id:
                turn.partial("cannot be given back")

        @partial_resume
        def told(self, turn: Turn) -> None:
            turn.complete()

    said = problems(Of)
    assert [problem for problem in said if "turn." in problem] == [
        "Of: give_back calls turn.partial(), which has no effect there: what is marked with @undo decides no more about the "
        "saga. Say it in the method that begins the compensation, or in a @late or @partial_retry method",
        "Of: told calls turn.complete(), which has no effect there: what is marked with @partial_resume decides no more about "
        "the saga. Say it in the method that begins the compensation, or in a @late or @partial_retry method",
    ]


def test_what_does_not_decide_is_fine_in_an_undo() -> None:
    class Of(Begun):
        @undo(Begun.begin)
        def give_back(self, turn: Turn) -> None:
            turn.publish(OrderSent(order_id=self.order_id))

    assert problems(Of) == []
