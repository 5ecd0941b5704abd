"""A loan that has its borrower checked by a saga of its own, and hears of its end by facts."""

import asyncio

from posthouse import Event, Payload, Saga, Service, Turn, app_of, on, starts, step, undo
from posthouse.testing import Harness

lending = Service("lending", namespace="bank")


@lending.event("check.answered.v1", key="loan_id")
class CheckAnswered(Payload):
    check_id: str
    loan_id: str
    score: int


@lending.event("check.passed.v1", key="loan_id")
class CheckPassed(Payload):
    loan_id: str


@lending.event("check.given_up.v1", key="loan_id")
class CheckGivenUp(Payload):
    loan_id: str
    reason: str


@lending.saga("check", correlate="check_id")
class CheckSaga(Saga):
    """Ask about a borrower. Whoever began it is told of either end."""

    check_id: str
    loan_id: str

    @starts
    def asked(self, turn: Turn) -> None: ...

    @undo(asked)
    def given_up(self, turn: Turn) -> None:
        turn.publish(CheckGivenUp(loan_id=self.loan_id, reason=turn.reason))

    @step(CheckAnswered)
    def answered(self, event: Event[CheckAnswered], turn: Turn) -> None:
        if event.data.score < 500:
            turn.compensate(f"the score is {event.data.score}")
        else:
            turn.publish(CheckPassed(loan_id=self.loan_id))
            turn.complete()


@lending.saga("loan", correlate="loan_id")
class LoanSaga(Saga):
    """Lend, when the check has passed."""

    loan_id: str

    @starts
    async def requested(self, turn: Turn) -> None:
        await lending.start_saga(turn.tx, CheckSaga(check_id=f"check-{self.loan_id}", loan_id=self.loan_id))

    @step(CheckPassed)
    def lent(self, event: Event[CheckPassed], turn: Turn) -> None:
        turn.complete()

    @on(CheckGivenUp)
    def refused(self, event: Event[CheckGivenUp], turn: Turn) -> None:
        turn.compensate(event.data.reason)


async def main() -> None:
    async with Harness(lending) as harness:
        for loan_id, score in (("l1", 700), ("l2", 300)):
            async with lending.transaction("t1") as tx:
                await lending.start_saga(tx, LoanSaga(loan_id=loan_id))
            await harness.publish(CheckAnswered(check_id=f"check-{loan_id}", loan_id=loan_id, score=score), tenant="t1")
        await harness.settled()
        async for row in app_of(lending).sagas.find():
            why = f": {row.reason}" if row.reason else ""
            print(f"{row.saga} {row.id} of {row.parent or 'nobody'} is {row.status}{why}")


if __name__ == "__main__":
    asyncio.run(main())
