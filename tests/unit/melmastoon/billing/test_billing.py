"""billing-service: what a guest owes, line by line."""

from __future__ import annotations

import pytest

from melmastoon.billing import billing
from melmastoon.billing.accounts import balance
from melmastoon.billing.stay import post_extra
from melmastoon.facts.billing import (
    ChargePosted,
    FolioClosed,
    FolioOpened,
    InvoiceIssued,
    InvoiceVoided,
    RefundPosted,
)
from posthouse import Reject
from posthouse.testing import Harness
from tests.unit.melmastoon.stay import (
    captured,
    check_in_started,
    check_out_started,
    confirmed,
    created,
    delta,
    failed,
    reconciled,
    refunded,
    rows,
)


async def owed() -> int:
    async with billing.transaction("t1") as tx:
        return await balance(tx, "b1")


async def add_extra(cents: int = 700, line_id: str = "minibar-1") -> None:
    async with billing.transaction("t1") as tx:
        await post_extra(tx, "b1", line_id=line_id, amount_cents=cents)


async def guest_in_house(h: Harness, *, cash: bool = False) -> None:
    """Paid, confirmed and checked in."""
    await h.publish(confirmed(cash=cash))
    await h.publish(reconciled() if cash else captured())
    await h.publish(check_in_started())
    await h.settled()


async def test_a_stay_is_charged_when_it_is_paid_for() -> None:
    async with Harness(billing) as h:
        await h.publish(captured())
        await h.settled()
        (charge,) = await h.published(ChargePosted)
        assert (charge.data.folio_id, charge.data.kind, charge.data.amount_cents) == ("fol-b1", "stay", 20_000)
        assert await owed() == 0
        await h.assert_replay_safe()


async def test_a_promise_of_cash_is_no_charge_and_counted_cash_is() -> None:
    async with Harness(billing) as h:
        await h.publish(captured(rail="cash_pending"))
        await h.settled()
        assert await h.published(ChargePosted) == []
        await h.publish(reconciled(22_000))
        await h.settled()
        assert [(e.data.kind, e.data.amount_cents) for e in await h.published(ChargePosted)] == [("stay", 22_000)]
        assert await owed() == 0


async def test_the_folio_is_said_to_be_open_to_every_check_in_that_asks_for_it() -> None:
    async with Harness(billing) as h:
        await h.publish(confirmed())
        await h.publish(check_in_started())
        await h.publish(check_in_started(attempt=2, missing=("key",)))
        await h.publish(check_in_started(attempt=3, missing=("folio", "key")))
        await h.settled()
        opened = [(e.data.folio_id, e.data.currency) for e in await h.published(FolioOpened)]
        assert opened == [("fol-b1", "USD")] * 2


async def test_a_check_out_that_begins_again_is_told_that_the_folio_is_closed() -> None:
    async with Harness(billing) as h:
        for fact in (confirmed(), captured(), check_in_started(), check_out_started()):
            await h.publish(fact)
            await h.settled()
        assert len(await h.published(FolioClosed)) == 1
        await h.publish(check_out_started(attempt=2))
        await h.settled()
        assert len(await h.published(FolioClosed)) == 2
        assert len(await h.published(InvoiceIssued)) == 1


async def test_every_refund_is_posted_once_and_leaves_the_balance_as_it_was() -> None:
    async with Harness(billing) as h:
        await h.publish(captured())
        for _ in range(2):
            await h.publish(refunded("ref-1", 5_000))
        await h.publish(refunded("ref-2", 15_000))
        await h.settled()
        assert [(e.data.line_id, e.data.amount_cents) for e in await h.published(RefundPosted)] == [
            ("ref-1", 5_000),
            ("ref-2", 15_000),
        ]
        assert await owed() == 0


async def test_a_refund_that_failed_changes_nothing_here() -> None:
    async with Harness(billing) as h:
        await h.publish(captured())
        await h.publish(failed("stay", "b1", 5_000, refund=True))
        await h.settled()
        assert await h.published(RefundPosted) == []
        assert await owed() == 0


@pytest.mark.parametrize("first", ["terms", "delta"])
async def test_a_dearer_change_of_dates_is_charged_whichever_of_terms_and_price_comes_first(first: str) -> None:
    async with Harness(billing) as h:
        facts = [confirmed(), delta(3_000)]
        for fact in facts if first == "terms" else reversed(facts):
            assert await h.published(ChargePosted) == []
            await h.publish(fact)
            await h.settled()
        (charge,) = await h.published(ChargePosted)
        assert (charge.data.kind, charge.data.amount_cents, charge.data.change_id) == ("delta", 3_000, "c1")
        assert await owed() == 3_000
        await h.publish(captured("delta", "c1", 3_000))
        await h.settled()
        assert await owed() == 0
        await h.assert_replay_safe()


async def test_a_cheaper_change_of_dates_is_posted_once_it_was_paid_back() -> None:
    async with Harness(billing) as h:
        await h.publish(confirmed())
        await h.publish(captured())
        await h.publish(delta(-3_000))
        await h.settled()
        assert [e.data.kind for e in await h.published(ChargePosted)] == ["stay"]
        await h.publish(refunded("ref-c1", 3_000))
        await h.settled()
        assert [e.data.amount_cents for e in await h.published(RefundPosted)] == [3_000]
        assert await owed() == 0


async def test_what_cash_costs_more_is_charged_when_payment_asks_for_it_and_not_before() -> None:
    async with Harness(billing) as h:
        await h.publish(confirmed(cash=True))
        await h.publish(reconciled())
        await h.publish(delta(3_000))
        await h.settled()
        assert [e.data.kind for e in await h.published(ChargePosted)] == ["stay"]
        await h.publish(created("delta", "c1", 3_000, rail="cash_pending"))
        await h.settled()
        assert [e.data.kind for e in await h.published(ChargePosted)] == ["stay", "delta"]
        assert await owed() == 3_000


async def test_extras_are_charged_during_the_stay_and_once() -> None:
    async with Harness(billing) as h:
        await h.publish(captured())
        await h.settled()
        with pytest.raises(Reject, match="after check-in"):
            await add_extra()
        await guest_in_house(h)
        await add_extra()
        await add_extra()
        await add_extra(300, "bar-1")
        await h.settled()
        assert [e.data.amount_cents for e in await h.published(ChargePosted) if e.data.kind == "extra"] == [700, 300]
        assert await owed() == 1_000


async def test_a_stay_that_is_paid_for_is_invoiced_and_closed_at_check_out() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h)
        await h.publish(check_out_started())
        await h.settled()
        (invoice,) = await h.published(InvoiceIssued)
        assert (invoice.data.charged_cents, invoice.data.balance_cents, invoice.data.number) == (20_000, 0, 1)
        (closed,) = await h.published(FolioClosed)
        assert closed.data.charged_cents == 20_000
        with pytest.raises(Reject, match="closed"):
            await add_extra()
        await h.assert_replay_safe()


@pytest.mark.parametrize("first", ["money", "check-out"])
async def test_check_out_waits_until_it_is_known_that_the_stay_was_paid_for(first: str) -> None:
    async with Harness(billing) as h:
        await h.publish(confirmed())
        await h.publish(check_in_started())
        await h.settled()
        facts = [captured(), check_out_started()]
        for fact in facts if first == "money" else reversed(facts):
            assert await h.published(FolioClosed) == []
            await h.publish(fact)
            await h.settled()
        assert [e.data.charged_cents for e in await h.published(FolioClosed)] == [20_000]


async def test_what_is_open_at_check_out_closes_the_folio_when_it_is_paid() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h)
        await add_extra()
        await h.publish(check_out_started())
        await h.settled()
        (invoice,) = await h.published(InvoiceIssued)
        assert (invoice.data.invoice_id, invoice.data.balance_cents) == ("inv-b1-1", 700)
        assert await h.published(FolioClosed) == []
        with pytest.raises(Reject, match="before check-out"):
            await add_extra(5, "late-1")
        await h.publish(captured("balance", "inv-b1-1", 700))
        await h.settled()
        assert [e.data.charged_cents for e in await h.published(FolioClosed)] == [20_700]
        assert await owed() == 0


async def test_a_balance_that_cannot_be_taken_voids_the_invoice_and_another_attempt_issues_a_new_one() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h)
        await add_extra()
        await h.publish(check_out_started())
        await h.settled()
        await h.publish(failed("balance", "inv-b1-1", 700))
        await h.settled()
        await h.publish(failed("balance", "inv-b1-1", 700))
        await h.settled()
        (voided,) = await h.published(InvoiceVoided)
        assert (voided.data.invoice_id, voided.data.reason) == ("inv-b1-1", "declined")
        assert await h.published(FolioClosed) == []
        assert await owed() == 700
        await h.publish(check_out_started(attempt=2))
        await h.settled()
        await h.publish(captured("balance", "inv-b1-2", 700))
        await h.settled()
        assert [e.data.invoice_id for e in await h.published(InvoiceIssued)] == ["inv-b1-1", "inv-b1-2"]
        assert len(await h.published(FolioClosed)) == 1
        assert await owed() == 0


async def test_a_second_attempt_while_the_first_is_under_way_issues_no_second_invoice() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h)
        await add_extra()
        await h.publish(check_out_started())
        await h.publish(check_out_started(attempt=2))
        await h.settled()
        assert len(await h.published(InvoiceIssued)) == 1


async def test_cash_that_was_short_is_counted_and_the_next_attempt_closes_the_folio() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h, cash=True)
        await add_extra()
        await h.publish(check_out_started())
        await h.settled()
        await h.publish(failed("balance", "inv-b1-1", 700))
        await h.settled()
        await h.publish(reconciled(700, purpose="balance", reference="inv-b1-1"))
        await h.settled()
        await h.publish(check_out_started(attempt=2))
        await h.settled()
        assert [e.data.balance_cents for e in await h.published(InvoiceIssued)] == [700, 0]
        assert len(await h.published(FolioClosed)) == 1
        assert await owed() == 0


async def test_cash_that_is_heard_of_after_the_next_attempt_closes_the_folio_too() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h, cash=True)
        await add_extra()
        await h.publish(check_out_started())
        await h.settled()
        await h.publish(reconciled(700, purpose="balance", reference="inv-b1-1"))
        await h.settled()
        await h.publish(failed("balance", "inv-b1-1", 700))
        await h.settled()
        assert len(await h.published(FolioClosed)) == 1
        assert await h.published(InvoiceVoided) == []


@pytest.mark.parametrize("answer", ["captured", "failed"])
async def test_check_out_waits_for_a_difference_that_is_on_its_way_so_that_nothing_is_taken_twice(answer: str) -> None:
    async with Harness(billing) as h:
        await guest_in_house(h)
        await h.publish(delta(3_000))
        await h.settled()
        await h.publish(check_out_started())
        await h.settled()
        assert await h.published(InvoiceIssued) == []
        money = captured("delta", "c1", 3_000) if answer == "captured" else failed("delta", "c1", 3_000)
        await h.publish(money)
        await h.settled()
        assert [e.data.balance_cents for e in await h.published(InvoiceIssued)] == [
            0 if answer == "captured" else 3_000
        ]
        assert len(await h.published(FolioClosed)) == (1 if answer == "captured" else 0)


async def test_a_difference_that_comes_after_the_end_is_kept_for_people_to_see() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h)
        await h.publish(check_out_started())
        await h.settled()
        await h.publish(delta(3_000))
        await h.settled()
        assert [e.data.kind for e in await h.published(ChargePosted)] == ["stay"]
        assert await rows(billing, "SELECT state FROM deltas") == [("too_late",)]
        assert await h.held(billing) == []


async def test_a_refund_after_the_end_is_posted_still() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h)
        await h.publish(check_out_started())
        await h.settled()
        await h.publish(refunded("ref-late", 500))
        await h.settled()
        assert len(await h.published(RefundPosted)) == 1
        assert len(await h.published(FolioClosed)) == 1
        assert await owed() == 0


async def test_a_difference_that_comes_between_invoice_and_payment_is_taken_before_the_folio_is_closed() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h)
        await add_extra()
        await h.publish(check_out_started())
        await h.settled()
        await h.publish(delta(3_000))
        await h.settled()
        await h.publish(captured("balance", "inv-b1-1", 700))
        await h.settled()
        assert await h.published(FolioClosed) == []
        await h.publish(failed("delta", "c1", 3_000))
        await h.settled()
        assert [e.data.invoice_id for e in await h.published(InvoiceVoided)] == ["inv-b1-1"]
        assert await owed() == 3_000


async def test_invoices_of_a_tenant_are_numbered_without_a_gap() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h)
        await add_extra()
        await h.publish(check_out_started())
        await h.settled()
        await h.publish(failed("balance", "inv-b1-1", 700))
        await h.settled()
        await h.publish(check_out_started(attempt=2))
        await h.settled()
        assert [e.data.number for e in await h.published(InvoiceIssued)] == [1, 2]
        numbers = await rows(billing, "SELECT number, state FROM invoices ORDER BY number")
        assert numbers == [(1, "voided"), (2, "issued")]


async def test_a_folio_is_a_stream_of_its_facts() -> None:
    async with Harness(billing) as h:
        await guest_in_house(h)
        await h.publish(check_out_started())
        await h.settled()
        versions = [
            event.extensions["streamversion"]
            for kind in (ChargePosted, FolioOpened, FolioClosed)
            for event in await h.published(kind)
        ]
        assert sorted(versions) == ["1", "2", "3"]
