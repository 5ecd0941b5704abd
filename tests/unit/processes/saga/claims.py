"""An insurer, small: a claim begins again when it was called off, has an inspection as a child, and asks people."""

from __future__ import annotations

from datetime import date
from uuid import UUID

from posthouse import Event, Payload, Saga, Service, Turn, deadline, on, starts, step, undo

claims = Service("claims", namespace="town")


@claims.event("claim.opened.v1", key="claim_id")
class ClaimOpened(Payload):
    claim_id: str


@claims.event("claim.refused.v1", key="claim_id")
class ClaimRefused(Payload):
    claim_id: str


@claims.event("claim.approved.v1", key="claim_id")
class ClaimApproved(Payload):
    claim_id: str
    cents: int = 100


@claims.event("claim.closed.v1", key="claim_id")
class ClaimClosed(Payload):
    claim_id: str


@claims.event("claim.noted.v1", key="claim_id")
class ClaimNoted(Payload):
    claim_id: str


@claims.event("claim.signed.v1", key="claim_id")
class ClaimSigned(Payload):
    claim_id: str


@claims.event("payout.ordered.v1", key="claim_id")
class PayoutOrdered(Payload):
    claim_id: str


@claims.saga(
    "claim",
    correlate="claim_id",
    index=("policy_id", "number", "due", "case"),
    again=("cancelled", "compensated"),
    operator="claims-desk",
)
class ClaimSaga(Saga):
    """Inspect, approve, pay."""

    claim_id: str
    policy_id: str = ""
    number: int = 0
    due: date | None = None
    case: UUID | None = None
    inspected: bool = False

    @starts
    async def opened(self, turn: Turn) -> None:
        turn.publish(ClaimOpened(claim_id=self.claim_id))
        turn.set(self.forgotten)
        if self.inspected:
            await claims.start_saga(turn.tx, InspectionSaga(inspection_id=f"i-{self.claim_id}"))

    @step(ClaimApproved, by="claims-manager")
    def approved(self, event: Event[ClaimApproved], turn: Turn) -> None:
        self.number += 1
        turn.publish(PayoutOrdered(claim_id=self.claim_id))

    @step(ClaimSigned, after=approved, by="director")
    def signed(self, event: Event[ClaimSigned], turn: Turn) -> None: ...

    @on(ClaimNoted)
    def noted(self, event: Event[ClaimNoted], turn: Turn) -> None:
        turn.partial("a part is missing")

    @on(ClaimRefused)
    def refused(self, event: Event[ClaimRefused], turn: Turn) -> None:
        turn.compensate("refused")

    @on(ClaimClosed)
    def closed(self, event: Event[ClaimClosed], turn: Turn) -> None:
        turn.complete()

    @deadline(600.0)
    def forgotten(self, turn: Turn) -> None:
        turn.compensate("forgotten")


@claims.saga("inspection", correlate="inspection_id")
class InspectionSaga(Saga):
    """Somebody looks."""

    inspection_id: str

    @starts
    def asked(self, turn: Turn) -> None:
        pass

    @undo(asked)
    def called_off(self, turn: Turn) -> None:
        pass
