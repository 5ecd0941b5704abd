"""The shapes that a handler may have."""

import asyncio
import sqlite3

from posthouse import Event, Payload, Policy, Reject, RetryLater, Service, Tx, drained

shop = Service("shop")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    cents: int


@shop.event("parcel.packed.v1", key="order_id")
class ParcelPacked(Payload):
    order_id: str


@shop.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS seen (who TEXT, order_id TEXT)")


# What a handler returns is published in its own transaction: one event, several, or none.
@shop.on(OrderPlaced)
async def pack(event: Event[OrderPlaced], tx: Tx) -> ParcelPacked:
    await tx.execute("INSERT INTO seen VALUES ('pack', :order_id)", {"order_id": event.data.order_id})
    return ParcelPacked(order_id=event.data.order_id)


# A plain function runs in a thread, on the connection of its transaction.
@shop.on(OrderPlaced, consumer="audit")
def audit(event: Event[OrderPlaced], connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO seen VALUES ('audit', ?)", (event.data.order_id,))


# Touches nothing but its transaction: events of different keys may share one.
@shop.on(OrderPlaced, consumer="totals", policy=Policy(grouped=True))
async def total(event: Event[OrderPlaced], tx: Tx) -> None:
    await tx.execute("INSERT INTO seen VALUES ('totals', :order_id)", {"order_id": event.data.order_id})


# Takes what is there as a list: one statement for many events.
@shop.on(OrderPlaced, consumer="report", policy=Policy(group_size=500))
async def report(events: list[Event[OrderPlaced]], tx: Tx) -> None:
    for event in events:
        await tx.execute("INSERT INTO seen VALUES ('report', :order_id)", {"order_id": event.data.order_id})


# Says itself what its failure means.
@shop.on(ParcelPacked, policy=Policy(max_attempts=5, deadline=10, never_retry=(KeyError,), on_dead="skip"))
async def ship(event: Event[ParcelPacked], tx: Tx) -> None:
    if event.data.order_id == "o2":
        raise Reject("the address does not exist")  # never again: dead at once
    if event.data.order_id == "o3":
        raise RetryLater("the carrier is closed", seconds=3600)


# Calls a vendor first, while no transaction is open; the answer comes as a third argument.
async def weigh(event: Event[ParcelPacked]) -> int:
    return 100 * len(event.data.order_id)  # a real one sends event.id along, so that asking twice is asking once


@shop.on(ParcelPacked, consumer="postage", calling=weigh)
async def stamp(event: Event[ParcelPacked], tx: Tx, grams: int) -> None:
    row = {"what": f"{grams} g", "order_id": event.data.order_id}
    await tx.execute("INSERT INTO seen VALUES (:what, :order_id)", row)


async def main() -> None:
    async with shop.running():
        async with shop.transaction(tenant="t1") as tx:
            for number in (1, 2, 3):
                tx.publish(OrderPlaced(order_id=f"o{number}", cents=100 * number))
        for line in (await drained(shop)).lines:
            print(
                f"{line.consumer:12} {line.topic:12} applied {line.applied}, skipped {line.skipped}, held {dict(line.held)}"
            )


asyncio.run(main())
