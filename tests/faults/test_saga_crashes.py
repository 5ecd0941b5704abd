"""A power cut after every step of sagas whose events come late, or too early: each ends as it would have, and nothing is done
twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from posthouse import app_of
from posthouse.testing import Harness, assert_survives_crashes
from tests.faults.test_orders import example
from tests.kit.long import LONG

pytestmark = pytest.mark.timeout(300)

claims: Any = example("claims")

COVERED = claims.CoverChecked(claim_id="c1", covered=True)
ASSESSED = claims.DamageAssessed(claim_id="c1", cents=90_000)
APPROVED = claims.ClaimDecided(claim_id="c1", approved=True)
WITHDRAWN = claims.ClaimWithdrawn(claim_id="c1")
PAID = claims.PayoutSettled(claim_id="c1")
RETURNED = claims.PayoutReturned(claim_id="c1")

DAYS = 6 * 86_400.0


async def start(harness: Harness) -> None:
    async with claims.claims.transaction("t1") as tx:
        await claims.claims.start_saga(tx, claims.ClaimSaga(claim_id="c1"))


async def cancel(harness: Harness) -> None:
    await app_of(claims.claims).sagas.cancel("claim", "c1", "closed", tenant="t1")


async def wait(harness: Harness) -> None:
    await harness.advance(DAYS)


Happens = Callable[[Harness], Awaitable[None]] | object

STORIES: dict[str, tuple[Sequence[Happens], str]] = {
    "late": ((start, COVERED, ASSESSED, APPROVED, WITHDRAWN, PAID, RETURNED), "compensated"),
    "late and not returned": ((start, COVERED, ASSESSED, APPROVED, WITHDRAWN, PAID, wait), "compensation_failed"),
    "late after a cancel": ((start, COVERED, ASSESSED, APPROVED, cancel, PAID, RETURNED), "cancelled"),
    "paid twice": ((start, COVERED, ASSESSED, APPROVED, PAID, PAID, RETURNED), "completed"),
    "too early": ((start, PAID, APPROVED, ASSESSED, COVERED), "completed"),
    "before its start": ((COVERED, PAID, start, APPROVED, ASSESSED), "completed"),
    "too early, then too late": ((start, PAID, WITHDRAWN, RETURNED), "compensated"),
}


@pytest.mark.parametrize("name", STORIES)
async def test_a_power_cut_after_any_step_changes_nothing(name: str) -> None:
    story, status = STORIES[name]

    async def scenario(harness: Harness) -> None:
        for one in story:
            if callable(one):
                await one(harness)
            else:
                await harness.publish(one)
            await harness.settled()

    async with Harness(claims.claims, claims.partners) as harness:
        await scenario(harness)
        found = await app_of(claims.claims).sagas.show("claim", "c1", tenant="t1")
        assert found.row.status == status
    crashes = await assert_survives_crashes(scenario, claims.claims, claims.partners, every=1 if LONG else 5)
    print(f"{name}: {crashes.runs} power cuts at {crashes.steps} steps")
    assert crashes.runs >= 5
