"""A claim that a bank pays out, in a process that dies around the call: `python -m tests.faults.saga_calling_member WHERE`.

WHERE it dies: `asked` before the bank hears of it, `heard` after the bank has paid, `answered` in the turn with the answer;
`nowhere` to go on. `called off` goes on after an operator has cancelled the claim.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from posthouse import Event, Payload, Policy, Saga, Service, Turn, Tx, starts, step, undo
from posthouse.app import app_of
from posthouse.errors import DeskError
from posthouse.store.sagas import SagaFilter

claims = Service("claims")
BANK = Path("bank.txt")
WHERE = sys.argv[1] if len(sys.argv) > 1 else "nowhere"


@claims.event("claim.approved.v1", key="claim_id")
class ClaimApproved(Payload):
    claim_id: str


@claims.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS book (what TEXT)")


def die(where: str) -> None:
    if where == WHERE:
        os.kill(os.getpid(), signal.SIGKILL)


def pay(event: Event[ClaimApproved]) -> str:
    """The bank writes down what it is asked for, and by which key."""
    die("asked")
    with BANK.open("a") as book:
        book.write(f"{event.id}\n")
    die("heard")
    return "r1"


@claims.saga("claim", correlate="claim_id", policy=Policy(first_delay=0.1, last_delay=0.2))
class ClaimSaga(Saga):
    claim_id: str

    @starts
    def register(self, turn: Turn) -> None:
        turn.publish(ClaimApproved(claim_id=self.claim_id))

    @step(ClaimApproved, calling=pay)
    async def paid(self, event: Event[ClaimApproved], turn: Turn, receipt: str) -> None:
        await turn.execute("INSERT INTO book VALUES (?)", (f"paid {receipt}",))
        die("answered")
        turn.complete()

    @undo(paid)
    async def recall(self, event: Event[ClaimApproved], turn: Turn, receipt: str) -> None:
        await turn.execute("INSERT INTO book VALUES (?)", (f"recalled {receipt}",))


async def main() -> None:
    async with claims.running():
        async with claims.transaction("t1") as tx:
            await claims.start_saga(tx, ClaimSaga(claim_id="c1"))
        if WHERE == "called off":
            try:
                await app_of(claims).sagas.cancel("claim", "c1", "fraud", tenant="t1")
            except DeskError:
                print("it was over already")
        for _ in range(1200):
            if [row async for row in app_of(claims).sagas.find(SagaFilter(saga="claim")) if row.ended]:
                return
            await asyncio.sleep(0.05)
        raise SystemExit("the claim did not end")


if __name__ == "__main__":
    asyncio.run(main())
