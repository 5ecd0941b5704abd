"""payment-gateway-service: money that was moved, or was not; once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from melmastoon.facts.billing import ChargePosted, FolioClosed, InvoiceIssued
from melmastoon.facts.house import Rail
from melmastoon.facts.payment import (
    CashReconciled,
    IntentCaptured,
    IntentCreated,
    IntentFailed,
    IntentRefunded,
)
from melmastoon.payment import payment
from melmastoon.payment.cash import cash_due, reconcile_cash
from melmastoon.payment.finance import OpenRefund, queue, retry_refund
from melmastoon.payment.refunds import shared_out
from melmastoon.vendors.weather import Mood, Scripted
from melmastoon.vendors.world import World, pretending
from posthouse import Reject
from posthouse.testing import Harness
from tests.unit.melmastoon.stay import cancelled, committed, delta, held

STAY = "int-b1-stay"


@pytest.fixture
def outside() -> Iterator[World]:
    with pretending(World()) as world:
        yield world


def weather(moods: dict[str, Sequence[Mood]], *declined: str) -> World:
    return World(weather=Scripted(moods=moods, declined=frozenset(declined)))


def charge(cents: int, change_id: str = "c1") -> ChargePosted:
    return ChargePosted(
        folio_id="fol-b1",
        booking_id="b1",
        line_id=f"delta-{change_id}",
        kind="delta",
        amount_cents=cents,
        currency="USD",
        change_id=change_id,
    )


def invoice(cents: int, attempt: int = 1) -> InvoiceIssued:
    return InvoiceIssued(
        invoice_id=f"inv-b1-{attempt}",
        folio_id="fol-b1",
        booking_id="b1",
        charged_cents=20_000 + cents,
        balance_cents=cents,
        currency="USD",
    )


async def book(h: Harness, *, rail: Rail = "card") -> None:
    """A booking whose money is asked for."""
    await h.publish(held(rail=rail))
    await h.publish(committed())
    await h.settled()


async def patient(h: Harness) -> None:
    """Long enough for every retry."""
    for _ in range(12):
        await h.advance(60)


async def finance(tenant: str = "t1") -> list[OpenRefund]:
    async with payment.transaction(tenant) as tx:
        return await queue(tx)


@pytest.mark.parametrize("first", ["held", "committed"])
async def test_money_is_asked_for_once_the_booking_is_held_and_its_room_committed(outside: World, first: str) -> None:
    async with Harness(payment) as h:
        facts = [held(), committed()]
        for fact in facts if first == "held" else reversed(facts):
            assert await h.published(IntentCreated) == []
            await h.publish(fact)
            await h.settled()
        (created,) = await h.published(IntentCreated)
        assert (created.data.intent_id, created.data.purpose, created.data.amount_cents) == (STAY, "stay", 20_000)
        (captured,) = await h.published(IntentCaptured)
        assert (captured.data.rail, captured.data.amount_cents) == ("card", 20_000)
        assert outside.ledger.charged("t1") == {"b1": 20_000}
        await h.assert_replay_safe()


@pytest.mark.parametrize("rail", ["card", "paypal", "mfs"])
async def test_every_rail_has_a_vendor_of_its_own(outside: World, rail: Rail) -> None:
    async with Harness(payment) as h:
        await book(h, rail=rail)
        assert [e.data.rail for e in await h.published(IntentCaptured)] == [rail]
        assert outside.ledger.read("SELECT rail FROM charges") == [(rail,)]


@pytest.mark.parametrize(
    "moods",
    [
        {"capture": ["slow"]},
        {"capture": ["error"]},
        {"capture": ["error", "error", "error"]},
        {"capture": ["timeout"]},
        {"capture": ["lost"]},
        {"capture": ["late"]},
        {"capture": ["twice"]},
        {"capture": ["late", "late"]},
        {"capture": ["lost"], "look": ["error"]},
        {"capture": ["lost", "lost", "lost", "lost"], "look": ["error"] * 4},
        {"capture": ["late"] * 4, "look": ["timeout"] * 4, "void": ["error"]},
        {"capture": ["error"] * 3 + ["late"], "look": ["lost"] * 3, "void": ["timeout"] * 5},
    ],
    ids=str,
)
async def test_whatever_the_vendor_does_there_is_exactly_one_charge(moods: dict[str, Sequence[Mood]]) -> None:
    with pretending(weather(moods)) as outside:
        async with Harness(payment) as h:
            await book(h)
            await patient(h)
            assert outside.ledger.charged("t1") == {"b1": 20_000}
            assert [e.data.amount_cents for e in await h.published(IntentCaptured)] == [20_000]
            assert await h.published(IntentFailed) == []


@pytest.mark.parametrize(("operation", "table"), [("capture", "charges"), ("refund", "refunds")])
async def test_after_a_timeout_the_vendor_is_asked_what_became_of_it_before_anything_is_tried_again(
    operation: str, table: str
) -> None:
    with pretending(weather({operation: ["lost"]})) as outside:
        async with Harness(payment) as h:
            await book(h)
            await h.publish(cancelled(refund=5_000))
            await h.settled()
            assert outside.ledger.read(f"SELECT asked FROM {table}") == [(1,)]
            assert outside.ledger.charged("t1") == {"b1": 15_000}


@pytest.mark.parametrize(
    "moods", [{"capture": ["error"] * 99}, {"capture": ["timeout"] * 99, "void": ["lost", "error"]}], ids=str
)
async def test_after_the_last_try_the_intent_is_voided_before_it_is_said_to_have_failed(
    moods: dict[str, Sequence[Mood]],
) -> None:
    with pretending(weather(moods)) as outside:
        async with Harness(payment) as h:
            await book(h)
            await patient(h)
            (failed,) = await h.published(IntentFailed)
            assert (failed.data.intent_id, failed.data.reason, failed.data.refund) == (
                STAY,
                "vendor_unavailable",
                False,
            )
            assert outside.ledger.read("SELECT state FROM charges") == [("voided",)]
            assert await h.published(IntentCaptured) == []


async def test_while_the_vendor_says_nothing_at_all_nothing_is_said_about_the_money() -> None:
    with pretending(weather({"capture": ["lost"] * 4, "look": ["error"] * 8, "void": ["error"] * 6})) as outside:
        async with Harness(payment) as h:
            await book(h)
            assert await h.published(IntentCaptured) == []
            assert await h.published(IntentFailed) == []
            assert len(await h.held(payment)) >= 1
            await patient(h)
            assert [e.data.amount_cents for e in await h.published(IntentCaptured)] == [20_000]
            assert outside.ledger.charged("t1") == {"b1": 20_000}


async def test_a_decline_is_no_trouble_and_is_said_at_once() -> None:
    with pretending(weather({}, f"t1:{STAY}")) as outside:
        async with Harness(payment) as h:
            await book(h)
            (failed,) = await h.published(IntentFailed)
            assert failed.data.reason == "declined"
            assert outside.ledger.read("SELECT asked FROM charges") == [(1,)]


async def test_cash_is_promised_without_a_vendor_and_counted_at_the_desk(outside: World) -> None:
    async with Harness(payment) as h:
        await book(h, rail="cash_pending")
        (promised,) = await h.published(IntentCaptured)
        assert promised.data.rail == "cash_pending"
        async with payment.transaction("t1") as tx:
            assert await cash_due(tx, "b1") == 20_000
            assert await reconcile_cash(tx, "b1", staff_id="s1") == 20_000
        async with payment.transaction("t1") as tx:
            assert await reconcile_cash(tx, "b1", staff_id="s1") == 0
        await h.settled()
        (counted,) = await h.published(CashReconciled)
        assert (counted.data.amount_cents, counted.data.staff_id, counted.data.purpose) == (20_000, "s1", "stay")
        assert outside.ledger.read("SELECT * FROM charges") == []


async def test_no_cash_is_taken_for_a_cancelled_booking(outside: World) -> None:
    async with Harness(payment) as h:
        await book(h, rail="cash_pending")
        await h.publish(cancelled())
        await h.settled()
        assert await h.published(IntentRefunded) == []
        async with payment.transaction("t1") as tx:
            assert await cash_due(tx, "b1") == 0
        with pytest.raises(Reject, match="cancelled"):
            async with payment.transaction("t1") as tx:
                await reconcile_cash(tx, "b1", staff_id="s1")


@pytest.mark.parametrize(("refund", "left"), [(20_000, 0), (5_000, 15_000), (0, 20_000), (99_999, 0)])
async def test_a_guest_who_cancels_gets_back_what_the_policy_says(outside: World, refund: int, left: int) -> None:
    async with Harness(payment) as h:
        await book(h)
        await h.publish(cancelled(refund=refund))
        await h.settled()
        assert sum(e.data.amount_cents for e in await h.published(IntentRefunded)) == 20_000 - left
        assert outside.ledger.charged("t1") == {"b1": left}
        await h.assert_replay_safe()


@pytest.mark.parametrize("reason", ["hold_expired", "payment_failed", "no_room"])
async def test_a_booking_that_never_came_about_gives_back_everything(outside: World, reason: str) -> None:
    async with Harness(payment) as h:
        await book(h)
        await h.publish(cancelled(reason=reason, refund=0))  # type: ignore[arg-type]  # the words stand above
        await h.settled()
        assert outside.ledger.charged("t1") == {"b1": 0}


async def test_money_that_is_captured_after_the_cancellation_is_given_back_whole() -> None:
    with pretending(weather({"capture": ["lost"] * 4, "look": ["error"] * 4, "void": ["error"] * 4})) as outside:
        async with Harness(payment) as h:
            await book(h)
            await h.publish(cancelled(reason="hold_expired", refund=0))
            await h.settled()
            assert outside.ledger.charged("t1") == {"b1": 20_000}
            await patient(h)
            (captured,) = await h.published(IntentCaptured)
            (refunded,) = await h.published(IntentRefunded)
            assert refunded.data.amount_cents == captured.data.amount_cents == 20_000
            assert outside.ledger.charged("t1") == {"b1": 0}


async def test_a_booking_that_was_cancelled_before_is_not_charged(outside: World) -> None:
    async with Harness(payment) as h:
        await h.publish(committed())
        await h.publish(cancelled(reason="hold_expired"))
        await h.settled()
        await h.publish(held())
        await h.settled()
        assert await h.published(IntentCreated) == []
        assert outside.ledger.charged("t1") == {}


async def test_money_that_was_not_taken_when_the_booking_is_cancelled_is_not_taken_any_more() -> None:
    with pretending(weather({"capture": ["error"] * 4, "look": ["error"] * 4, "void": ["error"] * 4})) as outside:
        async with Harness(payment) as h:
            await book(h)
            await h.publish(cancelled(reason="hold_expired", refund=0))
            await h.settled()
            await patient(h)
            assert await h.published(IntentCaptured) == []
            assert len(await h.published(IntentFailed)) == 1
            assert outside.ledger.read("SELECT state FROM charges") == [("voided",)]


async def test_a_refund_that_is_asked_for_again_is_decided_once() -> None:
    with pretending(weather({"refund": ["error"] * 4, "look": ["error"] * 4, "void": ["error"] * 4})) as outside:
        async with Harness(payment) as h:
            await book(h)
            await h.publish(charge(3_000))
            await h.settled()
            await h.publish(cancelled(refund=20_000))
            await h.settled()
            assert len(await h.held(payment)) == 1
            await patient(h)
            assert outside.ledger.charged("t1") == {"b1": 3_000}


@pytest.mark.parametrize(
    "moods",
    [
        {"refund": ["error", "error"]},
        {"refund": ["lost"]},
        {"refund": ["late", "lost"]},
        {"refund": ["twice"]},
        {"refund": ["lost"] * 4, "look": ["error"] * 4, "void": ["error"] * 5},
    ],
    ids=str,
)
async def test_whatever_the_vendor_does_there_is_exactly_one_refund(moods: dict[str, Sequence[Mood]]) -> None:
    with pretending(weather(moods)) as outside:
        async with Harness(payment) as h:
            await book(h)
            await h.publish(cancelled(refund=5_000))
            await patient(h)
            assert outside.ledger.charged("t1") == {"b1": 15_000}
            assert [e.data.amount_cents for e in await h.published(IntentRefunded)] == [5_000]


async def test_a_refund_that_fails_goes_to_finance_who_ask_again() -> None:
    first, second = f"t1:ref-cancel-{STAY}:1", f"t1:ref-cancel-{STAY}:2"
    with pretending(weather({}, first, second)) as outside:
        async with Harness(payment) as h:
            await book(h)
            await h.publish(cancelled(refund=5_000))
            await h.settled()
            (failed,) = await h.published(IntentFailed)
            assert (failed.data.refund, failed.data.reason, failed.data.amount_cents) == (True, "declined", 5_000)
            (waiting,) = await finance()
            assert (waiting.booking_id, waiting.amount_cents, waiting.reason) == ("b1", 5_000, "declined")
            assert not await retry_refund("t1", waiting.refund_id)
            assert await retry_refund("t1", waiting.refund_id)
            assert await retry_refund("t1", waiting.refund_id)
            await h.settled()
            assert await finance() == []
            assert [e.data.refund_id for e in await h.published(IntentRefunded)] == [waiting.refund_id]
            assert outside.ledger.charged("t1") == {"b1": 15_000}


async def test_there_is_no_retry_of_a_refund_that_there_is_not(outside: World) -> None:
    async with Harness(payment):
        with pytest.raises(Reject, match="no refund"):
            await retry_refund("t1", "ref-1")


async def test_the_difference_of_a_change_of_dates_is_taken_by_the_same_rail(outside: World) -> None:
    async with Harness(payment) as h:
        await book(h, rail="paypal")
        await h.publish(delta(3_000))
        await h.publish(charge(3_000))
        await h.publish(charge(3_000))
        await h.settled()
        captured = [e.data for e in await h.published(IntentCaptured)]
        assert [(one.purpose, one.reference, one.rail) for one in captured] == [
            ("stay", "b1", "paypal"),
            ("delta", "c1", "paypal"),
        ]
        assert outside.ledger.charged("t1") == {"b1": 23_000}


async def test_a_charge_that_is_no_difference_is_not_taken_before_check_out(outside: World) -> None:
    async with Harness(payment) as h:
        await book(h)
        await h.publish(
            ChargePosted(
                folio_id="fol-b1", booking_id="b1", line_id="x1", kind="extra", amount_cents=700, currency="USD"
            )
        )
        await h.settled()
        assert outside.ledger.charged("t1") == {"b1": 20_000}


async def test_a_stay_that_became_cheaper_is_paid_back_out_of_what_was_taken(outside: World) -> None:
    async with Harness(payment) as h:
        await book(h)
        await h.publish(charge(3_000))
        await h.settled()
        await h.publish(delta(-21_000, change_id="c2"))
        await h.settled()
        assert sorted(e.data.amount_cents for e in await h.published(IntentRefunded)) == [1_000, 20_000]
        assert outside.ledger.charged("t1") == {"b1": 2_000}
        await h.publish(cancelled(refund=20_000))
        await h.settled()
        assert outside.ledger.charged("t1") == {"b1": 0}
        await h.assert_replay_safe()


async def test_a_change_of_dates_changes_what_cash_is_promised(outside: World) -> None:
    async with Harness(payment) as h:
        await book(h, rail="cash_pending")
        await h.publish(delta(3_000))
        await h.publish(delta(-1_000, change_id="c2"))
        await h.publish(delta(-1_000, change_id="c2"))
        await h.settled()
        async with payment.transaction("t1") as tx:
            assert await reconcile_cash(tx, "b1", staff_id="s1") == 22_000
        assert await h.published(IntentRefunded) == []


async def test_after_cash_was_counted_a_dearer_stay_is_promised_and_a_cheaper_one_paid_back(outside: World) -> None:
    async with Harness(payment) as h:
        await book(h, rail="cash_pending")
        async with payment.transaction("t1") as tx:
            await reconcile_cash(tx, "b1", staff_id="s1")
        await h.publish(delta(3_000))
        await h.publish(charge(3_000))
        await h.publish(delta(-500, change_id="c2"))
        await h.settled()
        assert [(e.data.purpose, e.data.rail) for e in await h.published(IntentCreated)] == [
            ("stay", "cash_pending"),
            ("delta", "cash_pending"),
        ]
        assert [e.data.amount_cents for e in await h.published(IntentRefunded)] == [500]
        assert outside.ledger.read("SELECT * FROM refunds") == []
        async with payment.transaction("t1") as tx:
            assert await cash_due(tx, "b1") == 3_000


async def test_what_is_open_at_check_out_is_taken_and_nothing_when_nothing_is(outside: World) -> None:
    async with Harness(payment) as h:
        await book(h)
        await h.publish(invoice(0))
        await h.publish(invoice(700, attempt=2))
        await h.settled()
        assert [(e.data.purpose, e.data.reference, e.data.amount_cents) for e in await h.published(IntentCaptured)] == [
            ("stay", "b1", 20_000),
            ("balance", "inv-b1-2", 700),
        ]


async def test_cash_at_check_out_is_short_until_the_desk_has_counted_it(outside: World) -> None:
    async with Harness(payment) as h:
        await book(h, rail="cash_pending")
        async with payment.transaction("t1") as tx:
            await reconcile_cash(tx, "b1", staff_id="s1")
        await h.publish(delta(3_000))
        await h.settled()
        await h.publish(invoice(3_700))
        await h.settled()
        (short,) = await h.published(IntentFailed)
        assert (short.data.purpose, short.data.reason) == ("balance", "cash_due")
        async with payment.transaction("t1") as tx:
            assert await reconcile_cash(tx, "b1", staff_id="s1") == 3_700
        await h.settled()
        assert [e.data.purpose for e in await h.published(CashReconciled)] == ["stay", "balance"]


async def test_no_cash_is_waited_for_once_the_folio_is_closed(outside: World) -> None:
    async with Harness(payment) as h:
        await book(h, rail="cash_pending")
        await h.publish(FolioClosed(folio_id="fol-b1", booking_id="b1", charged_cents=0, currency="USD"))
        await h.settled()
        async with payment.transaction("t1") as tx:
            assert await cash_due(tx, "b1") == 0


async def test_tenants_with_the_same_bookings_are_charged_apart(outside: World) -> None:
    async with Harness(payment) as h:
        for tenant in ("t1", "t2"):
            await h.publish(held(), tenant=tenant)
            await h.publish(committed(), tenant=tenant)
        await h.publish(cancelled(), tenant="t2")
        await h.settled()
        await patient(h)
        assert outside.ledger.charged("t1") == {"b1": 20_000}
        assert outside.ledger.charged("t2").get("b1", 0) == 0


def test_a_refund_is_shared_out_of_the_largest_first_and_never_more_than_there_is() -> None:
    assert shared_out(5, {"a": 3, "b": 10}) == {"b": 5}
    assert shared_out(12, {"a": 3, "b": 10}) == {"b": 10, "a": 2}
    assert shared_out(99, {"a": 3, "b": 10, "c": 0}) == {"b": 10, "a": 3}
    assert shared_out(0, {"a": 3}) == {}
