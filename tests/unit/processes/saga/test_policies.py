"""Each method may have a policy of its own; the saga's is for the others."""

from __future__ import annotations

from posthouse import Event, Payload, Policy, Service
from posthouse.app import app_of
from posthouse.processes import Saga, Turn, deadline, on, starts, step, undo
from posthouse.testing import Harness

ONCE, TWICE = Policy(max_attempts=1), Policy(max_attempts=2, first_delay=100.0, last_delay=100.0)
runs: list[str] = []


class Paid(Payload):
    order_id: str


class Sent(Payload):
    order_id: str


class GivenUp(Payload):
    order_id: str


def shop() -> Service:
    runs.clear()
    service = Service("shop")
    for name, cls in (("order.paid", Paid), ("order.sent", Sent), ("order.given_up", GivenUp)):
        service.event(f"{name}.v1", key=None)(cls)

    @service.saga("order", correlate="order_id", policy=Policy(max_attempts=3, first_delay=10.0, last_delay=10.0))
    class Order(Saga):
        order_id: str

        @starts
        def begin(self, turn: Turn) -> None:
            turn.set(self.slow)
            turn.set(self.slower)

        @step(Paid, policy=TWICE)
        def paid(self, event: Event[Paid], turn: Turn) -> None:
            fail("paid")

        @on(Sent)
        def sent(self, event: Event[Sent], turn: Turn) -> None:
            fail("sent")

        @on(GivenUp)
        def given_up(self, event: Event[GivenUp], turn: Turn) -> None:
            turn.compensate("given up")

        @undo(begin, policy=ONCE)
        def forget(self, turn: Turn) -> None:
            fail("forget")

        @deadline(1.0, policy=TWICE)
        def slow(self, turn: Turn) -> None:
            fail("slow")

        @deadline(1.0)
        def slower(self, turn: Turn) -> None:
            fail("slower")

    service.order = Order  # type: ignore[attr-defined]
    return service


def fail(name: str) -> None:
    runs.append(name)
    raise RuntimeError("it always fails")


async def started(h: Harness, service: Service) -> None:
    async with service.transaction("t1") as tx:
        await service.start_saga(tx, service.order(order_id="o1"))  # type: ignore[attr-defined]
    await h.settled()


async def test_a_step_and_a_reaction_fail_by_policies_of_their_own() -> None:
    service = shop()
    async with Harness(service) as h:
        await started(h, service)
        await h.publish(Paid(order_id="o1"))
        await h.publish(Sent(order_id="o1"))
        await h.settled()
        await h.advance(0.5)
        await h.advance(0.4)
        assert sorted(runs) == ["paid", "sent"]
        await h.advance(500)
    assert (runs.count("paid"), runs.count("sent")) == (2, 3)


async def test_each_deadline_fails_by_its_own() -> None:
    service = shop()
    async with Harness(service) as h:
        await started(h, service)
        await h.advance(500)
        assert (runs.count("slow"), runs.count("slower")) == (2, 3)
        assert [held.state for held in await h.held(service)] == ["dead", "dead"]


async def test_an_undo_is_given_up_by_its_own() -> None:
    service = shop()
    async with Harness(service) as h:
        await started(h, service)
        await h.publish(GivenUp(order_id="o1"))
        await h.settled()
        row = (await app_of(service).sagas.show("order", "o1", tenant="t1")).row
        assert (row.status, runs) == ("compensation_failed", ["forget"])
