"""A payout in every order, with a bank that is called: it books by the key that it is asked with, and the invariant asks it."""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from saga_calls import BANK, ClaimApproved, ClaimRegistered, ClaimSaga, ClaimWithdrawn, RecallRequested, claims

from posthouse.testing import Ending, Harness, assert_every_order, hears


class Clerk:
    @hears(ClaimRegistered)
    def approves(self, said: ClaimRegistered) -> ClaimApproved:
        return ClaimApproved(claim_id=said.claim_id, cents=5_000)


def the_bank_agrees(end: Ending) -> Iterator[str]:
    paid = sum(BANK.get(event.id, 0) for event in end.events(ClaimApproved))
    recalled = sum(said.cents for said in end.said(RecallRequested))
    if paid - recalled != (5_000 if end.status == "completed" else 0):
        yield f"{end.status}: {paid} paid, {recalled} recalled"


async def register(harness: Harness, tenant: str) -> None:
    async with claims.transaction(tenant) as tx:
        await claims.start_saga(tx, ClaimSaga(claim_id="c1"))


async def withdraw(harness: Harness, tenant: str) -> None:
    await harness.publish(ClaimWithdrawn(claim_id="c1"), tenant=tenant)


async def test_the_bank_and_the_saga_agree_in_every_order() -> None:
    orders = await assert_every_order(
        claims,
        ClaimSaga,
        start=register,
        partners=[Clerk],
        meanwhile={"the customer withdraws": withdraw},
        invariants=the_bank_agrees,
        limit=60,
    )
    assert {"completed", "compensated", "cancelled"} <= set(orders.ends)
