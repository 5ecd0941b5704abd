"""billing-service: what a guest owes, line by line.

Read `folio` for what an account is and what may happen to it (pure functions), `accounts` for what billing remembers beside it,
`money` for what is paid, `stay` for check-in, check-out and extras, `invoices` for how a stay is settled."""

from melmastoon.billing import accounts, folio, folios, invoices, money, stay, tables
from melmastoon.facts.billing import billing

__all__ = ["accounts", "billing", "folio", "folios", "invoices", "money", "stay", "tables"]
