"""The services under load: `orders` commits a row with an event, `billing` a row for each event. Each has a database of its own, and
the rows' commit times are kept by the server: from them is known when each event was committed and when it was applied."""

from __future__ import annotations

import asyncio

import msgspec

from benchmarks.shop import OrderPlaced
from posthouse import App, Event, Service, Settings, Tx

TENANT = "t1"
KEYS = 1_000

CREATE = "CREATE TABLE noted (number bigint NOT NULL)"
NOTE = "INSERT INTO noted (number) VALUES ($1)"
COMMITS = """
SELECT number, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 AS at FROM noted WHERE number >= $1 ORDER BY number
"""
COUNT = "SELECT count(*) FROM noted"


class Place(msgspec.Struct, frozen=True):
    """Where everything is, and how much a consumer holds at once."""

    orders: str
    billing: str
    broker: str
    in_flight: int


class Pace:
    """How fast the handlers may be: so many events per second in this process, or as fast as they can."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._turn = asyncio.Lock()

    async def keep(self) -> None:
        if self.rate is not None:
            async with self._turn:
                await asyncio.sleep(self._pause)

    @property
    def _pause(self) -> float:
        return 0.0 if self.rate is None else 1 / self.rate  # it may have changed while others had their turn


def orders_at(place: Place) -> Service:
    """The producer."""
    orders = Service("orders", namespace="shop")
    App(orders, store=f"{place.orders}?writers=16", broker=place.broker)
    orders.event("order.placed.v1", key="order_id")(OrderPlaced)
    return orders


def billing_at(place: Place, pace: Pace) -> Service:
    """The consumer, with the policy that everybody has who says none."""
    billing = Service("billing", namespace="shop")
    App(billing, store=place.billing, broker=place.broker, settings=Settings(in_flight=place.in_flight))
    billing.external("shop.orders.order.placed.v1", key="order_id")(OrderPlaced)

    @billing.on(OrderPlaced)
    async def bill(event: Event[OrderPlaced], tx: Tx) -> None:
        await pace.keep()
        await tx.execute(NOTE, (event.data.total_cents,))

    return billing
