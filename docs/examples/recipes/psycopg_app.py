"""Plain psycopg: a script writes a row and says a fact in one transaction; a handler gets such a connection."""

import os

import psycopg

from posthouse import App, Event, Payload, Service

URL = os.environ["SHOP_DATABASE"]  # postgresql://shop@db/shop
shop = Service("shop")
App(shop, store=URL, broker=URL)  # or any other that every host reaches


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


def place(order_id: str) -> None:
    with psycopg.connect(URL) as connection:  # commits at its end
        connection.execute("INSERT INTO orders VALUES (%s)", (order_id,))
        shop.outbox.add_now(connection, OrderPlaced(order_id=order_id), tenant="t1")


@shop.on(OrderPlaced)
def pack(event: Event[OrderPlaced], connection: psycopg.Connection) -> None:
    connection.execute("INSERT INTO parcels VALUES (%s)", (event.data.order_id,))


if __name__ == "__main__":
    with psycopg.connect(URL) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (order_id text PRIMARY KEY)")
        connection.execute("CREATE TABLE IF NOT EXISTS parcels (order_id text PRIMARY KEY)")
    place("o1")
    print("placed o1")
