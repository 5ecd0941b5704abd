"""pricing-service: what a night costs.

Read `rates` for how a price is found, `quotes` for what the booking funnel is offered, `deltas` for what a change of dates
costs, `commands` for what a revenue manager asks for."""

from melmastoon.facts.pricing import pricing
from melmastoon.pricing import commands, deltas, quotes, rates, tables

__all__ = ["commands", "deltas", "pricing", "quotes", "rates", "tables"]
