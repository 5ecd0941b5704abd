"""A loan: two people approve it, one after the other. It is found by its customer, and begins again when it was withdrawn."""

import asyncio

from posthouse import Event, Payload, Saga, SagaFilter, Service, Turn, app_of, deadline, on, starts, step
from posthouse.testing import Harness
from posthouse.tracing import trace

loans = Service("loans", namespace="bank")


class About(Payload):
    loan_id: str


@loans.event("loan.requested.v1", key="loan_id")
class LoanRequested(About): ...


@loans.event("loan.assessed.v1", key="loan_id")
class LoanAssessed(About): ...


@loans.event("loan.approved.v1", key="loan_id")
class LoanApproved(About): ...


@loans.event("loan.withdrawn.v1", key="loan_id")
class LoanWithdrawn(About): ...


@loans.event("payout.ordered.v1", key="loan_id")
class PayoutOrdered(About): ...


@loans.saga(
    "loan",
    correlate="loan_id",
    index=("customer_id",),
    again=("compensated", "cancelled"),
    operator="back-office",
)
class LoanSaga(Saga):
    """Somebody looks at it, somebody else approves."""

    loan_id: str
    customer_id: str

    @starts
    def requested(self, turn: Turn) -> None:
        turn.publish(LoanRequested(loan_id=self.loan_id))
        turn.set(self.forgotten)

    @step(LoanAssessed, by="loan-officer")
    def assessed(self, event: Event[LoanAssessed], turn: Turn) -> None: ...

    @step(LoanApproved, after=assessed, by="branch-manager")
    def approved(self, event: Event[LoanApproved], turn: Turn) -> None:
        turn.publish(PayoutOrdered(loan_id=self.loan_id))
        turn.complete()

    @on(LoanWithdrawn)
    def withdrawn(self, event: Event[LoanWithdrawn], turn: Turn) -> None:
        turn.compensate("withdrawn")

    @deadline(14 * 86_400.0)
    def forgotten(self, turn: Turn) -> None:
        turn.partial("nobody decided for two weeks")


async def ask(loan_id: str, customer_id: str, request: str) -> str:
    async with loans.transaction("t1", correlation=request) as tx:
        answer = await loans.start_saga(tx, LoanSaga(loan_id=loan_id, customer_id=customer_id))
        if not answer and answer.outcome == "running":
            return f"{loan_id} is under way, as attempt {answer.attempt}"
        return f"{loan_id}: {answer.outcome}, attempt {answer.attempt}"


async def tasks(role: str) -> list[str]:
    return [f"{task.row.id}: {task.step or 'decide'}" async for task in app_of(loans).sagas.tasks(by=role)]


async def main() -> None:
    async with Harness(loans) as harness:
        print(await ask("l1", "ann", "monday"))
        print(await ask("l1", "ann", "tuesday"))
        await harness.publish(LoanWithdrawn(loan_id="l1"))
        await harness.settled()
        print(await ask("l1", "ann", "friday"))

        async for row in app_of(loans).sagas.find(SagaFilter(where={"customer_id": "ann"})):
            print(f"attempt {row.attempt} of {row.id} is {row.status}")

        print("officers:", await tasks("loan-officer"), "managers:", await tasks("branch-manager"))
        await harness.publish(LoanAssessed(loan_id="l1"))
        await harness.settled()
        print("officers:", await tasks("loan-officer"), "managers:", await tasks("branch-manager"))
        await harness.advance(14 * 86_400.0)
        print("back office:", await tasks("back-office"))

        await harness.publish(LoanApproved(loan_id="l1"), correlation="request of a manager")
        await harness.settled()
        for branch in (await trace([loans], "friday")).branches:
            print("  " * branch.depth + branch.spot.event.type, "of", branch.spot.event.correlation)


if __name__ == "__main__":
    asyncio.run(main())
