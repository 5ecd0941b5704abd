"""What a revenue manager asks for."""

from __future__ import annotations

from datetime import date

from melmastoon.facts.house import CURRENCY
from melmastoon.facts.pricing import CalendarUpdated, RatePlanArchived, RatePlanPublished
from melmastoon.tables import run
from posthouse import Reject, Tx

PUBLISH = """
INSERT INTO rate_plans (tenant, rate_plan_id, property_id, room_type, night_cents, currency) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING"""
ARCHIVE = """
UPDATE rate_plans SET archived = 1 WHERE tenant = ? AND rate_plan_id = ? AND archived = 0 RETURNING property_id"""
# The price of one night; the same price again is no change.
PRICE = """
INSERT INTO calendar (tenant, property_id, room_type, night, night_cents) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (tenant, property_id, room_type, night)
DO UPDATE SET night_cents = excluded.night_cents, revision = calendar.revision + 1
WHERE calendar.night_cents <> excluded.night_cents RETURNING revision"""


async def publish_rate_plan(
    tx: Tx, rate_plan_id: str, *, property_id: str, room_type: str, night_cents: int, currency: str = CURRENCY
) -> bool:
    """Put a price per night up for sale. A plan is never changed: publish another. False: it was there already."""
    _check(night_cents)
    done = await run(tx, PUBLISH, tx.tenant, rate_plan_id, property_id, room_type, night_cents, currency)
    if done.rowcount == 0:
        return False
    plan = RatePlanPublished(
        rate_plan_id=rate_plan_id,
        property_id=property_id,
        room_type=room_type,
        night_cents=night_cents,
        currency=currency,
    )
    tx.publish(plan, idempotency_key=f"pricing:rate_plan:publish:{rate_plan_id}")
    return True


async def archive_rate_plan(tx: Tx, rate_plan_id: str) -> bool:
    """Take a price off the market. False: it was not there."""
    archived = await run(tx, ARCHIVE, tx.tenant, rate_plan_id)
    if not archived:
        return False
    gone = RatePlanArchived(rate_plan_id=rate_plan_id, property_id=str(archived.scalar()))
    tx.publish(gone, idempotency_key=f"pricing:rate_plan:archive:{rate_plan_id}")
    return True


async def set_night_price(
    tx: Tx, *, property_id: str, room_type: str, night: date, night_cents: int, currency: str = CURRENCY
) -> bool:
    """The best available rate of one night, whatever the plans say. False: it was that already."""
    _check(night_cents)
    changed = await run(tx, PRICE, tx.tenant, property_id, room_type, night.isoformat(), night_cents)
    if not changed:
        return False
    update = CalendarUpdated(
        property_id=property_id, room_type=room_type, night=night, night_cents=night_cents, currency=currency
    )
    key = f"pricing:calendar:{property_id}:{room_type}:{night.isoformat()}:{changed.scalar()}"
    tx.publish(update, idempotency_key=key)
    return True


def _check(night_cents: int) -> None:
    if night_cents < 0:
        raise Reject(f"a night cannot cost {night_cents} cents: give 0 or more")
