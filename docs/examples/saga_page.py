"""The page "my loans": a table of the application and where each process stands, in one query."""

import asyncio
import json

from approvals import LoanAssessed, LoanSaga, loans

from posthouse import Tx
from posthouse.testing import Harness

MY_LOANS = """
SELECT l.purpose, v.status, v.tasks
FROM loan l LEFT JOIN posthouse_saga_view v
    ON v.saga = 'loan' AND v.tenant = l.tenant AND v.id = l.loan_id AND v.newest
WHERE l.tenant = :tenant AND l.customer_id = :customer_id ORDER BY l.loan_id
"""


@loans.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS loan (loan_id TEXT, tenant TEXT, customer_id TEXT, purpose TEXT)")


async def ask(loan_id: str, customer_id: str, purpose: str) -> None:
    async with loans.transaction("t1") as tx:
        loan = {"loan_id": loan_id, "customer_id": customer_id, "purpose": purpose}
        await tx.execute("INSERT INTO loan VALUES (:loan_id, 't1', :customer_id, :purpose)", loan)
        await loans.start_saga(tx, LoanSaga(loan_id=loan_id, customer_id=customer_id))


async def show(customer_id: str) -> None:
    async with loans.transaction("t1") as tx:
        for purpose, status, tasks in await tx.execute(MY_LOANS, {"tenant": "t1", "customer_id": customer_id}):
            print(f"{purpose}: {status}, next {', '.join(json.loads(str(tasks)))}")


async def main() -> None:
    async with Harness(loans) as harness:
        await ask("l1", "ann", "a bicycle")
        await ask("l2", "ann", "a roof")
        await ask("l3", "bob", "a boat")
        await harness.publish(LoanAssessed(loan_id="l2"))
        await harness.settled()
        await show("ann")


if __name__ == "__main__":
    asyncio.run(main())
