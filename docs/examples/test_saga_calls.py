"""A user's own tests of a saga that calls outside: with answers of the test's choice, and with power cuts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from saga_calls import ClaimApproved, ClaimSaga, ClaimWithdrawn, RecallRequested, claims, ended, two_claims

from posthouse.testing import assert_survives_crashes, given

APPROVED = ClaimApproved(claim_id="c1", cents=5_000)


async def test_what_was_paid_after_all_is_recalled() -> None:
    claim = await given(claims, ClaimSaga(claim_id="c1"), APPROVED)
    await claim.answer("paid", TimeoutError("no answer"))
    await claim.when(ClaimWithdrawn(claim_id="c1"))
    claim.then(status="compensating", calls=["paid"], published=[])
    await claim.answer("paid", "receipt c1")
    claim.then(
        status="compensated", calls=[], published=[RecallRequested(claim_id="c1", receipt="receipt c1", cents=5_000)]
    )


async def test_a_claim_is_paid_once_wherever_the_power_is_cut() -> None:
    crashes = await assert_survives_crashes(two_claims, claims, end=ended)
    assert crashes.runs > 10
