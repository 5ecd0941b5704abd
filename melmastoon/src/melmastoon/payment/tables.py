"""The tables of payment. Amounts of intents and refunds are never changed once money was moved."""

from __future__ import annotations

from melmastoon.facts.payment import payment
from melmastoon.tables import run
from posthouse import Tx

TABLES = (
    # Who pays for a booking, and how. Whoever works on the money of a booking holds its row.
    """
CREATE TABLE IF NOT EXISTS payers (
    tenant TEXT NOT NULL, booking_id TEXT NOT NULL, rail TEXT NOT NULL DEFAULT '', amount_cents INTEGER NOT NULL DEFAULT 0,
    currency TEXT NOT NULL DEFAULT '', committed INTEGER NOT NULL DEFAULT 0, cancelled INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, booking_id)
)""",
    # promised: cash that comes to the desk; counted: it came. dropped: nobody wants it any more.
    """
CREATE TABLE IF NOT EXISTS intents (
    tenant TEXT NOT NULL, intent_id TEXT NOT NULL, booking_id TEXT NOT NULL, purpose TEXT NOT NULL, reference TEXT NOT NULL,
    rail TEXT NOT NULL, amount_cents INTEGER NOT NULL, currency TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('created', 'captured', 'failed', 'promised', 'counted', 'dropped')),
    PRIMARY KEY (tenant, intent_id)
)""",
    "CREATE INDEX IF NOT EXISTS intents_of_booking ON intents (tenant, booking_id)",
    # Rows are added, and end as done; `tries` counts the times that finance asked for it.
    """
CREATE TABLE IF NOT EXISTS refunds (
    tenant TEXT NOT NULL, refund_id TEXT NOT NULL, intent_id TEXT NOT NULL, booking_id TEXT NOT NULL,
    amount_cents INTEGER NOT NULL, currency TEXT NOT NULL, tries INTEGER NOT NULL DEFAULT 1,
    state TEXT NOT NULL CHECK (state IN ('due', 'done', 'failed')), PRIMARY KEY (tenant, refund_id)
)""",
    "CREATE INDEX IF NOT EXISTS refunds_of_booking ON refunds (tenant, booking_id)",
    # What was decided about refunds, so that it is decided once: a cancellation, a change of dates.
    "CREATE TABLE IF NOT EXISTS refund_decisions (tenant TEXT NOT NULL, cause TEXT NOT NULL, PRIMARY KEY (tenant, cause))",
    # Refunds that the vendor did not make.
    """
CREATE TABLE IF NOT EXISTS finance_queue (
    tenant TEXT NOT NULL, refund_id TEXT NOT NULL, booking_id TEXT NOT NULL, amount_cents INTEGER NOT NULL,
    reason TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'open', PRIMARY KEY (tenant, refund_id)
)""",
)


@payment.setup
async def create(tx: Tx) -> None:
    for table in TABLES:
        await run(tx, table)
