"""Steps that wait for others, joins, and undos that are given the event of their step."""

from __future__ import annotations

from posthouse import Event, Payload, Service
from posthouse.errors import ConfigurationError
from posthouse.processes import Saga, Turn, deadline, join, on, starts, step, undo
from posthouse.testing import given
from posthouse.testing.sagas import SagaCase

shop = Service("yard", namespace="town")


@shop.event("part.came.v1", key="order_id")
class PartCame(Payload):
    order_id: str
    name: str = ""


@shop.event("money.came.v1", key="order_id")
class MoneyCame(Payload):
    order_id: str
    cents: int = 0


@shop.event("order.failed.v1", key="order_id")
class OrderFailed(Payload):
    order_id: str


@shop.event("parcel.sent.v1", key="order_id")
class ParcelSent(Payload):
    order_id: str


@shop.event("order.asked.v1", key="order_id")
class Asked(Payload):
    order_id: str


@shop.event("order.said.v1", key="order_id")
class Said(Payload):
    order_id: str
    words: str


@shop.saga("yard", correlate="order_id")
class YardSaga(Saga):
    """Parts and money come in any order; then it is packed, and only then sent."""

    order_id: str

    @starts
    def begin(self, turn: Turn) -> None:
        turn.set(self.slow)

    @undo(begin)
    def drop(self, turn: Turn) -> None:
        self._say(turn, "drop")

    @step(PartCame)
    def part(self, event: Event[PartCame], turn: Turn) -> None:
        self._say(turn, f"part, missing {turn.missing(self.packed)}")

    @undo(part)
    def give_back(self, event: Event[PartCame], turn: Turn) -> None:
        self._say(turn, f"give back {event.data.name} of {event.id[:4]} {event.key} {event.source} {bool(event.time)}")

    @step(MoneyCame)
    def money(self, event: Event[MoneyCame], turn: Turn) -> None:
        if event.data.cents == 13:
            turn.compensate("thirteen")

    @undo(money)
    def refund(self, event: Event[MoneyCame], turn: Turn) -> None:
        self._say(turn, f"refund {event.data.cents}")

    @join(part, money)
    def packed(self, turn: Turn) -> None:
        self._say(turn, "packed")
        turn.clear(self.slow)

    @undo(packed)
    def unpack(self, turn: Turn) -> None:
        self._say(turn, "unpack")

    @step(ParcelSent, after=packed)
    def sent(self, event: Event[ParcelSent], turn: Turn) -> None:
        self._say(turn, "sent")

    @join(packed, sent)
    def all_done(self, turn: Turn) -> None:
        turn.complete()

    @on(OrderFailed)
    def failed(self, event: Event[OrderFailed], turn: Turn) -> None:
        turn.compensate("failed")

    @on(Asked)
    def asked(self, event: Event[Asked], turn: Turn) -> None:
        self._say(turn, f"{turn.missing(self.packed)} and {turn.missing(self.sent)}")

    @deadline(30.0)
    def slow(self, turn: Turn) -> None:
        turn.compensate("slow")

    def _say(self, turn: Turn, words: str) -> None:
        turn.publish(Said(order_id=self.order_id, words=words))


def said(case: SagaCase[YardSaga]) -> list[str]:
    return [fact.words for fact in case.published if isinstance(fact, Said)]


async def begun() -> SagaCase[YardSaga]:
    return await given(shop, YardSaga(order_id="o"))


async def test_a_join_is_done_once_with_the_last_of_its_steps_whatever_their_order() -> None:
    for first, last in (
        (PartCame(order_id="o"), MoneyCame(order_id="o")),
        (MoneyCame(order_id="o"), PartCame(order_id="o")),
    ):
        case = await (await begun()).when(first)
        assert "packed" not in said(case)
        await case.when(last)
        assert said(case)[-1] == "packed"
        case.then(status="running", deadlines={})
        assert case.history[-1].steps_done[-1] == "packed"
        await case.when(PartCame(order_id="o"))
        assert "packed" not in said(case)


async def test_the_joins_that_a_join_completes_follow_in_the_same_turn() -> None:
    case = await (await begun()).when(PartCame(order_id="o"))
    await case.when(MoneyCame(order_id="o"))
    await case.when(ParcelSent(order_id="o"))
    case.then(status="completed", done=["begin", "part", "money", "packed", "sent", "all_done"])


async def test_what_is_missing_can_be_asked_for() -> None:
    case = await (await begun()).when(Asked(order_id="o"))
    assert said(case) == ["['part', 'money'] and ['packed']"]
    await case.when(PartCame(order_id="o"))
    assert said(case) == ["part, missing ['money']"], "the step that runs counts as done"


async def test_no_join_follows_a_step_that_compensates() -> None:
    case = await (await begun()).when(PartCame(order_id="o"))
    await case.when(MoneyCame(order_id="o", cents=13))
    assert [words.split(" of ")[0] for words in said(case)] == ["refund 13", "give back ", "drop"]
    case.then(status="compensated", done=[])


async def test_an_undo_is_given_the_event_of_its_step_and_a_step_done_twice_is_undone_twice() -> None:
    case = await (await begun()).when(PartCame(order_id="o", name="wheel"))
    first = case.history[-1].input.event_id
    await case.when(MoneyCame(order_id="o", cents=5))
    await case.when(PartCame(order_id="o", name="saddle"))
    second = case.history[-1].input.event_id
    await case.when(OrderFailed(order_id="o"))
    assert said(case) == [
        f"give back saddle of {second[:4]} o /yard True",
        "unpack",
        "refund 5",
        f"give back wheel of {first[:4]} o /yard True",
        "drop",
    ]
    case.then(status="compensated")


def test_what_a_step_waits_for_is_a_step_of_the_saga() -> None:
    class Other(Saga):
        order_id: str

        @starts
        def begin(self, turn: Turn) -> None: ...

        @on(PartCame)
        def part(self, event: Event[PartCame], turn: Turn) -> None: ...

        @step(MoneyCame, after=(begin, part, YardSaga.money))
        def money(self, event: Event[MoneyCame], turn: Turn) -> None: ...

        @join(begin, YardSaga.money)
        def both(self, turn: Turn) -> None: ...

        @undo(money)  # type: ignore[arg-type]
        def refund(self, turn: Turn) -> None: ...

        @undo(both)  # type: ignore[arg-type]
        def undo_both(self, event: Event[MoneyCame], turn: Turn) -> None: ...

    try:
        Service("other").saga("other", correlate="order_id")(Other)
    except ConfigurationError as error:
        problems = list(error.problems)
    assert problems == [
        "Other: refund(self, turn) is marked with @undo and takes (self, event, turn), as money does",
        "Other: undo_both(self, event, turn) is marked with @undo and takes (self, turn), as both has no event",
        "Other: money waits for part, which is no step of this saga. Known: begin, both, money.",
        "Other: money waits for YardSaga.money, which is the step of another class",
        "Other: both waits for YardSaga.money, which is the step of another class",
    ]
