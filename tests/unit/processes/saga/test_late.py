"""What comes late is decided, never dropped; and undos that are refused, tried again or done by hand while they wait."""

from __future__ import annotations

import msgspec
import pytest

from posthouse import Event, Payload, Policy, Service
from posthouse.errors import ConfigurationError
from posthouse.processes import Saga, Turn, deadline, late, on, starts, step, undo
from posthouse.testing import given
from posthouse.testing.sagas import SagaCase

depot = Service("depot", namespace="town")


@depot.event("money.came.v1", key="order_id")
class MoneyCame(Payload):
    order_id: str
    cents: int = 0


@depot.event("refund.made.v1", key="order_id")
class RefundMade(Payload):
    order_id: str


@depot.event("refund.refused.v1", key="order_id")
class RefundRefused(Payload):
    order_id: str


@depot.event("stamp.given.v1", key="order_id")
class StampGiven(Payload):
    order_id: str


@depot.event("note.taken.v1", key="order_id")
class NoteTaken(Payload):
    order_id: str
    word: str


@depot.event("order.failed.v1", key="order_id")
class OrderFailed(Payload):
    order_id: str


@depot.event("order.finished.v1", key="order_id")
class OrderFinished(Payload):
    order_id: str


@depot.event("word.said.v1", key="order_id")
class Said(Payload):
    order_id: str
    words: str


class Weather:
    refund_fails = 0


@depot.saga("depot", correlate="order_id", policy=Policy(max_attempts=2, first_delay=5.0, last_delay=5.0))
class DepotSaga(Saga):
    order_id: str

    @starts
    def begin(self, turn: Turn) -> None:
        turn.set(self.reminded)

    @undo(begin)
    def drop(self, turn: Turn) -> None:
        self._say(turn, "drop")

    @step(MoneyCame)
    def money(self, event: Event[MoneyCame], turn: Turn) -> None:
        self._say(turn, "money")

    @undo(money, until=RefundMade, unless=RefundRefused, within=60.0)
    def refund(self, event: Event[MoneyCame], turn: Turn) -> None:
        if Weather.refund_fails:
            Weather.refund_fails -= 1
            raise RuntimeError("no refund now")
        self._say(turn, f"refund {event.data.cents} ({turn.reason})")

    @step(StampGiven, late="ignore")
    def stamp(self, event: Event[StampGiven], turn: Turn) -> None: ...

    @undo(stamp)
    def tear(self, event: Event[StampGiven], turn: Turn) -> None:
        self._say(turn, "tear")

    @late(NoteTaken)
    def noted(self, event: Event[NoteTaken], turn: Turn) -> None:
        self._say(turn, event.data.word)
        match event.data.word:
            case "remind":
                turn.set(self.reminded)
            case "complete":
                turn.complete("after all")
            case "compensate":
                turn.compensate("after all")
            case "partial":
                turn.partial("look at it")

    @on(OrderFailed)
    def failed(self, event: Event[OrderFailed], turn: Turn) -> None:
        turn.compensate("failed")

    @on(OrderFinished)
    def finished(self, event: Event[OrderFinished], turn: Turn) -> None:
        turn.complete()

    @deadline(30.0)
    def reminded(self, turn: Turn) -> None:
        self._say(turn, "reminded")

    def _say(self, turn: Turn, words: str) -> None:
        turn.publish(Said(order_id=self.order_id, words=words))


FAILED, FINISHED = OrderFailed(order_id="o"), OrderFinished(order_id="o")
MADE, REFUSED = RefundMade(order_id="o"), RefundRefused(order_id="o")


def money(cents: int) -> MoneyCame:
    return MoneyCame(order_id="o", cents=cents)


def note(word: str) -> NoteTaken:
    return NoteTaken(order_id="o", word=word)


def said(case: SagaCase[DepotSaga]) -> list[str]:
    return [fact.words for fact in case.published if isinstance(fact, Said)]


async def after(*events: object) -> SagaCase[DepotSaga]:
    Weather.refund_fails = 0
    return await given(depot, DepotSaga(order_id="o"), *events)


async def test_a_step_that_comes_after_the_compensation_is_undone_and_the_saga_ends_again() -> None:
    case = await (await after(FAILED)).when(money(7))
    assert said(case) == ["refund 7 (failed)"]
    case.then(status="compensating", done=["money"])
    assert (case.history[-1].late, case.history[-1].method, case.history[-1].steps_done) == (True, "refund", ())
    (await case.when(MADE)).then(status="compensated", done=[], reason="failed", published=[])


async def test_money_that_comes_twice_after_the_goal_was_reached_is_given_back_and_the_rest_stands() -> None:
    case = await after(money(5), FINISHED)
    await case.when(money(7))
    assert said(case) == ["refund 7 (came late)"]
    case.then(status="compensating", done=["begin", "money", "money"])
    (await case.when(MADE)).then(status="completed", done=["begin", "money"], published=[])


async def test_a_cancelled_saga_is_cancelled_again() -> None:
    case = await (await after()).cancel("closed")
    await case.when(money(7))
    (await case.when(MADE)).then(status="cancelled", reason="closed")


async def test_what_comes_while_an_undo_is_under_way_is_undone_after_it() -> None:
    case = await after(money(5), FAILED)
    await case.when(money(6))
    assert said(case) == []
    await case.when(money(7))
    for expected in ("refund 7 (failed)", "refund 6 (failed)"):
        assert said(await case.when(MADE)) == [expected]
    (await case.when(MADE)).then(status="compensated", done=[])
    assert said(case) == ["drop"]


async def test_a_late_undo_that_fails_is_tried_again_and_then_for_an_operator() -> None:
    case = await after(FINISHED)
    Weather.refund_fails = 2
    (await case.when(money(7))).then(status="compensating")
    (await case.advance(5)).then(status="compensation_failed")
    await case.retry()
    assert said(case) == ["refund 7 (came late)"]
    (await case.resume(note="by hand")).then(status="completed", done=["begin"])


async def test_late_ignore_is_noted_and_changes_nothing() -> None:
    case = await (await after(FAILED)).when(StampGiven(order_id="o"))
    case.then(status="compensated", published=[])
    assert case.history[-1].late
    assert case.history[-1].note == "came late: the saga was compensated"


async def test_an_event_that_was_taken_in_time_is_not_undone_when_it_comes_again_late() -> None:
    case = await after(money(5), FINISHED)
    taken = next(turn.input.event_id for turn in case.history if turn.method == "money")
    event = case._event(money(5))
    again = msgspec.structs.replace(event, id=taken)
    await case._bench.take(again)
    case.then(status="completed", done=["begin", "money"])
    assert case.history[-1].note == "came late, and again: it was taken before"


@pytest.mark.parametrize(
    ("before", "word", "status", "steps", "words"),
    [
        ([FINISHED], "nothing", "completed", ["begin"], ["nothing"]),
        ([FINISHED], "compensate", "compensated", [], ["compensate", "drop"]),
        ([FINISHED], "partial", "partial", ["begin"], ["partial"]),
        ([FAILED], "complete", "completed", [], ["complete"]),
        ([FAILED], "compensate", "compensated", [], ["compensate"]),
        ([FAILED], "partial", "partial", [], ["partial"]),
        ([money(5), FAILED], "complete", "compensating", ["begin", "money"], ["complete"]),
        ([money(5), FAILED], "compensate", "compensating", ["begin", "money"], ["compensate"]),
        ([FINISHED, money(5)], "compensate", "compensating", ["begin", "money"], ["compensate"]),
        ([FINISHED, money(5)], "complete", "compensating", ["begin", "money"], ["complete"]),
    ],
)
async def test_what_takes_it_late_may_decide_about_the_saga(
    before: list[object], word: str, status: str, steps: list[str], words: list[str]
) -> None:
    case = await (await after(*before)).when(note(word))
    assert (case.row.status, list(case.row.steps), said(case)) == (status, steps, words)


async def test_a_completion_by_what_came_late_does_not_keep_late_money() -> None:
    case = await after(FAILED, money(5), note("complete"))
    (await case.when(MADE)).then(status="completed", done=[])


async def test_a_deadline_that_is_set_late_passes_though_the_saga_has_ended() -> None:
    case = await (await after(FAILED)).when(note("remind"))
    case.then(status="compensated", deadlines={"reminded": 30})
    await case.when(money(5))
    await case.when(MADE)
    case.then(status="compensated", deadlines={"reminded": 30})
    assert said(await case.advance(30)) == ["reminded"]
    case.then(status="compensated", deadlines={})


async def test_an_undo_that_is_refused_has_failed_at_once_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    case = await (await after(money(5), FAILED)).when(REFUSED)
    assert ".refund failed on town.depot.refund.refused.v1" in caplog.text, "the log names the method"
    case.then(status="compensation_failed", deadlines={})
    assert case.row.undoing is not None
    assert case.row.undoing.error == "refund: town.depot.refund.refused.v1 came: it was refused"
    assert said(await case.retry()) == ["refund 5 (failed)"]
    (await case.when(MADE)).then(status="compensated")


async def test_a_refusal_that_nothing_waits_for_is_noted() -> None:
    (await (await after(money(5))).when(REFUSED)).then(status="running", published=[])


async def test_an_undo_that_waits_can_be_run_again_or_done_by_hand() -> None:
    case = await after(money(5), FAILED)
    await case.advance(50)
    assert said(await case.retry()) == ["refund 5 (failed)"]
    (await case.advance(50)).then(status="compensating")
    (await case.resume(note="paid out at the desk")).then(status="compensated")
    (await case.advance(100)).then(status="compensated")


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is the other answer to the event that it waits for: name that one"):
        undo(DepotSaga.money, unless=RefundRefused)

    class Bad(Saga):
        order_id: str

        @starts
        def begin(self, turn: Turn) -> None: ...

        @step(MoneyCame, late="ignore")
        def money(self, event: Event[MoneyCame], turn: Turn) -> None: ...

        @step(StampGiven, late="undoo")  # type: ignore[call-overload, untyped-decorator]
        def stamp(self, event: Event[StampGiven], turn: Turn) -> None: ...

        @late(MoneyCame)
        def late_money(self, event: Event[MoneyCame], turn: Turn) -> None: ...

    with pytest.raises(ConfigurationError) as caught:
        Service("bad").saga("bad", correlate="order_id")(Bad)
    assert list(caught.value.problems) == [
        "Bad: stamp: late='undoo'. Did you mean 'undo'?",
        "Bad: late_money takes MoneyCame late, and money says late='ignore': leave one of them out",
    ]
