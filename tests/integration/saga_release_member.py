"""An order in two releases of its service, for processes of their own: `python -m tests.integration.saga_release_member 1`.

The second one adds a step with an undo, a join and a deadline, and renames a field. Each turn in time adds one to that field.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from posthouse import Event, Payload, Policy, Saga, Service, Turn, deadline, field, join, on, starts, step, undo

TILL = Service("till")


@TILL.event("order.placed.v1", key="order_id")
class Placed(Payload):
    order_id: str


@TILL.event("order.paid.v1", key="order_id")
class Paid(Payload):
    order_id: str


@TILL.event("order.insured.v1", key="order_id")
class Insured(Payload):
    order_id: str


@TILL.event("order.refused.v1", key="order_id")
class Refused(Payload):
    order_id: str


@TILL.event("order.shipped.v1", key="order_id")
class Shipped(Payload):
    order_id: str


def release(number: int) -> Service:
    """The service as it was released."""
    shop = Service("shop")

    @shop.event("order.refunded.v1", key="order_id")
    class Refunded(Payload):
        order_id: str

    @shop.event("order.packed.v1", key="order_id")
    class Packed(Payload):
        order_id: str

    @shop.event("insurance.cancelled.v1", key="order_id")
    class InsuranceCancelled(Payload):
        order_id: str

    class First(Saga):
        order_id: str
        points: int = 0

        @starts(Placed)
        def begin(self, event: Event[Placed], turn: Turn) -> None:
            self.points += 1

        @step(Paid)
        def paid(self, event: Event[Paid], turn: Turn) -> None:
            self.points += 1

        @undo(paid)
        def refund(self, event: Event[Paid], turn: Turn) -> None:
            turn.publish(Refunded(order_id=self.order_id))

        @on(Refused)
        def refused(self, event: Event[Refused], turn: Turn) -> None:
            turn.compensate("refused")

        @step(Shipped, after=paid)
        def shipped(self, event: Event[Shipped], turn: Turn) -> None:
            self.points += 1
            turn.complete()

    class Second(Saga):
        order_id: str
        score: int = field(was="points", default=0)
        insured_by: str = ""

        @starts(Placed)
        def begin(self, event: Event[Placed], turn: Turn) -> None:
            self.score += 1

        @step(Paid)
        def paid(self, event: Event[Paid], turn: Turn) -> None:
            self.score += 1
            turn.set(self.slow)

        @undo(paid)
        def refund(self, event: Event[Paid], turn: Turn) -> None:
            turn.publish(Refunded(order_id=self.order_id))

        @step(Insured)
        def insured(self, event: Event[Insured], turn: Turn) -> None:
            self.score += 1
            self.insured_by = event.id

        @undo(insured)
        def cancel_insurance(self, event: Event[Insured], turn: Turn) -> None:
            turn.publish(InsuranceCancelled(order_id=self.order_id))

        @join(paid, insured)
        def pack(self, turn: Turn) -> None:
            turn.publish(Packed(order_id=self.order_id))

        @deadline(600.0)
        def slow(self, turn: Turn) -> None:
            turn.compensate("slow")

        @on(Refused)
        def refused(self, event: Event[Refused], turn: Turn) -> None:
            turn.compensate("refused")

        @step(Shipped, after=paid)
        def shipped(self, event: Event[Shipped], turn: Turn) -> None:
            self.score += 1
            turn.complete()

    quick = Policy(first_delay=0.05, last_delay=1.0, max_attempts=20)
    shop.saga("order", correlate="order_id", policy=quick)(First if number == 1 else Second)
    return shop


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await release(int(sys.argv[1])).run(stop=stop)


if __name__ == "__main__":
    asyncio.run(main())
