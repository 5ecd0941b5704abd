"""A payout that is called for: the bank pays each key once, answers late or not at all, and refuses small sums."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse import Event, Reject
from posthouse.testing import Ending, Harness, Orders, assert_every_order, hears
from tests.unit.processes.saga import payouts
from tests.unit.processes.saga.payouts import ClaimApproved, ClaimRegistered, ClaimWithdrawn, RecallRequested, Receipt

REFUSED = 13


class Bank(payouts.Bank):
    async def pay(self, event: Event[ClaimApproved]) -> Receipt:
        if event.data.cents == REFUSED:
            raise Reject("not for so little")
        return await super().pay(event)


class Manager:
    @hears(ClaimRegistered)
    def approves(self, said: ClaimRegistered) -> ClaimApproved:
        return ClaimApproved(claim_id=said.claim_id)

    @hears(ClaimRegistered)
    def approves_little(self, said: ClaimRegistered) -> ClaimApproved:
        return ClaimApproved(claim_id=said.claim_id, cents=REFUSED)

    @hears(ClaimRegistered)
    def approves_twice(self, said: ClaimRegistered) -> tuple[ClaimApproved, ClaimApproved]:
        return ClaimApproved(claim_id=said.claim_id), ClaimApproved(claim_id=said.claim_id)

    @hears(ClaimRegistered)
    def says_nothing(self, said: ClaimRegistered) -> None: ...


async def play(limit: int, only: str | None = None) -> Orders:
    bank = Bank()
    claims, saga = payouts.claims_of(bank)

    def paid_or_recalled(end: Ending) -> Iterator[str]:
        given = sum(bank.paid.get(event.id, 0) for event in end.events(ClaimApproved))
        back = sum(recall.cents for recall in end.said(RecallRequested))
        if end.status == "completed" and given - back != 100:
            yield f"completed with {given} given and {back} recalled"
        if end.status in ("compensated", "cancelled") and given != back:
            yield f"given up with {given} given and {back} recalled"

    async def register(harness: Harness, tenant: str) -> None:
        async with claims.transaction(tenant) as tx:
            await claims.start_saga(tx, saga(claim_id="c1"))

    async def withdraw(harness: Harness, tenant: str) -> None:
        await harness.publish(ClaimWithdrawn(claim_id="c1"), tenant=tenant)

    return await assert_every_order(
        claims,
        saga,
        start=register,
        partners=[Manager],
        meanwhile={"the customer withdraws": withdraw},
        invariants=paid_or_recalled,
        limit=limit,
        only=only,
    )
