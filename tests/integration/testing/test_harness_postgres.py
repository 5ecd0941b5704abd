"""The harness on PostgreSQL: handlers in every shape, and time as it would pass."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from posthouse import App, Event, Payload, Service
from posthouse.errors import ConfigurationError
from posthouse.testing import Harness
from tests.integration.django_site import django_on
from tests.integration.shaped import KINDS, Kind


class OrderPlaced(Payload):
    order_id: str


class InvoiceIssued(Payload):
    order_id: str


class Shop:
    """A service that reads orders and issues invoices; new for each test."""

    def __init__(self) -> None:
        self.billing = Service("billing", namespace="shop")
        self.placed = self.billing.external("shop.orders.order.placed.v1", key="order_id")(OrderPlaced)
        self.issued = self.billing.event("invoice.issued.v1", key="order_id")(InvoiceIssued)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_handler_of_any_shape_runs_in_a_test(kind: Kind, posthouse_store: str, posthouse_url: str) -> None:
    shop = Shop()

    def plain(event: Any, theirs: Any) -> object:
        kind.run(theirs, f"INSERT INTO invoice (order_id) VALUES ('{event.data.order_id}')")
        return shop.issued(order_id=event.data.order_id)

    async def asynchronous(event: Any, theirs: Any) -> object:
        await kind.run(theirs, f"INSERT INTO invoice (order_id) VALUES ('{event.data.order_id}')")
        return shop.issued(order_id=event.data.order_id)

    handler: Any = plain if kind.plain else asynchronous
    handler.__annotations__ = {"event": Event[shop.placed], "theirs": kind.shape}  # type: ignore[name-defined]
    shop.billing.on(shop.placed)(handler)
    site = django_on(posthouse_url) if kind.shape is BaseDatabaseWrapper else contextlib.nullcontext()
    with site:
        async with Harness(shop.billing, store=posthouse_store) as harness:
            await harness.publish(shop.placed(order_id="o1"))
            await harness.settled()
            assert [event.data.order_id for event in await harness.published(shop.issued)] == ["o1"]
            async with shop.billing.transaction() as tx:
                assert await tx.execute("SELECT id, order_id FROM invoice WHERE order_id = $1", ("o1",)) == [(1, "o1")]


async def test_services_of_apps_that_were_written_alike_share_a_harness(posthouse_store: str) -> None:
    shop, other = Shop(), Service("other", namespace="shop")
    seen: list[str] = []

    async def see(event: Event[OrderPlaced]) -> None:
        seen.append(event.data.order_id)

    other.on(shop.placed)(see)
    for service in (shop.billing, other):
        App(service, store=posthouse_store, broker="nats://nobody.invalid:4222")
    async with Harness(shop.billing, other, store=posthouse_store) as harness:
        await harness.publish(shop.placed(order_id="o1"))
        await harness.settled()
    assert seen == ["o1"]


async def test_services_of_apps_that_tell_their_failures_elsewhere_do_not(posthouse_store: str) -> None:
    shop, other = Shop(), Service("other", namespace="shop")
    App(shop.billing, store=posthouse_store, broker="nats://nobody.invalid:4222", on_failure=print)
    App(other, store=posthouse_store, broker="nats://nobody.invalid:4222")
    with pytest.raises(ConfigurationError, match="give each a harness of its own"):
        async with Harness(shop.billing, other, store=posthouse_store):
            pass
