"""What billing remembers of a booking beside its folio: its terms, and what was paid."""

from __future__ import annotations

import msgspec

from melmastoon.billing.folio import Account
from melmastoon.billing.folios import folios
from melmastoon.facts.house import CURRENCY
from melmastoon.tables import run
from posthouse import Tx

KNOW = "INSERT INTO accounts (tenant, booking_id, currency) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
HOLD = """
SELECT booking_id, currency, confirmed, cash, wanted FROM accounts WHERE tenant = ? AND booking_id = ? FOR UPDATE"""
RECEIPT = """
INSERT INTO receipts (tenant, receipt_id, booking_id, amount_cents) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"""
PAID = "SELECT COALESCE(SUM(amount_cents), 0) FROM receipts WHERE tenant = ? AND booking_id = ?"


class Terms(Account, frozen=True, kw_only=True):
    """What is known of a booking. `wanted` is the check-out attempt that wants an invoice, 0 before check-out."""

    confirmed: bool
    cash: bool
    wanted: int


async def account(tx: Tx, booking_id: str, currency: str = CURRENCY) -> Terms:
    """The account of a booking, held until the transaction ends; made when nothing was heard of it before."""
    await run(tx, KNOW, tx.tenant, booking_id, currency)
    row = (await run(tx, HOLD, tx.tenant, booking_id)).one()
    names = ("booking_id", "currency", "confirmed", "cash", "wanted")
    return msgspec.convert(dict(zip(names, row, strict=True)), Terms, strict=False)


async def note_receipt(tx: Tx, receipt_id: str, booking_id: str, amount_cents: int) -> None:
    """Money was moved; what was given back is negative. The same receipt twice is the same money."""
    await run(tx, RECEIPT, tx.tenant, receipt_id, booking_id, amount_cents)


async def paid(tx: Tx, booking_id: str) -> int:
    """What was paid for a booking by now, in cents, less what was given back."""
    return int(str((await run(tx, PAID, tx.tenant, booking_id)).scalar()))


async def balance(tx: Tx, booking_id: str) -> int:
    """What is open on the folio of a booking, in cents; below 0 when too much was paid."""
    loaded = await folios.load(tx, Account(booking_id=booking_id, currency="").folio_id)
    return loaded.state.cost_cents - await paid(tx, booking_id)
