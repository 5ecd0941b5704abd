"""The services that are measured, on PostgreSQL: `orders` publishes, `billing` writes one row for each event."""

from __future__ import annotations

import asyncpg

from benchmarks.shop import Done, OrderPlaced
from posthouse import App, Event, Policy, Service, Settings, Tx
from posthouse.broker import Broker
from posthouse.sending import RelaySettings
from posthouse.store import Store

CREATE = """
CREATE TABLE IF NOT EXISTS placed (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id text NOT NULL, total bigint NOT NULL)
"""
BUSINESS = "INSERT INTO placed (order_id, total) VALUES ($1, $2)"

# One statement for many rows, as a handler that takes a list would write it.
BUSINESS_MANY = "INSERT INTO placed (order_id, total) SELECT * FROM unnest($1::text[], $2::bigint[])"


def orders_on(store: str | Store, broker: str | Broker, *, relay: RelaySettings | None = None) -> Service:
    """The producer."""
    orders = Service("orders", namespace="shop")
    App(orders, store=store, broker=broker, settings=Settings(relay=relay or RelaySettings()))
    orders.event("order.placed.v1", key="order_id")(OrderPlaced)
    return orders


def billing_on(store: str | Store, broker: str | Broker, kind: str, done: Done) -> Service:
    """The consumer; `kind` is a name in KINDS."""
    billing = Service("billing", namespace="shop")
    App(billing, store=store, broker=broker)
    billing.external("shop.orders.order.placed.v1", key="order_id")(OrderPlaced)
    KINDS[kind](billing, done)
    return billing


def _single(billing: Service, done: Done) -> None:
    _each(billing, done, Policy())


def _grouped(billing: Service, done: Done) -> None:
    _each(billing, done, Policy(grouped=True))


def _each(billing: Service, done: Done, policy: Policy) -> None:
    @billing.on(OrderPlaced, policy=policy)
    async def write(event: Event[OrderPlaced], tx: Tx) -> None:
        await tx.execute(BUSINESS, (event.data.order_id, event.data.total_cents))
        done()


def _list(billing: Service, done: Done) -> None:
    @billing.on(OrderPlaced)
    async def write(events: list[Event[OrderPlaced]], connection: asyncpg.Connection) -> None:
        names = [event.data.order_id for event in events]
        await connection.execute(BUSINESS_MANY, names, [event.data.total_cents for event in events])
        done(len(events))


KINDS = {"single": _single, "grouped": _grouped, "list": _list}
