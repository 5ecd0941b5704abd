"""Money adds up.

Known from three sides, for every booking: what the vendors' own books say they moved, what was counted at the desk, and the
lines of the folio. What was charged is what was paid, plus what the last invoice says is open; a booking that has no open
invoice owes nothing."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from melmastoon.demo.books import Books
from melmastoon.demo.figures import Money

CAPTURED = "SELECT tenant, booking_id, amount_cents FROM charges WHERE state = 'captured'"
REFUNDED = "SELECT tenant, booking_id, amount_cents FROM refunds WHERE state = 'refunded'"

Whose = tuple[str, str]
"""Tenant and booking."""


class Account(msgspec.Struct):
    """The money of one booking, in cents."""

    captured: int = 0
    refunded: int = 0
    cash: int = 0
    charged: int = 0
    credited: int = 0
    open: int = 0

    @property
    def difference(self) -> int:
        """0 when it adds up."""
        return (self.charged - self.credited) - (self.captured - self.refunded + self.cash + self.open)


def accounts(books: Books, vendors: Path) -> Mapping[Whose, Account]:
    """One for every booking that money has to do with."""
    found: dict[Whose, Account] = defaultdict(Account)
    with closing(sqlite3.connect(f"file:{vendors}?mode=ro", uri=True)) as connection:
        for tenant, booking, cents in connection.execute(CAPTURED):
            found[tenant, booking].captured += cents
        for tenant, booking, cents in connection.execute(REFUNDED):
            found[tenant, booking].refunded += cents
    _count_cash(books, found)
    for fact in books.of("billing.folio.charge_posted.v1"):
        found[fact.tenant, fact.data["booking_id"]].charged += fact.data["amount_cents"]
    for fact in books.of("billing.folio.refund_posted.v1"):
        found[fact.tenant, fact.data["booking_id"]].credited += fact.data["amount_cents"]
    for whose, cents in _open(books).items():
        found[whose].open = cents
    return found


def _count_cash(books: Books, found: dict[Whose, Account]) -> None:
    """What was counted, less what went back over the counter: refunds of intents that were counted."""
    counted = set()
    for fact in books.of("payment.cash.reconciled.v1"):
        counted.add((fact.tenant, fact.data["intent_id"]))
        found[fact.tenant, fact.data["booking_id"]].cash += fact.data["amount_cents"]
    for fact in books.of("payment.intent.refunded.v1"):
        if (fact.tenant, fact.data["intent_id"]) in counted:
            found[fact.tenant, fact.data["booking_id"]].cash -= fact.data["amount_cents"]


def _open(books: Books) -> Mapping[Whose, int]:
    """What the last invoice of a booking says is owed, while its folio was not closed after it. Before any invoice: the
    difference of a change of dates that could not be taken."""
    owed: dict[Whose, int] = defaultdict(int)
    for fact in books.of("payment.intent.failed.v1"):
        if fact.data["purpose"] == "delta" and not fact.data.get("refund"):
            owed[fact.tenant, fact.data["booking_id"]] += fact.data["amount_cents"]
    for fact in books.facts:
        if fact.service != "billing":
            continue
        whose = (fact.tenant, str(fact.data.get("booking_id", "")))
        if fact.type.endswith("invoice.issued.v1"):
            owed[whose] = fact.data["balance_cents"]
        elif fact.type.endswith("folio.closed.v1"):
            owed.pop(whose, None)
    return owed


def tenants(accounts: Mapping[Whose, Account]) -> Mapping[str, Money]:
    """The sums."""
    found: dict[str, Account] = defaultdict(Account)
    for (tenant, _), account in accounts.items():
        for name in Account.__struct_fields__:
            setattr(found[tenant], name, getattr(found[tenant], name) + getattr(account, name))
    return {tenant: Money(**msgspec.structs.asdict(account)) for tenant, account in sorted(found.items())}


def unbalanced(accounts: Mapping[Whose, Account]) -> Sequence[str]:
    """Every booking whose money does not add up, in words."""
    return [
        f"{booking} of {tenant} is off by {account.difference} cents: {account}"
        for (tenant, booking), account in sorted(accounts.items())
        if account.difference
    ]
