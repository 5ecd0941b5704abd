"""pricing-service: what a night costs."""

from __future__ import annotations

from datetime import date

from melmastoon.facts.house import service
from posthouse import Payload

pricing = service("pricing", owner="revenue")


@pricing.event("rate_plan.published.v1", key="rate_plan_id", retention="warm", idempotency="required")
class RatePlanPublished(Payload):
    """A price per night is for sale."""

    rate_plan_id: str
    property_id: str
    room_type: str
    night_cents: int
    currency: str


@pricing.event("rate_plan.archived.v1", key="rate_plan_id", retention="warm", idempotency="required")
class RatePlanArchived(Payload):
    """A price is no longer for sale."""

    rate_plan_id: str
    property_id: str


@pricing.event("calendar.updated.v1", key="property_id", retention="warm", idempotency="required")
class CalendarUpdated(Payload):
    """The best available rate of one night changed."""

    property_id: str
    room_type: str
    night: date
    night_cents: int
    currency: str


@pricing.event("delta.applied.v1", key="booking_id", retention="warm", idempotency="required")
class DeltaApplied(Payload):
    """What a change of dates costs more, or less when negative."""

    booking_id: str
    change_id: str
    delta_cents: int
    currency: str


@pricing.event("quote.expired.v1", key="quote_id", retention="warm", idempotency="required")
class QuoteExpired(Payload):
    """A price that was offered in the booking funnel no longer holds."""

    quote_id: str
    property_id: str
    room_type: str
