"""What methods may say through their turn, and sagas that events start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from posthouse import Event, Payload, Policy, Reject, RetryNow, Service, Tx
from posthouse.app import app_of
from posthouse.errors import ConfigurationError, StoreCollision
from posthouse.processes import Saga, Turn, deadline, late, on, starts, step, undo
from posthouse.store.sagas import SagaFilter, SagaRow
from posthouse.testing import Harness

shop = Service("shop", namespace="town")


@shop.event("order.placed.v1", key="number")
class OrderPlaced(Payload):
    number: int
    cents: int = 0


@shop.event("order.paid.v1", key="ref")
class OrderPaid(Payload):
    order_id: str | None = None
    ref: str = "7"


@shop.event("order.lost.v1", key="order_id")
class OrderLost(Payload):
    order_id: str


@shop.event("order.found.v1", key="order_id")
class OrderFound(Payload):
    order_id: str


@shop.event("parcel.requested.v1", key="order_id")
class ParcelRequested(Payload):
    order_id: str


class Script:
    """What the methods of a test do."""

    act: Callable[[OrderSaga, Turn], object] = lambda saga, turn: None
    back: Callable[[OrderSaga, Turn], object] = lambda saga, turn: None
    late: Callable[[OrderSaga, Turn], object] = lambda saga, turn: None
    calls: list[str]


@shop.saga("order", correlate="order_id", policy=Policy(max_attempts=2, first_delay=5.0))
class OrderSaga(Saga):
    order_id: str
    cents: int = 0
    share: float = 0.0
    seen: list[str] = msgspec.field(default_factory=list)

    @starts(OrderPlaced, correlate="number")
    async def placed(self, event: Event[OrderPlaced], turn: Turn) -> None:
        await asyncio.sleep(0)
        self.cents = event.data.cents

    @undo(placed)
    async def forget(self, event: Event[OrderPlaced], turn: Turn) -> None:
        Script.calls.append("forget")
        turn.publish(ParcelRequested(order_id=self.order_id))
        self.seen.append("forget")
        Script.back(self, turn)

    @step(OrderPaid)
    def paid(self, event: Event[OrderPaid], turn: Turn) -> None:
        self.seen.append("paid")
        Script.act(self, turn)

    @on(OrderLost)
    def lost(self, event: Event[OrderLost], turn: Turn) -> None:
        turn.compensate("lost")

    @late(OrderPaid)
    def paid_late(self, event: Event[OrderPaid], turn: Turn) -> None:
        Script.late(self, turn)

    @late(OrderFound)
    async def found_late(self, event: Event[OrderFound], turn: Turn) -> None:
        self.seen.append("found late")

    @deadline(20.0)
    def slow(self, turn: Turn) -> None:
        self.seen.append("slow")

    @deadline(40.0)
    def slower(self, turn: Turn) -> None:
        self.seen.append("slower")


@shop.saga("parcel", correlate="order_id")
class ParcelSaga(Saga):
    """Another process of the same service, about the same orders."""

    order_id: str

    @starts(ParcelRequested)
    def asked(self, event: Event[ParcelRequested], turn: Turn) -> None:
        turn.set(self.slow)

    @deadline(20.0)
    def slow(self, turn: Turn) -> None:
        turn.complete()


@pytest.fixture(autouse=True)
def _script() -> None:
    Script.act = Script.back = Script.late = lambda saga, turn: None
    Script.calls = []


async def order(id: str = "7", saga: str = "order") -> SagaRow:
    (row,) = await app_of(shop).store.sagas.find(SagaFilter(saga=saga, id=id))
    return row


async def seen() -> list[str]:
    saga = shop.declared.saga_types["order"].decode((await order()).state, "7")
    assert isinstance(saga, OrderSaga)
    return saga.seen


async def running(h: Harness) -> None:
    await h.publish(OrderPlaced(number=7, cents=300))
    await h.settled()


async def test_an_event_starts_a_saga_whose_id_it_carries() -> None:
    async with Harness(shop) as h:
        await running(h)
        row = await order()
        (begun,) = await app_of(shop).store.sagas.history("order", "t1", "7")
        (placed,) = await h.published(OrderPlaced)
    assert (row.status, row.steps, row.correlation) == ("running", ("placed",), placed.correlation)
    assert (begun.input.kind, begun.input.event_id, begun.method) == ("event", placed.id, "placed")
    assert b'"cents":300' in row.state


async def test_another_event_that_would_start_it_is_noted() -> None:
    async with Harness(shop) as h:
        await running(h)
        await h.publish(OrderPlaced(number=7, cents=999))
        await h.settled()
        row, turns = await order(), await app_of(shop).store.sagas.history("order", "t1", "7")
        assert await h.held(shop) == []
    assert b'"cents":300' in row.state
    assert [(turn.method, bool(turn.note), turn.late) for turn in turns] == [
        ("placed", False, False),
        ("", True, False),
    ]


async def test_an_event_without_an_id_is_about_no_saga() -> None:
    async with Harness(shop) as h:
        await h.publish(OrderPaid(order_id=""))
        await h.publish(OrderPaid())
        await h.settled()
        assert await h.held(shop) == []
        assert await app_of(shop).store.sagas.find(SagaFilter()) == []


async def test_deadlines_are_set_moved_cleared_and_set_again() -> None:
    def set_both(saga: OrderSaga, turn: Turn) -> None:
        turn.set(saga.slow)
        turn.set(saga.slower, after=5.0)

    def move(saga: OrderSaga, turn: Turn) -> None:
        turn.clear(saga.slow)
        turn.set(saga.slow, after=30.0)
        turn.set(saga.slower)
        turn.clear(saga.slower)

    async with Harness(shop) as h:
        await running(h)
        Script.act = set_both
        await h.publish(OrderPaid(order_id="7"))
        await h.settled()
        now = h.clock.now()
        assert {name: at.due_at - now for name, at in (await order()).deadlines.items()} == {
            "slow": 20.0,
            "slower": 5.0,
        }
        Script.act = move
        await h.publish(OrderPaid(order_id="7"))
        await h.settled()
        assert [*(await order()).deadlines] == ["slow"]
        await h.advance(29.0)
        assert await seen() == ["paid", "paid"]
        figures = await h.advance(1.0)
        assert await seen() == ["paid", "paid", "slow"]
        assert (await order()).deadlines == {}
        assert figures.timers == {"shop": 0}


async def test_a_deadline_that_was_moved_does_not_count_by_its_first_time() -> None:
    async with Harness(shop) as h:
        await running(h)
        Script.act = lambda saga, turn: turn.set(saga.slow)
        await h.publish(OrderPaid(order_id="7"))
        await h.settled()
        (fired,) = await app_of(shop).store.timers.pending()
        await h.publish(OrderPaid(order_id="7"))
        await h.settled()
        async with app_of(shop).store.begin() as tx:
            await app_of(shop).store.outbox.append(tx, [fired.row])
        await h.settled()
        assert await seen() == ["paid", "paid"]
        await h.advance(20.0)
        assert await seen() == ["paid", "paid", "slow"]


async def test_what_is_only_taken_late_is_passed_over_in_time() -> None:
    async with Harness(shop) as h:
        await running(h)
        await h.publish(OrderFound(order_id="7"))
        await h.settled()
        assert await seen() == []
        await h.publish(OrderLost(order_id="7"))
        await h.publish(OrderFound(order_id="7"))
        await h.settled()
        assert await seen() == ["forget", "found late"]
        assert (await order()).status == "compensated"


async def test_a_step_that_is_done_twice_is_undone_once() -> None:
    async with Harness(shop) as h:
        await running(h)
        for _ in range(2):
            await h.publish(OrderPaid(order_id="7"))
        await h.settled()
        assert (await order()).steps == ("placed", "paid")
        await h.publish(OrderLost(order_id="7"))
        await h.settled()
        assert (await order()).status == "compensated"
        assert Script.calls == ["forget"]


async def test_two_sagas_of_one_service_do_not_take_each_others_deadlines() -> None:
    async with Harness(shop) as h:
        await running(h)
        Script.act = lambda saga, turn: turn.set(saga.slow)
        await h.publish(OrderPaid(order_id="7"))
        await h.publish(ParcelRequested(order_id="7"))
        await h.settled()
        await h.advance(20.0)
        assert (await order(saga="parcel")).status == "completed"
        assert await seen() == ["paid", "slow"]


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda saga, turn: turn.set(saga.paid), r"OrderSaga.paid: turn.set\(paid\) names no deadline of this saga"),
        (lambda saga, turn: turn.set("slow"), r"turn.set\('slow'\) names no deadline"),
        (lambda saga, turn: turn.clear(saga.forget), r"turn.clear\(forget\) names no deadline"),
        (
            lambda saga, turn: turn.set(saga.slow, after=-1.0),
            r"turn.set\(after=-1.0\): it is a number of seconds, 0 or more",
        ),
        (lambda saga, turn: (turn.complete(), turn.compensate("x")), r"turn.complete\(\) and then turn.compensate\(\)"),
        (lambda saga, turn: setattr(saga, "order_id", "8"), r"changed order_id from '7' to '8': a saga keeps the id"),
        (lambda saga, turn: setattr(saga, "cents", "many"), r"the state of the saga 'order' cannot be stored"),
        (
            lambda saga, turn: setattr(saga, "share", 2**53 + 1),
            r"the state of the saga 'order' cannot be stored: `\$.share` is 9007199254740993 here",
        ),
    ],
)
async def test_what_cannot_be_meant_fails_with_a_word_on_it(
    act: Callable[[OrderSaga, Turn], object], words: str
) -> None:
    async with Harness(shop) as h:
        await running(h)
        before = await order()
        Script.act = act
        await h.publish(OrderPaid(order_id="7"))
        await h.settled()
        (held,) = await h.held(shop)
        assert await order() == before
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(held.error)


async def test_an_undo_decides_nothing_about_the_saga() -> None:
    async with Harness(shop) as h:
        await running(h)
        Script.back = lambda saga, turn: turn.complete()
        await h.publish(OrderLost(order_id="7"))
        await h.settled()
        row = await order()
        assert row.status == "compensating"
        assert row.undoing is not None
        assert "OrderSaga.forget calls turn.complete(): an undo" in row.undoing.error
        Script.back = lambda saga, turn: turn.set(saga.slow)
        await h.advance(5.0)
        row = await order()
        assert row.status == "compensation_failed"
        assert row.undoing is not None
        assert "calls turn.set()" in row.undoing.error


async def test_an_undo_that_leaves_a_state_that_cannot_be_stored_has_failed() -> None:
    async with Harness(shop) as h:
        await running(h)
        Script.back = lambda saga, turn: setattr(saga, "cents", "many")
        await h.publish(OrderLost(order_id="7"))
        await h.settled()
        row = await order()
        assert row.undoing is not None
        assert "the state of the saga 'order' cannot be stored" in row.undoing.error
        assert await h.held(shop) == []


async def test_a_row_that_somebody_changed_behind_the_lock_is_not_overwritten() -> None:
    class Meddling(Saga):
        key: str

        @starts
        async def begin(self, turn: Turn) -> None:
            await turn.execute("UPDATE posthouse_saga SET turn = 5")

    service = Service("meddling")
    service.saga("meddling", correlate="key")(Meddling)
    async with Harness(service), service.transaction("t1") as tx:
        with pytest.raises(StoreCollision, match="meddling k was changed by somebody else"):
            await service.start_saga(tx, Meddling(key="k"))


async def test_an_undo_that_says_that_no_try_can_help_is_not_tried_again() -> None:
    def refuse(saga: OrderSaga, turn: Turn) -> None:
        raise Reject("never")

    async with Harness(shop) as h:
        await running(h)
        Script.back = refuse
        await h.publish(OrderLost(order_id="7"))
        await h.settled()
        assert (await order()).status == "compensation_failed"
        assert Script.calls == ["forget"]


async def test_an_undo_that_wants_another_try_at_once_gets_it_from_a_clean_state() -> None:
    def once(saga: OrderSaga, turn: Turn) -> None:
        if len(Script.calls) == 1:
            raise RetryNow

    async with Harness(shop) as h:
        await running(h)
        Script.back = once
        await h.publish(OrderLost(order_id="7"))
        await h.settled()
        assert (await order()).status == "compensated"
        assert Script.calls == ["forget", "forget"]
        assert await seen() == ["forget"]
        assert len(await h.published(ParcelRequested)) == 1


async def test_trouble_of_the_store_is_not_the_undos_fault() -> None:
    def trouble(saga: OrderSaga, turn: Turn) -> None:
        if len(Script.calls) == 1:
            raise StoreCollision("another transaction was in the way")

    async with Harness(shop) as h:
        await running(h)
        Script.back = trouble
        await h.publish(OrderLost(order_id="7"))
        await h.settled()
        row, turns = await order(), await app_of(shop).store.sagas.history("order", "t1", "7")
        assert row.status == "compensated"
        assert [turn.undo_failed for turn in turns] == ["", ""]
        assert Script.calls == ["forget", "forget"]


async def test_a_start_that_has_no_id_is_refused() -> None:
    class Nameless(Saga):
        key: str

        @starts
        def begin(self, turn: Turn) -> None: ...

    service = Service("nameless")
    service.saga("nameless", correlate="key")(Nameless)
    async with Harness(service), service.transaction("t1") as tx:
        with pytest.raises(ConfigurationError, match="Nameless has no key: every saga needs an id"):
            await service.start_saga(tx, Nameless(key=""))


async def test_what_is_published_through_the_transaction_is_in_the_history_too() -> None:
    def say(saga: OrderSaga, turn: Turn) -> None:
        assert isinstance(turn.tx, Tx)
        assert turn.tenant == "t1"
        turn.tx.publish(OrderLost(order_id="8"))
        turn.publish(OrderLost(order_id="9"), after=60.0)

    async with Harness(shop) as h:
        await running(h)
        Script.act = say
        await h.publish(OrderPaid(order_id="7"))
        await h.settled()
        turn = (await app_of(shop).store.sagas.history("order", "t1", "7"))[-1]
    assert [(said.type, said.after, bytes(said.data)) for said in turn.published] == [
        ("town.shop.order.lost.v1", 0.0, b'{"order_id":"8"}'),
        ("town.shop.order.lost.v1", 60.0, b'{"order_id":"9"}'),
    ]


async def test_turns_that_share_a_transaction_see_each_others_deadlines() -> None:
    @shop.event("tick.ticked.v1", key="key")
    class Ticked(Payload):
        key: str
        number: int

    service = Service("clock")
    turns: list[int] = []

    @service.saga("clock", correlate="key", policy=Policy(grouped=True))
    class ClockSaga(Saga):
        key: str
        count: int = 0

        @starts
        def begin(self, turn: Turn) -> None: ...

        @step(Ticked)
        def ticked(self, event: Event[Ticked], turn: Turn) -> None:
            self.count += 1
            turns.append(event.data.number)
            if self.count % 2:
                turn.set(self.slow)
            else:
                turn.clear(self.slow)
            if self.count == 40:
                turn.complete()

        @deadline(20.0)
        def slow(self, turn: Turn) -> None:
            turn.compensate("slow")

    async with Harness(service, shop) as h:
        async with service.transaction("t1") as tx:
            await service.start_saga(tx, ClockSaga(key="k"))
        async with shop.transaction("t1") as tx:
            for number in range(40):
                tx.publish(Ticked(key="k", number=number))
        figures = await h.settled()
        (row,) = await app_of(service).store.sagas.find(SagaFilter())
        assert figures.timers["clock"] == 0
    assert (row.status, row.turn, turns) == ("completed", 41, list(range(40)))
