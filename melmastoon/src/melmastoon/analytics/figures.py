"""Figures: what a fact adds to its day. A pure function, and the only place that knows."""

from __future__ import annotations

from melmastoon.facts.inventory import OversellBlocked
from melmastoon.facts.payment import CashReconciled, IntentCaptured, IntentRefunded
from melmastoon.facts.reservation import (
    BookingCancelled,
    BookingConfirmed,
    BookingHeld,
    CheckedIn,
    CheckedOut,
    NoShow,
)

Counted = (
    BookingHeld
    | BookingConfirmed
    | BookingCancelled
    | CheckedIn
    | CheckedOut
    | NoShow
    | OversellBlocked
    | IntentCaptured
    | IntentRefunded
    | CashReconciled
)


def added_by(fact: Counted) -> tuple[str, int]:
    """The figure that a fact adds to, and how much. Cash that was promised counts once it was counted at the desk."""
    match fact:
        case BookingHeld():
            return "held", 1
        case BookingConfirmed():
            return "confirmed", 1
        case BookingCancelled():
            return "cancelled", 1
        case CheckedIn():
            return "checked_in", 1
        case CheckedOut():
            return "checked_out", 1
        case NoShow():
            return "no_shows", 1
        case OversellBlocked():
            return "oversells_blocked", 1
        case IntentCaptured(rail="cash_pending"):
            return "captured_cents", 0
        case IntentCaptured(amount_cents=cents) | CashReconciled(amount_cents=cents):
            return "captured_cents", cents
        case IntentRefunded(amount_cents=cents):
            return "refunded_cents", cents
