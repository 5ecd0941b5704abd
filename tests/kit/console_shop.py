"""A shop in which events are held in every way, said by a stranger who writes script into all he can: for the pages of the console."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from posthouse import App, Event, Payload, Personal, Policy, Service, Tx
from posthouse.broker import Frame
from posthouse.clock import new_id
from posthouse.console.access.who import Who
from posthouse.console.asking import Ask
from posthouse.console.estate import Estate
from posthouse.events import STRUCTURED
from posthouse.events import Event as Fact
from tests.kit.waiting import eventually

SCRIPT = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
TOPIC = "shop.orders.order"
PLACED, SHIPPED = "shop.orders.order.placed.v1", "shop.orders.order.shipped.v1"


class OrderPlaced(Payload):
    order_id: str
    total_cents: int
    email: Annotated[str, Personal("contact")] = "ada@example.org"
    note: str = ""


class OrderShipped(Payload):
    order_id: str


def shop(store: str, folder: Path) -> App:
    """Orders with a total below 0 cannot be billed; others are shipped."""
    orders, billing = Service("orders", namespace="shop"), Service("billing", namespace="shop")
    orders.event("order.placed.v1", key="order_id")(OrderPlaced)
    orders.event("order.shipped.v1", key="order_id")(OrderShipped)

    @billing.on(OrderPlaced, policy=Policy(max_attempts=1))
    async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
        if event.data.total_cents < 0:
            raise ValueError(f"a negative total {SCRIPT}")

    @orders.on(OrderPlaced, consumer="shipping", policy=Policy(max_attempts=1))
    async def ship(event: Event[OrderPlaced], tx: Tx) -> None:
        if event.data.total_cents == 1:
            tx.publish(OrderShipped(order_id=event.data.order_id))

    return App(orders, billing, store=store, broker=f"embedded:///{folder / 'log.db'}?single_host=true")


async def fill(app: App) -> None:
    """`bad` has a dead event and one behind it, `late` lacks its first numbers, the script is a key and a note; one frame is noise."""
    orders = app.services[0]
    async with orders.transaction("t1") as tx:
        for order, total in (("good", 1), ("bad", -1), ("bad", 7), (SCRIPT, -2)):
            tx.publish(OrderPlaced(order_id=order, total_cents=total, note=SCRIPT))
    async with orders.transaction("t2") as tx:
        tx.publish(OrderPlaced(order_id="theirs", total_cents=-3))
    async with app.running():
        strange = await app.broker.publish([late(3), Frame(topic=TOPIC, id=new_id(), body=SCRIPT.encode())])
        assert all(verdict.accepted for verdict in strange)
        await eventually(
            lambda: app.store.counts(),
            "dead, blocked, gap and quarantined",
            right=lambda counts: (
                sum(counts.held.values()) == 6 and sum(counts.strange.values()) == 2 and not any(counts.unsent.values())
            ),
        )


def late(number: int, tenant: str = "t1", key: str = "late") -> Frame:
    fact = Fact(
        id=new_id(),
        type=PLACED,
        source="/shop/orders",
        data=b'{"order_id":"late","total_cents":9007199254740993,"email":"x@y.z"}',
        time="2026-11-16T20:00:00Z",
        tenant=tenant,
        key=key,
        sequence=number,
    )
    encoded = STRUCTURED.encode(fact)
    return Frame(topic=TOPIC, id=fact.id, key=f"{tenant}:{key}", headers=encoded.headers, body=encoded.body)


ADMIN = Who(name="ada", roles=frozenset(("admin",)), payloads=True)
BLIND = Who(name="bob", roles=frozenset(("admin",)))
SCOPED = Who(name="cat", roles=frozenset(("operator",)), tenants=frozenset(("t1",)), payloads=True)


class Desk:
    """Asks pages as a browser does."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.estate = Estate(app)

    def ask(
        self,
        who: Who = ADMIN,
        path: Mapping[str, str] | None = None,
        asked: Mapping[str, str] | None = None,
        **query: str,
    ) -> Ask:
        return Ask(self.estate, who, path or {}, {**(asked or {}), **query})


@asynccontextmanager
async def a_desk(store: str, folder: Path) -> AsyncIterator[Desk]:
    app = shop(store, folder)
    await app.store.upgrade()
    await fill(app)
    desk = Desk(app)
    try:
        yield desk
    finally:
        await desk.estate.aclose()
        await app.aclose()
