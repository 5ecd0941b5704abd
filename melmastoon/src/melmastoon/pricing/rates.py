"""What a night costs: the calendar's price for it, or that of the cheapest plan. All amounts are whole cents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from melmastoon.tables import run
from posthouse import Tx

# The best available rate of a room type.
PLAN = """
SELECT MIN(night_cents) FROM rate_plans WHERE tenant = ? AND property_id = ? AND room_type = ? AND archived = 0"""
CALENDAR = """
SELECT night, night_cents FROM calendar WHERE tenant = ? AND property_id = ? AND room_type = ? AND night >= ? AND night < ?"""


def nights(check_in: date, check_out: date) -> list[str]:
    """The nights of a window, as they are stored."""
    return [(check_in + timedelta(days=day)).isoformat() for day in range((check_out - check_in).days)]


def spread(amount_cents: int, window: Sequence[str]) -> dict[str, int]:
    """An amount over nights, without losing a cent: the first nights take what does not divide."""
    if not window:
        return {}
    each, left = divmod(amount_cents, len(window))
    return {night: each + (1 if number < left else 0) for number, night in enumerate(window)}


def delta(booked: Mapping[str, int], wanted: Sequence[str], prices: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """What a change costs, and the price of every night afterwards. Nights that stay keep the price that was agreed; a new
    one without a price costs what the dearest of them did."""
    usual = max(booked.values(), default=0)
    after = {night: booked.get(night, prices.get(night, usual)) for night in wanted}
    return sum(after.values()) - sum(booked.values()), after


async def prices(tx: Tx, property_id: str, room_type: str, window: Sequence[str]) -> dict[str, int]:
    """Prices of these nights; those that cannot be bought are not in it."""
    if not window:
        return {}
    kind = (tx.tenant, property_id, room_type)
    after_last = (date.fromisoformat(window[-1]) + timedelta(days=1)).isoformat()
    plan = (await run(tx, PLAN, *kind)).scalar()
    found = {} if plan is None else dict.fromkeys(window, int(str(plan)))
    for night, cents in await run(tx, CALENDAR, *kind, window[0], after_last):
        found[str(night)] = int(str(cents))
    return found
