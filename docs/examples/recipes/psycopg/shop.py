"""A shop with psycopg alone: a script places orders, a worker packs parcels."""

import os
import sys
from pathlib import Path

import psycopg

from posthouse import App, Event, Payload, Service

URL = os.environ["DATABASE_URL"]  # postgresql://shop@db/shop
shop = Service("shop")
App(shop, store=URL, broker=URL)


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


def place(order_id: str) -> None:
    with psycopg.connect(URL) as connection:  # commits at its end
        connection.execute("INSERT INTO orders VALUES (%s)", (order_id,))
        shop.outbox.add_now(connection, OrderPlaced(order_id=order_id), tenant="t1")


@shop.on(OrderPlaced)
def pack(event: Event[OrderPlaced], connection: psycopg.Connection) -> None:
    connection.execute("INSERT INTO parcels (order_id) VALUES (%s)", (event.data.order_id,))


def main(verb: str, *order_ids: str) -> None:
    if verb == "init-db":
        with psycopg.connect(URL) as connection:
            connection.execute(Path(__file__).with_name("schema.sql").read_text())
    for order_id in order_ids:
        place(order_id)
        print(f"placed {order_id}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
