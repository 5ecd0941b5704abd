"""A claim in every order: no money is given twice, none for a claim that was given up, and none stands still."""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from claims import (
    ClaimDecided,
    ClaimFiled,
    ClaimSaga,
    ClaimWithdrawn,
    CoverChecked,
    DamageAssessed,
    DecisionRequested,
    PayoutFailed,
    PayoutRequested,
    PayoutReturned,
    PayoutSettled,
    RecallRequested,
    claims,
)

from posthouse.testing import Ending, Harness, Orders, assert_every_order, hears


class Assessor:
    @hears(ClaimFiled)
    def assesses(self, said: ClaimFiled) -> DamageAssessed:
        return DamageAssessed(claim_id=said.claim_id, cents=90_000)

    @hears(ClaimFiled)
    def never_comes(self, said: ClaimFiled) -> None: ...


class Policies:
    @hears(ClaimFiled)
    def finds_it_covered(self, said: ClaimFiled) -> CoverChecked:
        return CoverChecked(claim_id=said.claim_id, covered=True)

    @hears(ClaimFiled)
    def finds_it_not_covered(self, said: ClaimFiled) -> CoverChecked:
        return CoverChecked(claim_id=said.claim_id, covered=False)


class Manager:
    @hears(DecisionRequested)
    def approves(self, said: DecisionRequested) -> ClaimDecided:
        return ClaimDecided(claim_id=said.claim_id, approved=True)

    @hears(DecisionRequested)
    def rejects(self, said: DecisionRequested) -> ClaimDecided:
        return ClaimDecided(claim_id=said.claim_id, approved=False)

    @hears(DecisionRequested)
    def is_away(self, said: DecisionRequested) -> None: ...


class Bank:
    def __init__(self) -> None:
        self.given = 0

    @hears(PayoutRequested)
    def pays(self, said: PayoutRequested) -> PayoutSettled:
        self.given += said.cents
        return PayoutSettled(claim_id=said.claim_id)

    @hears(PayoutRequested)
    def fails(self, said: PayoutRequested) -> PayoutFailed:
        return PayoutFailed(claim_id=said.claim_id)

    @hears(PayoutRequested)
    def says_nothing(self, said: PayoutRequested) -> None: ...

    @hears(RecallRequested)
    def returns_it(self, said: RecallRequested) -> PayoutReturned:
        self.given -= 90_000
        return PayoutReturned(claim_id=said.claim_id)


def money_is_where_it_belongs(end: Ending) -> Iterator[str]:
    given = end.partner(Bank).given
    if end.status == "completed" and given != 90_000:
        yield f"settled, and {given} cents given"
    if end.status in ("compensated", "cancelled") and given:
        yield f"given up, and {given} cents given"


async def file(harness: Harness, tenant: str) -> None:
    async with claims.transaction(tenant) as tx:
        await claims.start_saga(tx, ClaimSaga(claim_id="c1"))


async def withdraw(harness: Harness, tenant: str) -> None:
    await harness.publish(ClaimWithdrawn(claim_id="c1"), tenant=tenant)


async def play(limit: int) -> Orders:
    return await assert_every_order(
        claims,
        ClaimSaga,
        start=file,
        partners=[Assessor, Policies, Manager, Bank],
        meanwhile={"the customer withdraws": withdraw},
        invariants=money_is_where_it_belongs,
        limit=limit,
    )


async def test_no_order_gives_money_for_a_claim_that_was_given_up() -> None:
    orders = await play(limit=150)
    assert orders.runs == 150
