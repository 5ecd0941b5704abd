"""A claim that a bank pays out: called outside of any transaction, with a key that stays the same."""

import asyncio

from posthouse import Event, Payload, Policy, Reject, Saga, Service, Turn, app_of, on, starts, step, undo
from posthouse.testing import Harness

claims = Service("claims", namespace="insurance")
BANK: dict[str, int] = {}  # what the bank has paid, by the key that it was asked with


@claims.event("claim.registered.v1", key="claim_id")
class ClaimRegistered(Payload):
    claim_id: str


@claims.event("claim.approved.v1", key="claim_id")
class ClaimApproved(Payload):
    claim_id: str
    cents: int


@claims.event("claim.withdrawn.v1", key="claim_id")
class ClaimWithdrawn(Payload):
    claim_id: str


@claims.event("recall.requested.v1", key="claim_id")
class RecallRequested(Payload):
    claim_id: str
    receipt: str
    cents: int


async def pay(event: Event[ClaimApproved]) -> str:
    if event.data.cents > 1_000_000:
        raise Reject("above the limit of the account", every_try=True)  # nothing was paid, nor ever is
    BANK.setdefault(event.id, event.data.cents)  # a real one sends event.id along, as the idempotency key
    return f"receipt {event.data.claim_id}"


@claims.saga("claim", correlate="claim_id")
class ClaimSaga(Saga):
    """Register a claim, and pay it out when it is approved."""

    claim_id: str

    @starts
    def register(self, turn: Turn) -> None:
        turn.publish(ClaimRegistered(claim_id=self.claim_id))

    @step(ClaimApproved, calling=pay, policy=Policy(max_attempts=5, deadline=10.0))
    def paid(self, event: Event[ClaimApproved], turn: Turn, receipt: str) -> None:
        turn.complete(receipt)

    @undo(paid)
    def recall(self, event: Event[ClaimApproved], turn: Turn, receipt: str) -> None:
        turn.publish(RecallRequested(claim_id=self.claim_id, receipt=receipt, cents=event.data.cents))

    @on(ClaimWithdrawn)
    def withdrawn(self, event: Event[ClaimWithdrawn], turn: Turn) -> None:
        turn.compensate("withdrawn")


async def two_claims(harness: Harness) -> None:
    BANK.clear()
    for claim_id, cents in (("c1", 5_000), ("c2", 2_000_000)):
        async with claims.transaction("t1") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id=claim_id))
        await harness.publish(ClaimApproved(claim_id=claim_id, cents=cents))
    await harness.settled()


async def ended(harness: Harness) -> list[str]:
    paid = [f"the bank paid {', '.join(map(str, BANK.values()))}"]
    return paid + [f"{row.id} is {row.status}: {row.note or row.reason}" async for row in app_of(claims).sagas.find()]


async def main() -> None:
    async with Harness(claims) as harness:
        await two_claims(harness)
        print("\n".join(await ended(harness)))
        for turn in (await app_of(claims).sagas.show("claim", "c1", tenant="t1")).history:
            print(f"{turn.turn} {turn.input.kind} {turn.input.type} → {turn.method or turn.note}: {turn.status}")


if __name__ == "__main__":
    asyncio.run(main())
