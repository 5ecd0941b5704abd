"""payment-gateway-service: money that was moved, or was not."""

from __future__ import annotations

from melmastoon.facts.house import Purpose, Rail, service
from posthouse import Payload

payment = service("payment", owner="payments")


@payment.event("intent.created.v1", key="booking_id", retention="cold", idempotency="required")
class IntentCreated(Payload):
    """Money is to be taken. `reference` says for what: the booking, the change of dates, the invoice."""

    booking_id: str
    intent_id: str
    purpose: Purpose
    reference: str
    rail: Rail
    amount_cents: int
    currency: str


@payment.event("intent.captured.v1", key="booking_id", retention="cold", idempotency="required")
class IntentCaptured(Payload):
    """Money was taken; with the rail `cash_pending` it was promised, and comes on arrival."""

    booking_id: str
    intent_id: str
    purpose: Purpose
    reference: str
    rail: Rail
    amount_cents: int
    currency: str


@payment.event("intent.failed.v1", key="booking_id", retention="cold", idempotency="required")
class IntentFailed(Payload):
    """Money could not be taken, or could not be given back (`refund`)."""

    booking_id: str
    intent_id: str
    purpose: Purpose
    reference: str
    amount_cents: int
    currency: str
    reason: str
    refund: bool = False


@payment.event("intent.refunded.v1", key="booking_id", retention="cold", idempotency="required")
class IntentRefunded(Payload):
    """Money was given back."""

    booking_id: str
    intent_id: str
    refund_id: str
    amount_cents: int
    currency: str


@payment.event("cash.reconciled.v1", key="booking_id", retention="cold", idempotency="required")
class CashReconciled(Payload):
    """The promised cash was counted at the front desk."""

    booking_id: str
    intent_id: str
    amount_cents: int
    currency: str
    staff_id: str
    purpose: Purpose = "stay"
