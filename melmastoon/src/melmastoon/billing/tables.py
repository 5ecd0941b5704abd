"""What billing remembers beside its folios."""

from __future__ import annotations

from melmastoon.facts.billing import billing
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    # Whoever works on the folio of a booking holds its row. `wanted`: the check-out attempt that wants an invoice.
    """
CREATE TABLE IF NOT EXISTS accounts (
    tenant TEXT NOT NULL, booking_id TEXT NOT NULL, currency TEXT NOT NULL, confirmed INTEGER NOT NULL DEFAULT 0,
    cash INTEGER NOT NULL DEFAULT 0, wanted INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (tenant, booking_id)
)""",
    # Money that was moved, one row each; what was given back is negative. Rows are added, never changed.
    """
CREATE TABLE IF NOT EXISTS receipts (
    tenant TEXT NOT NULL, receipt_id TEXT NOT NULL, booking_id TEXT NOT NULL, amount_cents INTEGER NOT NULL,
    PRIMARY KEY (tenant, receipt_id)
)""",
    "CREATE INDEX IF NOT EXISTS receipts_of_booking ON receipts (tenant, booking_id)",
    # Differences of changes of dates. waiting: the booking is not known yet; asked: its money is on its way.
    """
CREATE TABLE IF NOT EXISTS deltas (
    tenant TEXT NOT NULL, change_id TEXT NOT NULL, booking_id TEXT NOT NULL, delta_cents INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'asked', 'settled', 'too_late')), PRIMARY KEY (tenant, change_id)
)""",
    "CREATE INDEX IF NOT EXISTS deltas_of_booking ON deltas (tenant, booking_id)",
    """
CREATE TABLE IF NOT EXISTS invoices (
    tenant TEXT NOT NULL, invoice_id TEXT NOT NULL, booking_id TEXT NOT NULL, number INTEGER NOT NULL, attempt INTEGER NOT NULL,
    charged_cents INTEGER NOT NULL, balance_cents INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('issued', 'paid', 'voided')), PRIMARY KEY (tenant, invoice_id), UNIQUE (tenant, number)
)""",
    "CREATE TABLE IF NOT EXISTS invoice_numbers (tenant TEXT NOT NULL PRIMARY KEY, last INTEGER NOT NULL)",
)


@billing.setup
async def create(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)
