"""The services that are measured: `orders` publishes events of about 1 KiB, `billing` writes one row for each."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from pathlib import Path

from posthouse import App, Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.broker import Broker

TENANT = "t1"
KEYS = 1000
PARCEL = "Two hundred words or so that a real event would carry in its fields. " * 7
CREATE = "CREATE TABLE IF NOT EXISTS placed (id INTEGER PRIMARY KEY, order_id TEXT NOT NULL, total INTEGER NOT NULL)"
BUSINESS = "INSERT INTO placed (order_id, total) VALUES (?, ?)"


class OrderPlaced(Payload):
    order_id: str
    total_cents: int
    note: str = PARCEL


class Done:
    """Counts what the handlers have done and ends the run at the last one."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.stop = asyncio.Event()

    def __call__(self, events: int = 1) -> None:
        self.left -= events
        if self.left <= 0:
            self.stop.set()


def placed(number: int, keys: int = KEYS) -> OrderPlaced:
    """One of 1,000 orders in turn."""
    return OrderPlaced(order_id=f"o{number % keys}", total_cents=number)


def orders_in(folder: Path, *, log: Path | None = None) -> Service:
    """The producer, on files in a folder."""
    orders = Service("orders", namespace="shop")
    App(orders, store=f"sqlite:///{folder / 'orders.db'}", broker=_log(folder, log))
    orders.event("order.placed.v1", key="order_id")(OrderPlaced)
    orders.setup(create)
    return orders


def billing_in(
    folder: Path, kind: str, done: Done, *, log: Path | None = None, broker: Broker | None = None
) -> Service:
    """The consumer, on files in a folder; `kind` is a name in HANDLERS."""
    billing = Service("billing", namespace="shop")
    App(billing, store=f"sqlite:///{folder / 'billing.db'}", broker=broker or _log(folder, log))
    billing.external("shop.orders.order.placed.v1", key="order_id")(OrderPlaced)
    billing.setup(create)
    KINDS[kind](billing, done)
    return billing


def _log(folder: Path, log: Path | None) -> str:
    return f"embedded:///{log or folder / 'log.db'}"


async def create(tx: Tx) -> None:
    await tx.execute(CREATE)


def _single(billing: Service, done: Done) -> None:
    _each(billing, done, Policy())


def _unordered(billing: Service, done: Done) -> None:
    _each(billing, done, Policy(order="none"))


def _grouped(billing: Service, done: Done) -> None:
    _each(billing, done, Policy(grouped=True))


def _each(billing: Service, done: Done, policy: Policy) -> None:
    @billing.on(OrderPlaced, policy=policy)
    async def write(event: Event[OrderPlaced], tx: Tx) -> None:
        await tx.execute(BUSINESS, (event.data.order_id, event.data.total_cents))
        done()


def _list(billing: Service, done: Done) -> None:
    @billing.on(OrderPlaced)
    async def write(events: list[Event[OrderPlaced]], connection: sqlite3.Connection) -> None:
        connection.executemany(BUSINESS, [(event.data.order_id, event.data.total_cents) for event in events])
        done(len(events))


KINDS = {"single": _single, "unordered": _unordered, "grouped": _grouped, "list": _list}


async def fill(orders: Service, count: int, *, at_once: int = 500, keys: int = KEYS) -> None:
    """Publish so many events into the outbox."""
    for first in range(0, count, at_once):
        async with orders.transaction(TENANT) as tx:
            for number in range(first, min(first + at_once, count)):
                tx.publish(placed(number, keys))


async def relay(orders: Service) -> None:
    """Move everything in the outbox to the log."""
    runtime = await app_of(orders).opened.prepare()
    while await runtime.relay.step():
        pass


async def filled_log(folder: Path, count: int, *, keys: int = KEYS) -> Path:
    """A log with so many events in a folder that exists, closed, to be copied for every round."""
    orders = orders_in(folder)
    await fill(orders, count, keys=keys)
    await relay(orders)
    await orders.aclose()
    return folder / "log.db"


def copied(log: Path, folder: Path) -> Path:
    """A copy that has reached the disk, so that writing it back does not disturb what is measured."""
    folder.mkdir()
    copy = Path(shutil.copy(log, folder / "log.db"))
    with copy.open("rb") as handle:
        os.fsync(handle.fileno())
    return copy


def discard(folder: Path) -> None:
    """Free the space."""
    shutil.rmtree(folder)
