"""pricing-service: what a night costs."""

from __future__ import annotations

import pytest

from melmastoon.facts.pricing import (
    CalendarUpdated,
    DeltaApplied,
    QuoteExpired,
    RatePlanArchived,
    RatePlanPublished,
)
from melmastoon.pricing import pricing
from melmastoon.pricing.commands import archive_rate_plan, publish_rate_plan, set_night_price
from melmastoon.pricing.quotes import Quote, quote
from melmastoon.pricing.rates import delta, spread
from posthouse import Reject, Tx
from posthouse.testing import Harness
from tests.unit.melmastoon.stay import day, held, reallocated, rows


async def publish(tx: Tx, cents: int = 10_000, plan: str = "bar") -> bool:
    return await publish_rate_plan(tx, plan, property_id="p1", room_type="double", night_cents=cents)


async def offer(tx: Tx, quote_id: str = "quo-b1", *, first: int = 1, last: int = 3) -> Quote:
    return await quote(tx, quote_id, property_id="p1", room_type="double", check_in=day(first), check_out=day(last))


async def test_a_plan_is_published_and_archived_once() -> None:
    async with Harness(pricing) as h:
        async with pricing.transaction("t1") as tx:
            assert await publish(tx)
            assert not await publish(tx, cents=99)
        async with pricing.transaction("t1") as tx:
            assert await archive_rate_plan(tx, "bar")
            assert not await archive_rate_plan(tx, "bar")
        await h.settled()
        assert [e.data.night_cents for e in await h.published(RatePlanPublished)] == [10_000]
        assert [e.data.property_id for e in await h.published(RatePlanArchived)] == ["p1"]
        with pytest.raises(Reject, match="no price"):
            async with pricing.transaction("t1") as tx:
                await offer(tx)


async def test_a_price_of_one_night_goes_before_the_plans_and_the_same_again_is_no_news() -> None:
    async with Harness(pricing) as h:
        async with pricing.transaction("t1") as tx:
            await publish(tx)
            await publish(tx, cents=9_000, plan="cheaper")
            for cents in (15_000, 15_000, 12_000):
                await set_night_price(tx, property_id="p1", room_type="double", night=day(2), night_cents=cents)
        async with pricing.transaction("t1") as tx:
            assert (await offer(tx)).amount_cents == 9_000 + 12_000
        await h.settled()
        assert [e.data.night_cents for e in await h.published(CalendarUpdated)] == [15_000, 12_000]


async def test_a_night_below_nothing_is_refused() -> None:
    async with Harness(pricing):
        with pytest.raises(Reject, match="cannot cost -1"):
            async with pricing.transaction("t1") as tx:
                await publish(tx, cents=-1)


async def test_a_quote_expires_after_ten_minutes_and_holds_its_price_until_then() -> None:
    async with Harness(pricing) as h:
        async with pricing.transaction("t1") as tx:
            await publish(tx)
            assert (await offer(tx)).amount_cents == 20_000
        async with pricing.transaction("t1") as tx:
            await set_night_price(tx, property_id="p1", room_type="double", night=day(2), night_cents=1)
            assert (await offer(tx)).amount_cents == 20_000
        await h.advance(599)
        assert await h.published(QuoteExpired) == []
        await h.advance(2)
        assert [e.data.quote_id for e in await h.published(QuoteExpired)] == ["quo-b1"]


async def test_a_quote_that_a_booking_was_held_with_does_not_expire() -> None:
    async with Harness(pricing) as h:
        async with pricing.transaction("t1") as tx:
            await publish(tx)
            await offer(tx, "quo-b1")
            await offer(tx, "quo-b2")
        await h.publish(held("b1"))
        await h.settled()
        await h.advance(700)
        assert [e.data.quote_id for e in await h.published(QuoteExpired)] == ["quo-b2"]


async def test_a_booking_is_remembered_at_what_it_was_sold_for() -> None:
    async with Harness(pricing) as h:
        await h.publish(held("b1", cents=20_001))
        await h.settled()
        nights = await rows(pricing, "SELECT night, night_cents FROM snapshot_nights ORDER BY night")
        assert nights == [("2027-02-01", 10_001), ("2027-02-02", 10_000)]


@pytest.mark.parametrize("late", ["booking", "swap"])
async def test_a_change_of_dates_is_priced_whichever_of_booking_and_swap_is_heard_of_first(late: str) -> None:
    async with Harness(pricing) as h:
        async with pricing.transaction("t1") as tx:
            await publish(tx, cents=12_000)
        facts = [held("b1"), reallocated("b1", first=2, last=5)]
        for fact in facts if late == "swap" else reversed(facts):
            await h.publish(fact)
            await h.settled()
        (applied,) = await h.published(DeltaApplied)
        assert (applied.data.change_id, applied.data.delta_cents) == ("c1", 2 * 12_000 - 10_000)
        await h.assert_replay_safe()


async def test_changes_that_were_heard_of_before_the_booking_are_priced_one_after_the_other() -> None:
    async with Harness(pricing) as h:
        await h.publish(reallocated("b1", first=1, last=4, change_id="c2"))
        await h.publish(reallocated("b1", first=1, last=2, change_id="c1"))
        await h.settled()
        await h.publish(held("b1"))
        await h.settled()
        assert [(e.data.change_id, e.data.delta_cents) for e in await h.published(DeltaApplied)] == [
            ("c2", 10_000),
            ("c1", -20_000),
        ]


async def test_the_same_swap_twice_costs_once() -> None:
    async with Harness(pricing) as h:
        await h.publish(held("b1"))
        for _ in range(2):
            await h.publish(reallocated("b1", first=1, last=2))
            await h.settled()
        assert [e.data.delta_cents for e in await h.published(DeltaApplied)] == [-10_000]


def test_an_amount_is_spread_over_nights_without_losing_a_cent() -> None:
    assert spread(100, ["a", "b", "c"]) == {"a": 34, "b": 33, "c": 33}
    assert spread(100, []) == {}


def test_nights_that_stay_keep_the_price_that_was_agreed() -> None:
    assert delta({"a": 10, "b": 20}, ["b", "c"], {"a": 1, "b": 1, "c": 5}) == (-5, {"b": 20, "c": 5})
    assert delta({"a": 10, "b": 20}, ["a", "b", "c"], {}) == (20, {"a": 10, "b": 20, "c": 20})
