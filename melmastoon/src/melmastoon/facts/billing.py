"""billing-service: what a guest owes, line by line. Lines are added, never changed."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

billing = service("billing", owner="finance")

ChargeKind = Literal["stay", "delta", "extra"]


@billing.event("folio.opened.v1", key="folio_id", retention="cold", idempotency="required")
class FolioOpened(Payload):
    """The guest's account is open for the stay."""

    folio_id: str
    booking_id: str
    currency: str


@billing.event("folio.charge_posted.v1", key="folio_id", retention="cold", idempotency="required")
class ChargePosted(Payload):
    """The guest owes this much more."""

    folio_id: str
    booking_id: str
    line_id: str
    kind: ChargeKind
    amount_cents: int
    currency: str
    change_id: str = ""


@billing.event("folio.refund_posted.v1", key="folio_id", retention="cold", idempotency="required")
class RefundPosted(Payload):
    """The guest owes this much less, because it was paid back."""

    folio_id: str
    booking_id: str
    line_id: str
    amount_cents: int
    currency: str


@billing.event("folio.closed.v1", key="folio_id", retention="cold", idempotency="required")
class FolioClosed(Payload):
    """Everything is settled; no line is added from here on."""

    folio_id: str
    booking_id: str
    charged_cents: int
    currency: str


@billing.event("invoice.issued.v1", key="invoice_id", retention="cold", idempotency="required")
class InvoiceIssued(Payload):
    """What the stay cost, and what is still open. `number` counts a tenant's invoices, without a gap."""

    invoice_id: str
    folio_id: str
    booking_id: str
    charged_cents: int
    balance_cents: int
    currency: str
    number: int = 0


@billing.event("invoice.voided.v1", key="invoice_id", retention="cold", idempotency="required")
class InvoiceVoided(Payload):
    """The invoice does not stand; the folio stays open."""

    invoice_id: str
    folio_id: str
    booking_id: str
    reason: str
