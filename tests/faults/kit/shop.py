"""The shop: orders says facts, billing books each in a ledger and answers with invoices, orders files these."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Literal

import msgspec

from posthouse import Event, Payload, Policy, RelaySettings, Service, Tx
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.stores.sqlite import SqliteStore
from tests.faults.kit.clock import HurriedClock

Poison = Literal["", "kill", "exit"]
Kind = Literal["placed", "cancelled", "moved", "seen", "expired"]


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """How a process runs the shop. Durations are seconds of the hurried clock."""

    base: float = 0.0
    speed: float = 40.0
    shift: float = 0.0
    relay_lease: float = 10.0
    batch: int = 500
    broker_lease: float = 6.0
    deliveries: int = 7
    in_flight: int = 1000


USUAL = Conditions()


class Fact(Payload, kw_only=True):
    """`n` is the intent that it stands for; its handler fails `fails` times, or ends the process if it is poison."""

    n: str
    fails: int = 0
    poison: Poison = ""


class OrderPlaced(Fact):
    order: str


class OrderCancelled(Fact):
    order: str


class StockMoved(Fact):
    sku: str


class PageSeen(Fact):
    page: str


class HoldExpired(Fact):
    hold: str


class InvoiceIssued(Payload):
    n: str
    order: str


def fact(kind: Kind, key: str, n: str, fails: int, poison: Poison) -> Fact:
    """The payload for an intent."""
    match kind:
        case "placed":
            return OrderPlaced(n=n, order=key, fails=fails, poison=poison)
        case "cancelled":
            return OrderCancelled(n=n, order=key, fails=fails, poison=poison)
        case "moved":
            return StockMoved(n=n, sku=key, fails=fails, poison=poison)
        case "seen":
            return PageSeen(n=n, page=key, fails=fails, poison=poison)
        case "expired":
            return HoldExpired(n=n, hold=key, fails=fails, poison=poison)


INVOICED = frozenset(("placed", "cancelled", "expired"))
"""Kinds that billing answers with an invoice."""

ORDERS_TABLES = (
    "CREATE TABLE IF NOT EXISTS said (id INTEGER PRIMARY KEY, n TEXT UNIQUE, tenant TEXT, key TEXT, kind TEXT)",
    "CREATE TABLE IF NOT EXISTS receipt (id INTEGER PRIMARY KEY, n TEXT, tenant TEXT, key TEXT, sequence INTEGER)",
)
# No unique constraint: an effect that happens twice must show.
LEDGER = """
CREATE TABLE IF NOT EXISTS ledger (
    id INTEGER PRIMARY KEY, n TEXT, tenant TEXT, key TEXT, sequence INTEGER, event_id TEXT, kind TEXT)
"""


class Shop:
    """Both services on the files of one folder."""

    def __init__(self, folder: Path, conditions: Conditions) -> None:
        self.folder = folder
        self.clock = HurriedClock(conditions.base or time.time(), conditions.speed, conditions.shift)
        self._conditions = conditions
        self._runs = os.open(folder / "runs.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.policy = Policy(deliveries=conditions.deliveries, first_delay=0.4, last_delay=2.0)
        self.orders = self._service("orders")
        self.billing = self._service("billing")
        self._declare_orders()
        self._declare_billing()

    @property
    def services(self) -> dict[str, Service]:
        """Both, by name."""
        return {"orders": self.orders, "billing": self.billing}

    def _service(self, name: str) -> Service:
        conditions = self._conditions
        broker = EmbeddedBroker(self.folder / "log.db", clock=self.clock, partitions=4, lease=conditions.broker_lease)
        return Service(
            name,
            namespace="shop",
            clock=self.clock,
            store=SqliteStore(self.folder / f"{name}.db", clock=self.clock),
            broker=broker,
            relay=RelaySettings(lease=conditions.relay_lease, batch=conditions.batch),
            in_flight=conditions.in_flight,
        )

    def _declare_orders(self) -> None:
        orders = self.orders
        orders.event("order.placed.v1", key="order")(OrderPlaced)
        orders.event("order.cancelled.v1", key="order")(OrderCancelled)
        orders.event("stock.moved.v1", key="sku")(StockMoved)
        orders.event("page.seen.v1")(PageSeen)
        orders.event("hold.expired.v1", key="hold")(HoldExpired)

        @orders.setup
        async def tables(tx: Tx) -> None:
            for table in ORDERS_TABLES:
                await tx.execute(table)

    def _declare_billing(self) -> None:
        billing = self.billing
        billing.event("invoice.issued.v1", key="order")(InvoiceIssued)

        @billing.setup
        async def tables(tx: Tx) -> None:
            await tx.execute(LEDGER)

        @billing.on(OrderPlaced, OrderCancelled, StockMoved, PageSeen, HoldExpired, policy=self.policy)
        async def book(event: Event[Fact], tx: Tx) -> InvoiceIssued | None:
            run = self._note_run(event)
            kind = event.type.split(".")[-2]
            row = (event.data.n, event.tenant, event.key, event.sequence, event.id, kind)
            await tx.execute(
                "INSERT INTO ledger (n, tenant, key, sequence, event_id, kind) VALUES (?, ?, ?, ?, ?, ?)", row
            )
            misbehave(event.data, run)
            return InvoiceIssued(n=event.data.n, order=str(event.key)) if kind in INVOICED else None

        @self.orders.on(InvoiceIssued, policy=self.policy)
        async def file(event: Event[InvoiceIssued], tx: Tx) -> None:
            row = (event.data.n, event.tenant, event.key, event.sequence)
            await tx.execute("INSERT INTO receipt (n, tenant, key, sequence) VALUES (?, ?, ?, ?)", row)

    def _note_run(self, event: Event[Fact]) -> int:
        """Which run this is. Written beside the database: a rollback or a crash does not undo it."""
        os.write(self._runs, f"{event.data.n}\n".encode())
        return (self.folder / "runs.log").read_text().split().count(event.data.n) if event.data.fails else 1


def misbehave(data: Fact, run: int) -> None:
    """What the handler of a troublesome event does, after it has written."""
    if data.poison == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if data.poison == "exit":
        os._exit(13)
    if run <= data.fails:
        raise RuntimeError("the ledger is closed")
