"""Without an event loop: a timer, a saga and an aggregate in a transaction that plain code began and commits."""

import asyncio
import sqlite3
from contextlib import closing

from posthouse import App, Event, Payload, Saga, Service, Turn, deadline, starts, step, undo

orders = Service("orders", namespace="shop")
App(orders, store="sqlite:///shop.db")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@orders.event("order.reminded.v1", key="order_id")
class OrderReminded(Payload):
    order_id: str


@orders.event("account.charged.v1", key="account_id")
class AccountCharged(Payload):
    account_id: str
    cents: int


@orders.event("order.paid.v1", key="order_id")
class OrderPaid(Payload):
    order_id: str


@orders.event("order.refunded.v1", key="order_id")
class OrderRefunded(Payload):
    order_id: str


def charged(balance: int, event: AccountCharged) -> int:
    return balance + event.cents


accounts = orders.aggregate("account", initial=int, evolve=charged, events=[AccountCharged])


@orders.saga("payment", correlate="order_id")
class Payment(Saga):
    order_id: str

    @starts
    def begin(self, turn: Turn) -> None:
        turn.set(self.overdue)

    @undo(begin)
    def give_up(self, turn: Turn) -> None: ...

    @deadline(3 * 86_400.0)
    def overdue(self, turn: Turn) -> None:
        turn.compensate("not paid in time")

    @step(OrderPaid)
    def paid(self, event: Event[OrderPaid], turn: Turn) -> None:
        turn.complete()

    @undo(paid)
    def give_back(self, event: Event[OrderPaid], turn: Turn) -> None:
        turn.publish(OrderRefunded(order_id=self.order_id))


def place(connection: sqlite3.Connection, order_id: str) -> None:
    connection.execute("INSERT INTO orders VALUES (?)", (order_id,))
    with orders.outbox.joined(connection, tenant="t1") as tx:
        tx.publish(OrderPlaced(order_id=order_id))
        tx.publish(OrderReminded(order_id=order_id), after=86_400, timer=f"remind:{order_id}")
        tx.call(orders.start_saga, Payment(order_id=order_id))
        tx.call(accounts.decide, "a1", lambda balance: AccountCharged(account_id="a1", cents=1200))


def pay(connection: sqlite3.Connection, order_id: str) -> None:
    with orders.outbox.joined(connection, tenant="t1") as tx:
        print("the reminder was still waiting:", tx.cancel(f"remind:{order_id}"))
        print("the account stands at", tx.call(accounts.load, "a1").state)


asyncio.run(orders.host.store.upgrade())  # makes the tables; in production: posthouse db upgrade
with closing(sqlite3.connect("shop.db")) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS orders (order_id TEXT)")
    with connection:  # commits at its end, or rolls back
        place(connection, "o1")
    with connection:
        pay(connection, "o1")
asyncio.run(orders.host.store.aclose())
