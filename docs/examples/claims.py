"""A claim on a travel insurance: assessed and checked side by side, approved by a person, paid; and money that comes too late
goes back."""

import asyncio

from posthouse import Event, Payload, Saga, Service, Turn, app_of, deadline, join, on, starts, step, undo
from posthouse.testing import Harness

claims = Service("claims", namespace="insurance")
partners = Service("partners", namespace="insurance")


class About(Payload):
    claim_id: str


@claims.event("claim.filed.v1", key="claim_id")
class ClaimFiled(About): ...


@claims.event("decision.requested.v1", key="claim_id")
class DecisionRequested(About):
    cents: int


@claims.event("claim.closed.v1", key="claim_id")
class ClaimClosed(About):
    reason: str


@claims.event("payout.requested.v1", key="claim_id")
class PayoutRequested(About):
    cents: int


@claims.event("recall.requested.v1", key="claim_id")
class RecallRequested(About): ...


@partners.event("damage.assessed.v1", key="claim_id")
class DamageAssessed(About):
    cents: int


@partners.event("cover.checked.v1", key="claim_id")
class CoverChecked(About):
    covered: bool


@partners.event("claim.decided.v1", key="claim_id")
class ClaimDecided(About):
    approved: bool


@partners.event("claim.withdrawn.v1", key="claim_id")
class ClaimWithdrawn(About): ...


@partners.event("payout.settled.v1", key="claim_id")
class PayoutSettled(About): ...


@partners.event("payout.failed.v1", key="claim_id")
class PayoutFailed(About): ...


@partners.event("payout.returned.v1", key="claim_id")
class PayoutReturned(About): ...


@claims.saga("claim", correlate="claim_id")
class ClaimSaga(Saga):
    claim_id: str
    cents: int = 0

    @starts
    def file(self, turn: Turn) -> None:
        turn.publish(ClaimFiled(claim_id=self.claim_id))
        turn.set(self.overdue)

    @undo(file)
    def close(self, turn: Turn) -> None:
        turn.publish(ClaimClosed(claim_id=self.claim_id, reason=turn.reason))

    @deadline(30 * 86_400.0)
    def overdue(self, turn: Turn) -> None:
        turn.compensate("overdue")

    @step(DamageAssessed)
    def assessed(self, event: Event[DamageAssessed], turn: Turn) -> None:
        self.cents = event.data.cents

    @step(CoverChecked)
    def checked(self, event: Event[CoverChecked], turn: Turn) -> None:
        if not event.data.covered:
            turn.compensate("not covered")

    @join(assessed, checked)
    def ready(self, turn: Turn) -> None:
        turn.publish(DecisionRequested(claim_id=self.claim_id, cents=self.cents))

    @step(ClaimDecided, after=ready)
    def decided(self, event: Event[ClaimDecided], turn: Turn) -> None:
        if event.data.approved:
            turn.publish(PayoutRequested(claim_id=self.claim_id, cents=self.cents))
        else:
            turn.compensate("rejected")

    @on(ClaimWithdrawn)
    def withdrawn(self, event: Event[ClaimWithdrawn], turn: Turn) -> None:
        turn.compensate("withdrawn")

    @on(PayoutFailed)
    def not_paid(self, event: Event[PayoutFailed], turn: Turn) -> None:
        turn.compensate("payout failed")

    @step(PayoutSettled, after=decided)
    def paid(self, event: Event[PayoutSettled], turn: Turn) -> None:
        turn.publish(ClaimClosed(claim_id=self.claim_id, reason="paid"))
        turn.complete()

    @undo(paid, until=PayoutReturned, within=5 * 86_400.0)
    def recall(self, event: Event[PayoutSettled], turn: Turn) -> None:
        turn.publish(RecallRequested(claim_id=self.claim_id))


async def main() -> None:
    async with Harness(claims, partners) as harness:
        async with claims.transaction("t1") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c1"))
        for fact in (
            CoverChecked(claim_id="c1", covered=True),
            DamageAssessed(claim_id="c1", cents=90_000),
            ClaimDecided(claim_id="c1", approved=True),
            ClaimWithdrawn(claim_id="c1"),
            PayoutSettled(claim_id="c1"),  # the bank was quicker than the customer
            PayoutReturned(claim_id="c1"),
        ):
            await harness.publish(fact)
            await harness.settled()
        view = await app_of(claims).sagas.show("claim", "c1", tenant="t1")
        for turn in view.history:
            undone = f", undoes by {', '.join(turn.undone)}" if turn.undone else ""
            print(f"{turn.turn} {turn.input.type} → {turn.method}{undone}: {turn.status}")


if __name__ == "__main__":
    asyncio.run(main())
