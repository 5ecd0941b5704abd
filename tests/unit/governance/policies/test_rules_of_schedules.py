"""The rules know what a run of a schedule is: a transaction that is open, whose facts are said once."""

from __future__ import annotations

import pytest

from tests.unit.governance.policies.conftest import Find

TEXT = """
import httpx
from posthouse import Run

@orders.event("payout.ordered.v1", key="order_id")
class PayoutOrdered(Payload):
    order_id: str
    amount_cents: int

{decorator}
async def pay_out(run: Run, tx: Tx) -> None:
    {body}
"""
PUBLISH = 'tx.publish(PayoutOrdered(order_id="1", amount_cents=1))'
CALL = 'httpx.get("https://bank.example")'
EVERY = '@orders.every("0 6 * * *")'


@pytest.mark.parametrize(
    ("rule", "body", "as_schedule", "as_function"),
    [("money-without-idempotency-key", PUBLISH, 0, 1), ("network-call-in-handler", CALL, 1, 0)],
)
def test_a_run_is_a_transaction(find: Find, rule: str, body: str, as_schedule: int, as_function: int) -> None:
    assert len(find(rule, TEXT.format(decorator=EVERY, body=body))) == as_schedule
    assert len(find(rule, TEXT.format(decorator="", body=body))) == as_function
