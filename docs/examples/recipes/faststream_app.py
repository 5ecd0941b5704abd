"""A FastStream application beside a Posthouse service: each reads what the other says, on the same topics of NATS."""

import os

from faststream import AckPolicy, FastStream
from faststream.nats import JStream, NatsBroker, NatsMessage
from pydantic import BaseModel

from posthouse import App, Event, Service, Tx

NATS = os.environ.get("SHOP_NATS", "nats://localhost:4222")

# The Posthouse service: outbox, inbox, order. In the binary form the body is the payload alone.

shop = Service("shop", envelope="binary")
App(shop, broker=NATS)


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced:
    order_id: str
    total_cents: int


@shop.external("parcels.parcel.sent.v1")
class ParcelSent:
    order_id: str


@shop.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS sent (order_id TEXT)")


@shop.on(ParcelSent)
async def close_the_order(event: Event[ParcelSent], tx: Tx) -> None:
    await tx.execute("INSERT INTO sent VALUES (:order_id)", {"order_id": event.data.order_id})


# The FastStream application: it needs nothing of Posthouse, and makes no stream of its own.

broker = NatsBroker(NATS)
app = FastStream(broker)


class Order(BaseModel):
    order_id: str
    total_cents: int


orders = broker.subscriber(
    "shop.order.*",
    stream=JStream("shop_order", declare=False),
    durable="parcels",
    pull_sub=True,
    ack_policy=AckPolicy.NACK_ON_ERROR,
)


@orders(filter=lambda message: message.headers["ce-type"] == "shop.order.placed.v1")
async def pack(order: Order, message: NatsMessage) -> None:
    headers = {
        "ce-specversion": "1.0",
        "ce-id": f"parcel-{message.headers['ce-id']}",  # the same again when this runs again
        "ce-type": "parcels.parcel.sent.v1",
        "ce-source": "/parcels",
        "ce-tenantid": message.headers["ce-tenantid"],
    }
    await broker.publish({"order_id": order.order_id}, "parcels.parcel", headers=headers, stream="parcels_parcel")


@orders()
async def pass_over(message: NatsMessage) -> None:
    """The other types of the topic."""
