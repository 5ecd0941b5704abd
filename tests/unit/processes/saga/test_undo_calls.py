"""Undos that ask the outside: by the same protocol as steps, with what the step was answered in hand."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from posthouse import Event, Payload, Policy, Reject, Service
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from posthouse.processes import Saga, Turn, on, starts, step, undo
from posthouse.processes.saga.declared import OutsideCall
from posthouse.testing import Harness, assert_survives_crashes, given
from posthouse.testing.histories import assert_replays, dump, histories, load
from posthouse.testing.sagas import SagaCase


class Approved(Payload):
    claim_id: str
    cents: int = 100


class Withdrawn(Payload):
    claim_id: str


class Refunded(Payload):
    claim_id: str
    receipt: str
    refund: str


class Closed(Payload):
    claim_id: str


PAID: dict[str, int] = {}
REFUNDED: dict[str, str] = {}
claims = Service("claims")
for name, cls in (
    ("claim.approved", Approved),
    ("claim.withdrawn", Withdrawn),
    ("claim.refunded", Refunded),
    ("claim.closed", Closed),
):
    claims.event(f"{name}.v1", key="claim_id")(cls)


async def pay(event: Event[Approved]) -> str:
    PAID.setdefault(event.id, event.data.cents)
    return "receipt 1"


def give_back(event: Event[Approved], receipt: str) -> str:
    REFUNDED.setdefault(f"refund {event.id}", receipt)
    return "refund 1"


@claims.saga("claim", correlate="claim_id", policy=Policy(first_delay=10.0, last_delay=10.0))
class Claim(Saga):
    claim_id: str
    refund: str = ""

    @starts
    def register(self, turn: Turn) -> None: ...

    @undo(register)
    def close(self, turn: Turn) -> None:
        turn.publish(Closed(claim_id=self.claim_id))

    @step(Approved, calling=pay)
    def paid(self, event: Event[Approved], turn: Turn, receipt: str) -> None: ...

    @undo(paid, calling=give_back, policy=Policy(max_attempts=2, first_delay=10.0, last_delay=10.0))
    def refunded(self, event: Event[Approved], turn: Turn, refund: str) -> None:
        self.refund = refund
        turn.publish(Refunded(claim_id=self.claim_id, receipt=f"{event.data.cents}", refund=refund))

    @on(Withdrawn)
    def withdrawn(self, event: Event[Withdrawn], turn: Turn) -> None:
        turn.compensate("withdrawn")


DONE = [Refunded(claim_id="c1", receipt="100", refund="refund 1"), Closed(claim_id="c1")]


async def paid_out(h: Harness) -> None:
    PAID.clear()
    REFUNDED.clear()
    async with claims.transaction("t1") as tx:
        await claims.start_saga(tx, Claim(claim_id="c1"))
    await h.publish(Approved(claim_id="c1"))
    await h.settled()
    await h.publish(Withdrawn(claim_id="c1"))
    await h.settled()


async def test_an_undo_calls_with_the_answer_of_its_step_and_its_method_gets_its_own() -> None:
    async with Harness(claims) as h:
        await paid_out(h)
        view = await app_of(claims).sagas.show("claim", "c1", tenant="t1")
        assert (view.row.status, view.row.calls) == ("compensated", ())
        assert [one.data for one in await h.published(Refunded)] == DONE[:1]
        await assert_replays(claims, load(dump([view async for view in histories(claims)])))
    assert list(REFUNDED.values()) == ["receipt 1"]


async def test_a_refund_is_made_once_wherever_the_power_is_cut() -> None:
    async def end(h: Harness) -> object:
        rows = [row.status async for row in app_of(claims).sagas.find()]
        return rows, list(PAID.values()), list(REFUNDED.values()), len(await h.published(Refunded))

    crashes = await assert_survives_crashes(paid_out, claims, end=end, every=3)
    assert crashes.runs > 5


async def test_whatever_is_paid_while_a_claim_is_withdrawn_is_refunded_wherever_the_power_is_cut() -> None:
    async def withdrawn_at_once(h: Harness) -> None:
        PAID.clear()
        REFUNDED.clear()
        async with claims.transaction("t1") as tx:
            await claims.start_saga(tx, Claim(claim_id="c1"))
        await h.publish(Approved(claim_id="c1"))
        await h.publish(Withdrawn(claim_id="c1"))
        await h.settled()

    async def end(h: Harness) -> object:
        rows = [(row.status, row.calls) async for row in app_of(claims).sagas.find()]
        return rows, len(PAID) - len(REFUNDED), len(REFUNDED) - len(await h.published(Refunded))

    crashes = await assert_survives_crashes(withdrawn_at_once, claims, end=end, every=2)
    assert crashes.runs > 5


async def test_an_undo_that_is_refused_has_failed_and_may_be_retried_or_done_by_hand() -> None:
    case = await given(claims, Claim(claim_id="c1"), Approved(claim_id="c1"))
    await case.answer("paid", "receipt 1")
    await case.when(Withdrawn(claim_id="c1"))
    case.then(status="compensating", calls=["refunded"], published=[])
    (await case.answer("refunded", Reject("too old"))).then(status="compensation_failed", calls=[])
    assert case.row.undoing is not None
    assert case.row.undoing.error == "refunded: too old"
    (await case.retry()).then(status="compensating", calls=["refunded"])
    (await case.answer("refunded", "refund 1")).then(status="compensated", published=DONE)


async def test_an_undo_whose_call_is_never_answered_is_given_up_by_its_policy_and_asked_again_or_skipped() -> None:
    case = await given(claims, Claim(claim_id="c1"), Approved(claim_id="c1"))
    await case.answer("paid", "receipt 1")
    await case.when(Withdrawn(claim_id="c1"))
    for _ in range(2):
        await case.answer("refunded", TimeoutError("no answer"))
    case.then(status="compensation_failed", calls=["refunded"])
    (await case.retry()).then(status="compensating", calls=["refunded"])
    for _ in range(2):
        await case.answer("refunded", TimeoutError("no answer"))
    (await case.resume(note="refunded by letter")).then(status="compensated", published=DONE[1:], calls=[])


class Confirmed(Payload):
    claim_id: str


class Denied(Payload):
    claim_id: str


def confirmed_claims() -> tuple[Service, type[Saga]]:
    """A service whose refund is called for, and then confirmed by a fact, or denied."""
    made = Service("claims")
    names: dict[str, type[Payload]] = {
        "approved": Approved,
        "withdrawn": Withdrawn,
        "confirmed": Confirmed,
        "denied": Denied,
    }
    for name, cls in names.items():
        made.event(f"claim.{name}.v1", key="claim_id")(cls)

    @made.saga("claim", correlate="claim_id", policy=Policy(first_delay=10.0, last_delay=10.0, max_attempts=2))
    class Claim(Saga):
        claim_id: str

        @starts
        def register(self, turn: Turn) -> None: ...

        @step(Approved)
        def paid(self, event: Event[Approved], turn: Turn) -> None: ...

        @undo(paid, calling=ask_back, until=Confirmed, unless=Denied, within=60.0)
        def refunded(self, event: Event[Approved], turn: Turn, refund: str) -> None: ...

        @on(Withdrawn)
        def withdrawn(self, event: Event[Withdrawn], turn: Turn) -> None:
            turn.compensate("withdrawn")

    return made, Claim


async def ask_back(event: Event[Approved]) -> str:
    return "refund 1"


async def refunding(*, begun: bool = True) -> SagaCase[Saga]:
    """A claim whose refund was asked for; its first try has failed."""
    service, saga = confirmed_claims()
    case = await given(service, saga(claim_id="c1"), Approved(claim_id="c1"), Withdrawn(claim_id="c1"))
    if begun:
        await case.answer("refunded", TimeoutError("no answer"))
    return case.then(status="compensating", calls=["refunded"])


async def test_a_fact_that_comes_before_the_answer_of_the_undo_is_not_waited_for_again() -> None:
    case = await refunding()
    (await case.when(Confirmed(claim_id="c1"))).then(status="compensating", calls=["refunded"])
    await case.when(Denied(claim_id="c1"))  # too late: it was confirmed
    (await case.answer("refunded", "refund 1")).then(status="compensated", calls=[])


async def test_a_denial_that_comes_before_the_answer_of_the_undo_fails_it_when_that_comes() -> None:
    case = await refunding()
    await case.when(Denied(claim_id="c1"))
    (await case.answer("refunded", "refund 1")).then(status="compensation_failed", calls=[])
    assert case.row.undoing is not None
    assert case.row.undoing.error == "refunded: claims.claim.denied.v1 came: it was refused"
    await case.retry()
    (await case.answer("refunded", "refund 1")).then(status="compensating", calls=[])
    (await case.when(Confirmed(claim_id="c1"))).then(status="compensated")


async def test_a_fact_that_comes_before_the_call_of_the_undo_began_is_of_something_else() -> None:
    case = await refunding(begun=False)
    await case.when(Confirmed(claim_id="c1"))
    (await case.answer("refunded", "refund 1")).then(status="compensating", calls=[])


async def test_a_fact_that_came_while_nobody_knew_of_the_call_counts_when_it_is_answered_after_all() -> None:
    case = await refunding()
    await case.answer("refunded", TimeoutError("no answer"))
    await case.when(Confirmed(claim_id="c1"))
    case.then(status="compensation_failed")
    await case.retry()
    (await case.answer("refunded", "refund 1")).then(status="compensated", calls=[])


def test_an_undo_of_a_step_without_an_event_calls_nobody() -> None:
    class Bare(Saga):
        claim_id: str

        @starts
        def begin(self, turn: Turn) -> None: ...

        @undo(begin, calling=give_back)  # type: ignore[arg-type]
        def end(self, turn: Turn, answer: str) -> None: ...

    with pytest.raises(ConfigurationError, match="end calls outside, and begin has no event to call about"):
        Service("claims").saga("bare", correlate="claim_id")(Bare)


async def test_an_undo_that_is_done_by_hand_while_its_call_is_out_is_over_and_the_answer_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Harness(claims) as h:
        desk = app_of(claims).sagas

        async def by_hand(event: Event[Approved], receipt: str) -> str:
            REFUNDED["called"] = receipt
            await desk.resume("claim", "c1", tenant="t1", note="paid back at the desk")
            return "refund 1"

        calls = cast("dict[str, OutsideCall]", claims.declared.saga_types["claim"].calls)
        monkeypatch.setitem(calls, "refunded", replace(calls["refunded"], function=by_hand))
        await paid_out(h)
        view = await desk.show("claim", "c1", tenant="t1")
        assert (view.row.status, view.row.calls, view.row.done) == ("compensated", (), ())
        assert [turn.undone for turn in view.history][-2:] == [("close",), ()]
        assert view.history[-1].note == (
            "the call of refunded was over, done by hand; it was answered, and has happened"
        )
        assert await h.published(Refunded) == []
        await assert_replays(claims, [view])


async def test_an_undo_that_is_done_by_hand_while_its_call_waits_is_not_called_for_again() -> None:
    case = await given(claims, Claim(claim_id="c1"), Approved(claim_id="c1"))
    await case.answer("paid", "receipt 1")
    await case.when(Withdrawn(claim_id="c1"))
    await case.answer("refunded", ConnectionError("the bank is down"))
    await case.resume(note="paid back at the desk")
    case.then(status="compensated", calls=[], done=[], published=[Closed(claim_id="c1")])
    (await case.advance(100)).then(status="compensated", published=[])
