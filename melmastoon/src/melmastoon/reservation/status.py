"""The life of a booking as one table: what may follow what. Everything else is refused, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from posthouse import Reject

Status = Literal[
    "held",
    "confirmed",
    "confirmed_cash_pending",
    "dates_changing",
    "check_in_started",
    "check_in_partial",
    "checked_in",
    "check_out_started",
    "checked_out_balance_pending",
    "checked_out",
    "cancelled",
    "no_show",
]

NEXT: Mapping[Status, tuple[Status, ...]] = {
    "held": ("confirmed", "confirmed_cash_pending", "cancelled"),
    "confirmed_cash_pending": ("confirmed", "dates_changing", "cancelled", "no_show"),
    "confirmed": ("dates_changing", "check_in_started", "cancelled", "no_show"),
    "dates_changing": ("confirmed", "confirmed_cash_pending", "checked_in"),
    "check_in_started": ("checked_in", "check_in_partial", "confirmed"),
    "check_in_partial": ("checked_in", "check_in_started", "confirmed"),
    "checked_in": ("dates_changing", "check_out_started"),
    "check_out_started": ("checked_out", "checked_out_balance_pending", "checked_in"),
    "checked_out_balance_pending": ("checked_out", "check_out_started"),
    "checked_out": (),
    "cancelled": (),
    "no_show": (),
}
"""What a booking may become. The ways back: a change of dates is settled, a check-in or a check-out was called off."""

OVER: frozenset[Status] = frozenset(status for status, following in NEXT.items() if not following)
"""Nothing follows."""


def check(booking_id: str, before: Status, after: Status) -> None:
    """Raises Reject, saying what the booking is and what it could become."""
    following = NEXT[before]
    if after in following:
        return
    possible = f"it can become {' or '.join(following)}" if following else "nothing follows that"
    raise Reject(f"booking {booking_id} cannot become {after}: it is {before}, and {possible}")
