"""A claim that is approved and paid out by a bank, which is called; and the bank, with everything that it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from posthouse import Event, Payload, Policy, Reject, Service
from posthouse.processes import Saga, Turn, deadline, on, starts, step, undo

POLICY = Policy(max_attempts=3, first_delay=10.0, last_delay=40.0, deadline=5.0)


class ClaimApproved(Payload):
    claim_id: str
    cents: int = 100


class ClaimWithdrawn(Payload):
    claim_id: str


class ClaimSettled(Payload):
    claim_id: str


class ClaimConfirmed(Payload):
    claim_id: str


class ClaimRegistered(Payload):
    claim_id: str


class ClaimPaid(Payload):
    claim_id: str
    receipt: str


class ClaimClosed(Payload):
    claim_id: str
    reason: str


class RecallRequested(Payload):
    claim_id: str
    receipt: str
    cents: int


class Receipt(Payload):
    number: str
    cents: int


class Bank:
    """Pays each key once, however often it is asked. `before` and `after` run around the payment."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.paid: dict[str, int] = {}
        self.before: Callable[[], Awaitable[None]] = self._nothing
        self.after: Callable[[], Awaitable[None]] = self._nothing

    async def _nothing(self) -> None: ...

    def declines(self) -> None:
        async def no() -> None:
            raise Reject("account closed")

        self.before = no

    def silent(self, times: int, *, paying: bool = False) -> None:
        """It does not answer so often; `paying`: and has paid all the same."""
        left = [times]

        async def silence() -> None:
            if left[0]:
                left[0] -= 1
                raise TimeoutError("no answer")

        if paying:
            self.after = silence
        else:
            self.before = silence

    def holds(self) -> tuple[asyncio.Event, asyncio.Event]:
        """It thinks, after having paid: the first is set when it does, the second is awaited."""
        thinking, answer = asyncio.Event(), asyncio.Event()

        async def think() -> None:
            thinking.set()
            await answer.wait()

        self.after = think
        return thinking, answer

    async def pay(self, event: Event[ClaimApproved]) -> Receipt:
        self.asked.append(event.id)
        await self.before()
        self.paid.setdefault(event.id, event.data.cents)
        await self.after()
        return Receipt(number=f"r-{event.data.claim_id}", cents=event.data.cents)


def claims_of(
    bank: Bank,
    *,
    policy: Policy = POLICY,
    fails: list[Exception] | None = None,
    completes: bool = True,
    by: str | None = None,
) -> tuple[Service, type[Saga]]:
    """The service, with a saga whose payout is called for. `fails`: what its method raises, one by one."""
    claims = Service("claims")
    for name, cls in (
        ("claim.approved", ClaimApproved),
        ("claim.withdrawn", ClaimWithdrawn),
        ("claim.settled", ClaimSettled),
        ("claim.confirmed", ClaimConfirmed),
        ("claim.registered", ClaimRegistered),
        ("claim.paid", ClaimPaid),
        ("claim.closed", ClaimClosed),
        ("recall.requested", RecallRequested),
    ):
        claims.event(f"{name}.v1", key="claim_id")(cls)

    @claims.saga("claim", correlate="claim_id", policy=policy)
    class ClaimSaga(Saga):
        claim_id: str
        receipt: str = ""

        @starts
        def register(self, turn: Turn) -> None:
            turn.publish(ClaimRegistered(claim_id=self.claim_id))
            turn.set(self.too_slow)

        @undo(register)
        def close(self, turn: Turn) -> None:
            turn.publish(ClaimClosed(claim_id=self.claim_id, reason=turn.reason))

        @step(ClaimApproved, calling=bank.pay, by=by)
        def paid(self, event: Event[ClaimApproved], turn: Turn, receipt: Receipt) -> None:
            if fails:
                raise fails.pop(0)
            self.receipt = receipt.number
            turn.publish(ClaimPaid(claim_id=self.claim_id, receipt=receipt.number))
            if completes:
                turn.complete()

        @undo(paid)
        def recall(self, event: Event[ClaimApproved], turn: Turn, receipt: Receipt) -> None:
            turn.publish(RecallRequested(claim_id=self.claim_id, receipt=receipt.number, cents=event.data.cents))

        @step(ClaimConfirmed, after=paid)
        def confirmed(self, event: Event[ClaimConfirmed], turn: Turn) -> None: ...

        @on(ClaimWithdrawn)
        def withdrawn(self, event: Event[ClaimWithdrawn], turn: Turn) -> None:
            turn.compensate("withdrawn")

        @on(ClaimSettled)
        def settled(self, event: Event[ClaimSettled], turn: Turn) -> None:
            turn.complete("by the court")

        @deadline(3600.0)
        def too_slow(self, turn: Turn) -> None:
            turn.compensate("too slow")

    return claims, ClaimSaga
