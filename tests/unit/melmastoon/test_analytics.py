"""analytics-service: figures of a day, in any order of facts; and the report that reporting-service makes of them."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime

import pytest

from melmastoon.analytics import analytics
from melmastoon.analytics.commands import compute_snapshot
from melmastoon.analytics.figures import added_by
from melmastoon.facts.analytics import SnapshotComputed
from melmastoon.facts.inventory import OversellBlocked
from melmastoon.facts.payment import CashReconciled, IntentRefunded
from melmastoon.facts.reporting import ReportGenerated
from melmastoon.facts.reservation import CheckedIn, NoShow
from melmastoon.reporting import reporting
from melmastoon.reporting.handlers import as_csv, read_report
from posthouse import Reject
from posthouse.testing import Harness
from tests.unit.melmastoon.samples import ARRIVAL, DEPARTURE, cancelled, captured, checked_out, confirmed, held

DAY = 86_400.0
REFUNDED = IntentRefunded(booking_id="b1", intent_id="i1", refund_id="f1", amount_cents=20_000, currency="USD")
CASH = CashReconciled(booking_id="b2", intent_id="i2", amount_cents=5_000, currency="USD", staff_id="m1")
CHECKED_IN = CheckedIn(booking_id="b1", property_id="p1", room_id="r1", check_in=ARRIVAL, check_out=DEPARTURE)
NO_SHOW = NoShow(booking_id="b3", property_id="p1", room_id="r1")
BLOCKED = OversellBlocked(
    booking_id="b4", change_id="", property_id="p1", room_type="double", check_in=ARRIVAL, check_out=DEPARTURE
)
EVERYTHING = (
    held(),
    confirmed(),
    cancelled(),
    CHECKED_IN,
    checked_out(),
    NO_SHOW,
    BLOCKED,
    captured(),
    captured("b2", rail="cash_pending"),
    CASH,
    REFUNDED,
)


def _today(house: Harness) -> date:
    return datetime.fromtimestamp(house.clock.now(), UTC).date()


async def _compute(day: date, tenant: str = "t1") -> SnapshotComputed | None:
    async with analytics.transaction(tenant) as tx:
        return await compute_snapshot(tx, day)


async def test_every_figure_counts_its_facts() -> None:
    async with Harness(analytics) as house:
        for fact in EVERYTHING:
            await house.publish(fact)
        await house.publish(held("b9"), tenant="t2")
        await house.settled()
        today = _today(house)
        snapshot = await _compute(today)
        assert snapshot == SnapshotComputed(
            snapshot_id=today.isoformat(),
            day=today,
            revision=len(EVERYTHING),
            held=1,
            confirmed=1,
            cancelled=1,
            checked_in=1,
            checked_out=1,
            no_shows=1,
            oversells_blocked=1,
            captured_cents=35_000,
            refunded_cents=20_000,
        )
        await house.settled()
        assert [e.data for e in await house.published(SnapshotComputed)] == [snapshot]
        await house.assert_replay_safe()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_the_order_of_facts_makes_no_difference(order: tuple[int, ...]) -> None:
    facts = (held(), captured(), REFUNDED)
    async with Harness(analytics) as house:
        for number in order:
            await house.publish(facts[number])
        await house.settled()
        snapshot = await _compute(_today(house))
    assert snapshot is not None
    assert (snapshot.held, snapshot.captured_cents, snapshot.refunded_cents) == (1, 30_000, 20_000)


async def test_a_snapshot_is_said_once_for_each_state_that_a_day_had() -> None:
    async with Harness(analytics) as house:
        await house.publish(held())
        await house.settled()
        for _ in range(2):
            await _compute(_today(house))
        await house.publish(confirmed())
        await house.settled()
        await _compute(_today(house))
        await house.settled()
        assert [e.data.revision for e in await house.published(SnapshotComputed)] == [1, 2]


async def test_a_day_is_said_by_itself_when_it_is_over_and_again_when_something_late_changes_it() -> None:
    async with Harness(analytics) as house:
        first = _today(house)
        await house.publish(held())
        await house.settled()
        assert await house.published(SnapshotComputed) == []
        house.clock.advance(DAY)
        await house.publish(held("b2"))
        await house.settled()
        assert [(e.data.day, e.data.held) for e in await house.published(SnapshotComputed)] == [(first, 1)]
        house.clock.advance(-DAY)
        await house.publish(held("b3"))
        await house.settled()
        assert [(e.data.day, e.data.held) for e in await house.published(SnapshotComputed)] == [(first, 1), (first, 2)]


async def test_a_day_on_which_nothing_happened_has_no_snapshot() -> None:
    async with Harness(analytics):
        assert await _compute(date(2020, 1, 1)) is None


def test_promised_cash_counts_when_it_was_counted() -> None:
    assert added_by(captured(rail="cash_pending")) == ("captured_cents", 0)
    assert added_by(CASH) == ("captured_cents", 5_000)


async def test_a_report_is_generated_from_each_snapshot() -> None:
    async with Harness(analytics, reporting) as house:
        await house.publish(captured())
        await house.settled()
        day = _today(house)
        snapshot = await _compute(day)
        await house.settled()
        [report] = await house.published(ReportGenerated)
        assert (report.data.report_id, report.data.revision, report.data.lines) == (f"daily-{day}", 1, 10)
        assert snapshot is not None
        async with reporting.transaction("t1") as tx:
            assert await read_report(tx, f"daily-{day}") == as_csv(snapshot)
        await house.assert_replay_safe()


async def test_a_report_of_an_older_snapshot_replaces_no_newer_one() -> None:
    def snapshot(revision: int) -> SnapshotComputed:
        figures = dict.fromkeys(("held", "confirmed", "cancelled", "checked_in", "checked_out", "no_shows"), revision)
        money = {"oversells_blocked": 0, "captured_cents": 0, "refunded_cents": 0}
        return SnapshotComputed(snapshot_id="2027-01-01", day=date(2027, 1, 1), revision=revision, **figures, **money)

    async with Harness(reporting) as house:
        await house.publish(snapshot(2))
        await house.publish(snapshot(1))
        await house.settled()
        assert [e.data.revision for e in await house.published(ReportGenerated)] == [2]
        async with reporting.transaction("t1") as tx:
            assert "held,2\n" in await read_report(tx, "daily-2027-01-01")
            with pytest.raises(Reject, match="no report daily-2027-01-02"):
                await read_report(tx, "daily-2027-01-02")
