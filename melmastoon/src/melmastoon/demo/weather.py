"""What goes wrong at vendors, as the fates of the guests want it. For guests without such a fate vendors just work; for those
who meet moody ones, the seed decides."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from melmastoon.demo.cast import Booking, Fate
from melmastoon.demo.script import DAY, HOURS
from melmastoon.vendors.weather import Mood, Seeded

NEVER = (math.inf, math.inf)

_BOOKING = re.compile(r"bk-\d{4,}")

DECLINED: Mapping[Fate, Sequence[str]] = {
    "payment_declined": (r"int-bk-\d+-stay$",),
    "delta_declined": (r"int-bk-\d+-delta-",),
    "balance_declined": (r"int-bk-\d+-balance-.*-1$",),
    "balance_never_paid": (r"int-bk-\d+-balance-",),
    "refund_fails": (r"ref-cancel-.*:1$",),
}
"""Charges and refunds to which the vendor says no."""

FOREVER = math.inf

CARRIED = ("take",)
"""What the carrier of messages is asked to do."""


def outages(booking: Booking) -> Mapping[str, tuple[float, float]]:
    """Operations of the lock vendor that fail for a booking, from and until: seconds since midnight of the first day."""
    arrival, eve = booking.arrives * DAY, max(booking.booked, booking.arrives - 1) * DAY
    match booking.fate:
        case "key_by_hand" | "check_in_called_off":
            return {"put": (0.0, FOREVER)}
        case "check_in_again":
            return {"put": (0.0, arrival + HOURS["come_back"] * 3600.0 - 1.0)}
        case "key_second_click":
            return {"put": (0.0, arrival + HOURS["click_again"] * 3600.0 - 1.0)}
        case "key_change_fails":
            return {"put": (eve + HOURS["longer"] * 3600.0 - 1.0, eve + HOURS["retry_change"] * 3600.0 - 1.0)}
        case "revoke_by_hand":
            return {"revoke": (0.0, booking.leaves * DAY + HOURS["hold"] * 3600.0)}
        case _:
            return {}


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The weather of the play. `mood` and the others say what the port wants."""

    fates: Mapping[str, Fate]
    """By booking."""
    outages: Mapping[str, Mapping[str, tuple[float, float]]]
    """The same."""
    moody: Seeded
    time: Callable[[], float]
    """Seconds since midnight of the first day."""
    strike: Callable[[], bool]
    """Whether the carrier takes no messages now."""

    @classmethod
    def of(
        cls, cast: Sequence[Booking], seed: int, time: Callable[[], float], strike: Callable[[], bool] = lambda: False
    ) -> Planned:
        return cls(
            fates={booking.id: booking.fate for booking in cast},
            outages={booking.id: outages(booking) for booking in cast},
            moody=Seeded(seed=seed, faults=0.6),
            time=time,
            strike=strike,
        )

    def mood(self, operation: str, id: str, attempt: int) -> Mood:
        if operation in CARRIED and self.strike():
            return "error"
        booking = self._booking(id)
        if self.fates.get(booking) == "vendor_moody":
            return self.moody.mood(operation, id, attempt)
        since, until = self.outages.get(booking, {}).get(operation, NEVER)
        return "error" if since <= self.time() < until else "fine"

    def latency(self, operation: str, id: str, mood: Mood) -> float:
        return self.moody.latency(operation, id, mood) if self.fates.get(self._booking(id)) == "vendor_moody" else 0.0

    def declines(self, operation: str, id: str) -> bool:
        fate = self.fates.get(self._booking(id))
        if fate is None:
            return False
        if operation == "deliver" or fate == "vendor_moody":
            return self.moody.declines(operation, id)
        return any(re.search(pattern, id) for pattern in DECLINED.get(fate, ()))

    def _booking(self, id: str) -> str:
        found = _BOOKING.search(id)
        return "" if found is None else found[0]
