"""The shop: orders says facts, billing books each in a ledger and answers with invoices, orders files these."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from posthouse import App, Event, Payload, Policy, Reject, RelaySettings, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.broker import Broker
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.postgres import PostgresBroker
from posthouse.store import Store
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.sqlite import SqliteStore
from tests.faults.kit.books import Books
from tests.faults.kit.clock import HurriedClock

Poison = Literal["", "kill", "exit", "reject"]
Kind = Literal["placed", "cancelled", "moved", "seen", "expired"]
Handling = Literal["single", "grouped", "list"]


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """How a process runs the shop. Durations are seconds of the hurried clock. `database` is the URL of a PostgreSQL
    database for both stores, instead of a file for each; `log` says where the log is. `handling` is the kind of handler
    that books, and `more` adds consumers of every kind, with ledgers of their own. At speed 1 a database goes by its own
    clock. `writers` transactions of a process may be open at once there; on files it is one."""

    base: float = 0.0
    speed: float = 40.0
    shift: float = 0.0
    relay_lease: float = 10.0
    batch: int = 500
    broker_lease: float = 6.0
    max_attempts: int = 7
    in_flight: int = 1000
    database: str = ""
    log: Literal["embedded", "postgres"] = "embedded"
    pooler: Literal["none", "transaction"] = "none"
    handling: Handling = "single"
    writers: int = 8
    more: bool = False

    @property
    def ledgers(self) -> Sequence[str]:
        """The tables in which each fact must show up once."""
        return ("ledger", "ledger_grouped", "ledger_listed", "ledger_loose") if self.more else ("ledger",)

    def books(self, folder: Path, *, patience: float = 5.0) -> Books:
        """For looking at what was written under these conditions."""
        return Books(folder, self.database, self.log, patience=patience)


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


FACTS: tuple[type[Fact], ...] = (OrderPlaced, OrderCancelled, StockMoved, PageSeen, HoldExpired)

INVOICED = frozenset(("placed", "cancelled", "expired"))
"""Kinds that billing answers with an invoice."""

ORDERS_TABLES = (
    "CREATE TABLE IF NOT EXISTS said (id {id}, n TEXT UNIQUE, tenant TEXT, key TEXT, kind TEXT)",
    "CREATE TABLE IF NOT EXISTS receipt (id {id}, n TEXT, tenant TEXT, key TEXT, sequence INTEGER)",
)
# No unique constraint: an effect that happens twice must show.
LEDGER = """
CREATE TABLE IF NOT EXISTS {ledger} (
    id {id}, n TEXT, tenant TEXT, key TEXT, sequence INTEGER, event_id TEXT, kind TEXT)
"""
BOOK = "INSERT INTO {ledger} (n, tenant, key, sequence, event_id, kind) VALUES (?, ?, ?, ?, ?, ?)"


class Shop:
    """Both services on the files of one folder, or in one database."""

    def __init__(self, folder: Path, conditions: Conditions) -> None:
        self.folder = folder
        self.clock = HurriedClock(conditions.base or time.time(), conditions.speed, conditions.shift)
        self._conditions = conditions
        self._runs = os.open(folder / "runs.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.policy = Policy(max_attempts=conditions.max_attempts, first_delay=0.4, last_delay=2.0)
        self.orders = self._service("orders")
        self.billing = self._service("billing")
        self._declare_orders()
        self._declare_billing()

    @property
    def services(self) -> dict[str, Service]:
        """Both, by name."""
        return {"orders": self.orders, "billing": self.billing}

    def sql(self, text: str) -> str:
        """A statement in the words of the database in use."""
        if not self._conditions.database:
            return text.replace("{id}", "INTEGER PRIMARY KEY")
        numbers = itertools.count(1)
        text = text.replace("{id}", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
        return re.sub(r"\?", lambda _: f"${next(numbers)}", text)

    async def upgrade(self, services: Sequence[Service]) -> None:
        """What `posthouse db upgrade` does, where a service does not do it by itself."""
        for service in services:
            if not app_of(service).store.embedded and await app_of(service).store.pending_migrations():
                await app_of(service).store.upgrade()

    def _service(self, name: str) -> Service:
        conditions = self._conditions
        service = Service(name, namespace="shop")
        App(
            service,
            clock=self.clock,
            store=self._store(name),
            broker=self._broker(),
            settings=Settings(
                relay=RelaySettings(
                    lease=conditions.relay_lease, batch=conditions.batch, backlog_batch=conditions.batch
                ),
                in_flight=conditions.in_flight,
            ),
        )
        return service

    def _store(self, name: str) -> Store:
        conditions = self._conditions
        if not conditions.database:
            return SqliteStore(self.folder / f"{name}.db", clock=self.clock)
        url = f"{conditions.database}?application_name={name}"
        clock = None if conditions.speed == 1.0 else self.clock
        return PostgresStore(
            url, clock=clock, schema=name, writers=conditions.writers, pooler=conditions.pooler, patience=5.0
        )

    def _broker(self) -> Broker:
        conditions = self._conditions
        if conditions.log == "embedded":
            return EmbeddedBroker(self.folder / "log.db", clock=self.clock, partitions=4, lease=conditions.broker_lease)
        return PostgresBroker(
            f"{conditions.database}?application_name=log",
            clock=self.clock,
            partitions=4,
            lease=conditions.broker_lease / conditions.speed,  # it goes by the clock of the server
            pooled=conditions.pooler == "transaction",
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
                await tx.execute(self.sql(table))

    def _declare_billing(self) -> None:
        billing, conditions = self.billing, self._conditions
        billing.event("invoice.issued.v1", key="order")(InvoiceIssued)

        @billing.setup
        async def tables(tx: Tx) -> None:
            for ledger in conditions.ledgers:
                await tx.execute(self.sql(LEDGER.replace("{ledger}", ledger)))

        async def book(event: Event[Fact], tx: Tx) -> InvoiceIssued | None:
            return await self._book(event, tx)

        async def book_all(events: list[Event[Fact]], tx: Tx) -> list[InvoiceIssued]:
            answers = [await self._book(event, tx) for event in events]
            return [answer for answer in answers if answer is not None]

        policy = dataclasses.replace(self.policy, grouped=conditions.handling == "grouped")
        billing.on(*FACTS, policy=policy)(book_all if conditions.handling == "list" else book)

        @self.orders.on(InvoiceIssued, policy=self.policy)
        async def file(event: Event[InvoiceIssued], tx: Tx) -> None:
            row = (event.data.n, event.tenant, event.key, event.sequence)
            await tx.execute(self.sql("INSERT INTO receipt (n, tenant, key, sequence) VALUES (?, ?, ?, ?)"), row)

        if conditions.more:
            self._declare_more()

    def _declare_more(self) -> None:
        """Readers of every kind beside the first one."""

        async def grouped(event: Event[Fact], tx: Tx) -> None:
            await self._enter("ledger_grouped", event, tx)

        async def listed(events: list[Event[Fact]], tx: Tx) -> None:
            for event in events:
                await self._enter("ledger_listed", event, tx)

        async def loose(event: Event[Fact], tx: Tx) -> None:
            await self._enter("ledger_loose", event, tx)

        replace, on = dataclasses.replace, self.billing.on
        on(*FACTS, consumer="grouped", policy=replace(self.policy, grouped=True))(grouped)
        on(*FACTS, consumer="listed", policy=self.policy)(listed)
        on(*FACTS, consumer="loose", policy=replace(self.policy, order="none"))(loose)

    async def _book(self, event: Event[Fact], tx: Tx) -> InvoiceIssued | None:
        run = self._note_run(event)
        await self._enter("ledger", event, tx)
        misbehave(event.data, run)
        invoiced = kind_of(event) in INVOICED
        return InvoiceIssued(n=event.data.n, order=str(event.key)) if invoiced else None

    async def _enter(self, ledger: str, event: Event[Fact], tx: Tx) -> None:
        row = (event.data.n, event.tenant, event.key, event.sequence, event.id, kind_of(event))
        await tx.execute(self.sql(BOOK.replace("{ledger}", ledger)), row)
        if event.data.poison == "reject":
            raise Reject("never to be booked")

    def _note_run(self, event: Event[Fact]) -> int:
        """Which run this is. Written beside the database: a rollback or a crash does not undo it."""
        os.write(self._runs, f"{event.data.n}\n".encode())
        return (self.folder / "runs.log").read_text().split().count(event.data.n) if event.data.fails else 1


def kind_of(event: Event[Fact]) -> str:
    """The kind of the intent that an event stands for."""
    return event.type.split(".")[-2]


def misbehave(data: Fact, run: int) -> None:
    """What the handler of a troublesome event does, after it has written."""
    if data.poison == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if data.poison == "exit":
        os._exit(13)
    if run <= data.fails:
        raise RuntimeError("the ledger is closed")
