"""Reservation, with the power cut after every step of a saga in turn: each run ends as the one without a cut."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from melmastoon.reservation import desk, reservation
from posthouse.testing import Harness, assert_survives_crashes
from tests.unit.melmastoon.reservation.house import (
    PARTS,
    House,
    captured,
    committed,
    counted,
    delta,
    failed,
    folio_closed,
    invoice_voided,
    key_revoked,
    key_updated,
    oversold,
    reallocated,
    released,
)


async def _confirmed(house: House) -> None:
    await house.hold()
    await house.hears(committed(), captured())


async def _expired(house: House) -> None:
    await house.hold()
    await house.waits(30.0)
    await house.hears(committed(), released())


async def _declined(house: House) -> None:
    await house.hold()
    await house.hears(committed(), failed(), released())


async def _cash(house: House) -> None:
    await house.confirmed_cash_pending()
    await house.hears(counted())


async def _partial_check_in(house: House) -> None:
    await house.confirmed()
    await house.check_in()
    await house.hears(PARTS["folio"])
    await house.waits(30.0)
    await desk.retry_check_in("t1", "b1")
    await house.hears(PARTS["key"], PARTS["welcome"])


async def _balance_pending(house: House) -> None:
    await house.checked_in()
    await house.check_out()
    await house.hears(invoice_voided(), key_revoked())
    await desk.retry_check_out("t1", "b1")
    await house.hears(folio_closed())


async def _dates_changed(house: House) -> None:
    await house.confirmed()
    await house.hears(PARTS["key"])
    await house.change_dates()
    await house.hears(reallocated(), delta(-5_000), key_updated("c1"))


async def _dates_kept(house: House) -> None:
    await house.confirmed()
    await house.change_dates()
    await house.waits(30.0)
    await house.hears(oversold("c1"))


async def _cancelled(house: House) -> None:
    await house.confirmed()
    await house.cancel()
    await house.hears(failed(refund=True))


pytestmark = pytest.mark.timeout(300)

STORIES: dict[str, Callable[[House], Awaitable[None]]] = {
    "confirmed": _confirmed,
    "hold expired": _expired,
    "payment failed": _declined,
    "cash counted": _cash,
    "check-in partial and retried": _partial_check_in,
    "balance pending and retried": _balance_pending,
    "dates changed": _dates_changed,
    "dates kept": _dates_kept,
    "cancelled": _cancelled,
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_a_power_cut_after_any_step_changes_no_ending(story: Callable[[House], Awaitable[None]]) -> None:
    async def scenario(harness: Harness) -> None:
        await story(House(harness))

    crashes = await assert_survives_crashes(scenario, reservation)
    assert crashes.runs >= 10
