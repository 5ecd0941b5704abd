"""A folio is the sum of its lines. What may happen to one, and what it becomes: pure functions, without any table."""

from __future__ import annotations

import msgspec

from melmastoon.facts.billing import ChargeKind, ChargePosted, FolioClosed, FolioOpened, RefundPosted
from posthouse import Reject

FolioFact = FolioOpened | ChargePosted | RefundPosted | FolioClosed


class Folio(msgspec.Struct, frozen=True, kw_only=True):
    """The account of one booking. Lines may be posted before it is opened at check-in: the stay is paid for at booking."""

    opened: bool = False
    closed: bool = False
    charged_cents: int = 0
    refunded_cents: int = 0
    stay_posted: bool = False
    lines: frozenset[str] = frozenset()

    @property
    def cost_cents(self) -> int:
        """What the stay costs the guest by now."""
        return self.charged_cents - self.refunded_cents


def evolve(folio: Folio, fact: FolioFact) -> Folio:
    """What a folio becomes by a fact."""
    match fact:
        case FolioOpened():
            return msgspec.structs.replace(folio, opened=True)
        case FolioClosed():
            return msgspec.structs.replace(folio, closed=True)
        case ChargePosted():
            return msgspec.structs.replace(
                folio,
                charged_cents=folio.charged_cents + fact.amount_cents,
                stay_posted=folio.stay_posted or fact.kind == "stay",
                lines=folio.lines | {fact.line_id},
            )
        case RefundPosted():
            return msgspec.structs.replace(
                folio,
                refunded_cents=folio.refunded_cents + fact.amount_cents,
                lines=folio.lines | {fact.line_id},
            )


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Whose folio it is."""

    booking_id: str
    currency: str

    @property
    def folio_id(self) -> str:
        return f"fol-{self.booking_id}"


def open_for(folio: Folio, account: Account) -> FolioOpened:
    """Open it at check-in. One that is open is said to be: a check-in that begins again waits for it."""
    return FolioOpened(folio_id=account.folio_id, booking_id=account.booking_id, currency=account.currency)


def charge(
    folio: Folio, account: Account, line_id: str, kind: ChargeKind, amount_cents: int, change_id: str = ""
) -> ChargePosted | None:
    """Post a charge; the same line twice is the same line. Raises Reject for a folio that is closed."""
    if line_id in folio.lines:
        return None
    if folio.closed:
        raise Reject(f"folio {account.folio_id} is closed: no line is added to it")
    if amount_cents < (0 if kind == "stay" else 1):
        raise Reject(f"a charge of {amount_cents} cents is none: give more than 0, or a refund")
    return ChargePosted(
        folio_id=account.folio_id,
        booking_id=account.booking_id,
        line_id=line_id,
        kind=kind,
        amount_cents=amount_cents,
        currency=account.currency,
        change_id=change_id,
    )


def extra(folio: Folio, account: Account, line_id: str, amount_cents: int) -> ChargePosted | None:
    """Post what a guest takes during the stay. Raises Reject before check-in and after the folio was closed."""
    if not folio.opened and line_id not in folio.lines:
        raise Reject(f"folio {account.folio_id} is not open: a guest has extras after check-in")
    return charge(folio, account, line_id, "extra", amount_cents)


def refund(folio: Folio, account: Account, line_id: str, amount_cents: int) -> RefundPosted | None:
    """Post money that was paid back, once. On a closed folio too: what was moved is never hidden."""
    if line_id in folio.lines:
        return None
    return RefundPosted(
        folio_id=account.folio_id,
        booking_id=account.booking_id,
        line_id=line_id,
        amount_cents=amount_cents,
        currency=account.currency,
    )


def close(folio: Folio, account: Account) -> FolioClosed:
    """Close it, once everything is settled. One that is closed is said to be: a check-out that begins again waits for it."""
    return FolioClosed(
        folio_id=account.folio_id,
        booking_id=account.booking_id,
        charged_cents=folio.cost_cents,
        currency=account.currency,
    )
