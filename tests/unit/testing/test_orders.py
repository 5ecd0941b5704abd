"""A saga in every order: what is played, what is found, and how it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from posthouse import Event, Payload, Run, Saga, Service, Turn, Tx, app_of, deadline, starts, step, undo
from posthouse.errors import ConfigurationError, DeskError
from posthouse.testing import Ending, Harness, Orders, OrdersBroken, assert_every_order, hears

shop = Service("shop")
stock = Service("stock")
till = Service("till")
waiter = Service("waiter")
nightly = Service("nightly")
knocker = Service("knocker")
bank = Service("bank")


@shop.event("order.placed.v1", key="order")
class Placed(Payload):
    order: str


@shop.event("order.shipped.v1", key="order")
class Shipped(Payload):
    order: str


@shop.event("order.dropped.v1", key="order")
class Dropped(Payload):
    order: str


@nightly.event("order.placed.v1", key="order")
class PlacedAtNight(Payload):
    order: str


@knocker.event("door.knocked.v1", key="order")
class Knocked(Payload):
    order: str


@knocker.event("knock.heard.v1", key="order")
class Heard(Payload):
    order: str


@bank.event("money.asked.v1", key="order")
class Asked(Payload):
    order: str


@bank.event("money.captured.v1", key="order")
class Captured(Payload):
    order: str
    capture: str


@bank.event("refund.asked.v1", key="order")
class RefundAsked(Payload):
    order: str
    capture: str


@bank.event("money.refunded.v1", key="order")
class Refunded(Payload):
    order: str


@stock.event("goods.packed.v1", key="order")
class Packed(Payload):
    order: str


@till.event("money.taken.v1", key="order")
class Taken(Payload):
    order: str


class Order(Saga):
    """It ships with the money, whether or not the goods are packed."""

    order: str

    @starts
    def place(self, turn: Turn) -> None:
        turn.publish(Placed(order=self.order))
        turn.set(self.overdue)

    @undo(place)
    def drop(self, turn: Turn) -> None:
        turn.publish(Dropped(order=self.order))

    @deadline(60.0)
    def overdue(self, turn: Turn) -> None:
        turn.compensate("overdue")

    @step(Packed)
    def packed(self, event: Event[Packed], turn: Turn) -> None: ...

    @step(Taken)
    def paid(self, event: Event[Taken], turn: Turn) -> None:
        turn.publish(Shipped(order=self.order))
        turn.complete()


class Patient(Saga):
    """It waits for ever."""

    order: str

    @starts
    def wait(self, turn: Turn) -> None: ...

    @step(Taken)
    def paid(self, event: Event[Taken], turn: Turn) -> None:
        turn.complete()


shop.saga("order", correlate="order")(Order)
waiter.saga("patient", correlate="order")(Patient)


class NightOrder(Saga):
    """Of a service that does something every night: it may wait longer than ended sagas are kept."""

    order: str

    @starts
    def place(self, turn: Turn) -> None:
        turn.publish(PlacedAtNight(order=self.order))
        turn.set(self.overdue)

    @deadline(120 * 86_400.0)
    def overdue(self, turn: Turn) -> None:
        turn.compensate("overdue")

    @step(Taken)
    def paid(self, event: Event[Taken], turn: Turn) -> None:
        turn.complete()


nightly.saga("order", correlate="order")(NightOrder)
counted: list[Run] = []


@nightly.every("30 2 * * *")
async def count_the_stock(run: Run, tx: Tx) -> None:
    counted.append(run)


class Knocking(Saga):
    """It has no end."""

    order: str

    @starts
    def knock(self, turn: Turn) -> None:
        turn.publish(Knocked(order=self.order))

    @step(Heard)
    def heard(self, event: Event[Heard], turn: Turn) -> None:
        turn.publish(Knocked(order=self.order))


knocker.saga("knocking", correlate="order")(Knocking)


class Capture(Saga):
    """Money that is given back when the saga is given up, as often as it was taken."""

    order: str

    @starts
    def ask(self, turn: Turn) -> None:
        turn.publish(Asked(order=self.order))
        turn.set(self.overdue)

    @deadline(60.0)
    def overdue(self, turn: Turn) -> None:
        turn.compensate("overdue")

    @step(Captured)
    def captured(self, event: Event[Captured], turn: Turn) -> None: ...

    @undo(captured, until=Refunded, within=30.0)
    def refund(self, event: Event[Captured], turn: Turn) -> None:
        turn.publish(RefundAsked(order=self.order, capture=event.data.capture))


bank.saga("capture", correlate="order")(Capture)


class Acquirer:
    """Refunds a capture once, however often it is asked to."""

    def __init__(self) -> None:
        self.kept: set[str] = set()

    @hears(Asked)
    def captures_twice(self, said: Asked) -> list[Captured]:
        self.kept |= {"c1", "c2"}
        return [Captured(order=said.order, capture=capture) for capture in ("c1", "c2")]

    @hears(RefundAsked)
    def refunds(self, said: RefundAsked) -> Refunded:
        self.kept.discard(said.capture)
        return Refunded(order=said.order)

    @hears(RefundAsked)
    def says_nothing(self, said: RefundAsked) -> None: ...


class NightTill:
    @hears(PlacedAtNight)
    def takes(self, said: PlacedAtNight) -> Taken:
        return Taken(order=said.order)

    @hears(PlacedAtNight)
    def sleeps(self, said: PlacedAtNight) -> None: ...


class Stock:
    def __init__(self) -> None:
        self.packed = 0

    @hears(Placed)
    def packs(self, said: Placed) -> Packed:
        self.packed += 1
        return Packed(order=said.order)

    @hears(Placed)
    def has_none(self, said: Placed) -> None: ...


class Till:
    @hears(Placed)
    def takes(self, said: Placed) -> Taken:
        return Taken(order=said.order)


async def place(harness: Harness, tenant: str) -> None:
    async with shop.transaction(tenant) as tx:
        await shop.start_saga(tx, Order(order="o1"))


async def place_at_night(harness: Harness, tenant: str) -> None:
    async with nightly.transaction(tenant) as tx:
        await nightly.start_saga(tx, NightOrder(order="o1"))


async def knock(harness: Harness, tenant: str) -> None:
    async with knocker.transaction(tenant) as tx:
        await knocker.start_saga(tx, Knocking(order="o1"))


async def wait_for_ever(harness: Harness, tenant: str) -> None:
    async with waiter.transaction(tenant) as tx:
        await waiter.start_saga(tx, Patient(order="o1"))


def shipped_what_was_packed(end: Ending) -> Iterator[str]:
    if end.said(Shipped) and not end.partner(Stock).packed:
        yield "shipped, and never packed"


def anything_goes(end: Ending) -> Iterator[str]:
    yield from ()


async def broken(**given: object) -> Orders:
    options: dict[str, object] = {"start": place, "partners": [Stock, Till], "invariants": shipped_what_was_packed}
    with pytest.raises(OrdersBroken) as caught:
        await assert_every_order(shop, Order, **{**options, **given})  # type: ignore[arg-type]  # as the test says
    assert str(caught.value) == str(caught.value.orders)
    return caught.value.orders


async def test_an_order_that_breaks_an_invariant_is_found_and_told() -> None:
    orders = await broken(limit=60)
    plain = min(orders.violations, key=lambda violation: len(violation.story))
    assert plain.what == "shipped, and never packed"
    assert list(plain.story) == [
        "order.placed is said, and Stock.has_none",
        "order.placed is said, and Till.takes → running at turn 1",
        "money.taken arrives → completed at turn 2",
    ]
    assert f"{len(orders.violations)} × shipped, and never packed" in str(orders)


async def test_an_order_that_was_told_is_played_again_alone() -> None:
    for violation in (await broken(limit=60)).violations[::7]:
        again = await broken(only=violation.order)
        assert (again.runs, list(again.violations)) == (1, [violation])


async def test_the_same_seed_draws_the_same_orders_and_another_others() -> None:
    first, second, other = await broken(limit=40), await broken(limit=40), await broken(limit=40, seed=1)
    assert first == second
    assert first != other
    assert (first.runs, first.whole) == (40, False)
    assert first.of > first.runs


async def test_every_order_is_played_once_if_the_limit_allows_it() -> None:
    def tell(end: Ending) -> Iterator[str]:
        yield "told"

    whole = await broken(limit=5000, invariants=tell)
    again = await broken(limit=5000, invariants=tell, seed=7)
    assert whole.whole
    assert {violation.order for violation in whole.violations} == {violation.order for violation in again.violations}
    assert whole.runs == len(whole.violations) == len({violation.order for violation in whole.violations})
    told = "\n".join(line for violation in whole.violations for line in violation.story)
    for words in (
        "money.taken arrives, and its turn fails once",
        "goods.packed arrives, and a second copy is under way",
        "an operator cancels",
        "60 s pass, and the next turn fails once",
    ):
        assert words in told


async def test_a_saga_that_stands_still_breaks_an_invariant_that_nobody_wrote() -> None:
    with pytest.raises(OrdersBroken, match="the saga stands still, and says so to nobody"):
        await assert_every_order(waiter, Patient, start=wait_for_ever, invariants=anything_goes)


async def test_a_turn_that_failed_is_tried_again_and_leaves_nothing_twice() -> None:
    def shipped_once(end: Ending) -> Iterator[str]:
        if len(end.said(Shipped)) > 1 or (end.status == "completed") != bool(end.said(Shipped)):
            yield f"{end.status}, and shipped {len(end.said(Shipped))} times"

    methods = {name: getattr(Order, name) for name in ("place", "paid", "drop", "overdue")}
    orders = await assert_every_order(
        shop, Order, start=place, partners=[Stock, Till], invariants=shipped_once, limit=200
    )
    assert orders.runs == 200
    assert {name: getattr(Order, name) for name in methods} == methods


async def test_what_happens_meanwhile_happens_at_any_point_and_before_the_start_everything_arrives_at_once() -> None:
    seen: set[str] = set()

    async def complain(harness: Harness, tenant: str) -> None:
        await harness.publish(Packed(order="o1"), tenant=tenant)

    def note(end: Ending) -> Iterator[str]:
        seen.add(f"{len(end.said(Packed))} packed, {end.status}")
        yield from ()

    await assert_every_order(
        shop,
        Order,
        before=[place],
        start=complain,
        partners=[Till],
        meanwhile={"they are packed again": complain},
        invariants=note,
        limit=100,
    )
    assert {"1 packed, compensated", "2 packed, compensated"} <= seen


async def test_schedules_are_not_played_and_every_run_ends_as_it_would_without_them() -> None:
    seen: set[str] = set()

    def note(end: Ending) -> Iterator[str]:
        seen.add(end.status)
        yield from ()

    orders = await assert_every_order(
        nightly, NightOrder, start=place_at_night, partners=[NightTill], invariants=note, limit=40
    )
    assert (orders.runs, sum(orders.ends.values()), set(orders.ends)) == (40, 40, seen)
    assert seen == {"completed", "compensated", "cancelled"}
    assert not counted


async def test_a_play_that_starts_no_saga_is_broken_and_not_green() -> None:
    async def place_elsewhere(harness: Harness, tenant: str) -> None:
        await place(harness, "elsewhere")

    orders = await broken(start=place_elsewhere, invariants=anything_goes, limit=5)
    assert [violation.what for violation in orders.violations] == [
        "nothing was played: place_elsewhere started no Order for the tenant that it was given"
    ]
    assert "never started" in str(orders)


async def test_a_run_without_an_end_says_so() -> None:
    class Echo:
        @hears(Knocked)
        def knocks_again(self, said: Knocked) -> Heard:
            return Heard(order=said.order)

    with pytest.raises(OrdersBroken, match="it has not come to an end after 200 moves"):
        await assert_every_order(knocker, Knocking, start=knock, partners=[Echo], invariants=anything_goes, only="")


async def test_invariants_may_be_an_asynchronous_generator_or_function() -> None:
    async def told(end: Ending) -> AsyncIterator[str]:
        yield "told"

    async def listed(end: Ending) -> list[str]:
        return ["told"]

    for invariants in (told, listed):
        orders = await broken(invariants=invariants, limit=3)
        assert [violation.what for violation in orders.violations] == ["told"] * 3


async def test_no_two_runs_of_a_play_are_the_same_tenant() -> None:
    seen: list[str] = []

    def note(end: Ending) -> Iterator[str]:
        seen.append(end.tenant)
        yield from ()

    await assert_every_order(shop, Order, start=place, partners=[Stock, Till], invariants=note, limit=40)
    assert len(seen) == len(set(seen)) >= 40


async def test_an_operator_may_retry_at_any_point_and_a_partner_may_do_it_twice() -> None:
    retried: set[str] = set()

    async def ask(harness: Harness, tenant: str) -> None:
        async with bank.transaction(tenant) as tx:
            await bank.start_saga(tx, Capture(order="o1"))

    async def retry(harness: Harness, tenant: str) -> None:
        with suppress(DeskError):  # there is nothing to retry at most points
            await app_of(bank).sagas.retry("capture", "o1", tenant=tenant)
            retried.add(tenant)

    def nothing_is_kept(end: Ending) -> Iterator[str]:
        if end.status in ("compensated", "cancelled") and end.partner(Acquirer).kept:
            yield f"{end.status}, and kept {len(end.partner(Acquirer).kept)}"

    orders = await assert_every_order(
        bank,
        Capture,
        start=ask,
        partners=[Acquirer],
        meanwhile={"an operator retries": retry},
        invariants=nothing_is_kept,
        limit=60,
    )
    assert retried
    assert {"compensated", "compensation_failed"} <= set(orders.ends)


async def test_a_neighbour_runs_its_own_handlers() -> None:
    neighbour = Service("till")

    @neighbour.event("money.taken.v1", key="order")
    class TakenHere(Payload):
        order: str

    @neighbour.on(Placed)
    async def take(event: Event[Placed], tx: Tx) -> None:
        tx.publish(TakenHere(order=event.data.order))

    def ended(end: Ending) -> Iterator[str]:
        if end.status not in ("completed", "compensated", "cancelled"):
            yield end.status

    orders = await assert_every_order(
        shop, Order, start=place, partners=[Stock], neighbours=[neighbour], invariants=ended, limit=40
    )
    assert orders.runs == 40


class Deaf:
    """No method is marked."""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"partners": [Deaf]}, "Deaf hears nothing: mark its methods with @hears"),
        ({"limit": 0}, "limit"),
        ({"only": "nonsense"}, "is no order"),
    ],
)
async def test_what_was_given_wrongly_is_told(given: dict[str, object], words: str) -> None:
    options: dict[str, object] = {"start": place, "partners": [Stock], "invariants": anything_goes}
    with pytest.raises(ConfigurationError, match=words):
        await assert_every_order(shop, Order, **{**options, **given})  # type: ignore[arg-type]  # that is the test


async def test_a_saga_of_another_service_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Order is no saga of till"):
        await assert_every_order(till, Order, start=place, invariants=anything_goes)
