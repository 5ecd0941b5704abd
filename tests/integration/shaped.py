"""Handlers of one kind for every shape that a transaction may have on PostgreSQL, and two services that run them."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from posthouse import Event, Payload, Policy, Service
from posthouse.app import app_of
from posthouse.broker import Broker
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.stores.postgres import PostgresStore
from posthouse.testing import rehost
from posthouse.watch.status import Status, status
from tests.kit.running import at_work
from tests.kit.shop import OrderPlaced
from tests.kit.waiting import eventually

PATIENCE = 20.0


class InvoiceIssued(Payload):
    order_id: str


# One statement in each library; what it returns is a list of rows.


async def by_asyncpg(theirs: Any, sql: str) -> Sequence[Any]:
    return [tuple(row) for row in await theirs.fetch(sql)]


async def by_async_sqlalchemy(theirs: Any, sql: str) -> Sequence[Any]:
    result = await theirs.execute(text(sql))
    return [tuple(row) for row in result] if result.returns_rows else []


def by_sqlalchemy(theirs: Any, sql: str) -> Sequence[Any]:
    result = theirs.execute(text(sql))
    return [tuple(row) for row in result] if result.returns_rows else []


def by_cursor(theirs: Any, sql: str) -> Sequence[Any]:
    with theirs.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


@dataclasses.dataclass(frozen=True)
class Kind:
    """One shape: the type that a handler names, and how a statement is run in it."""

    shape: type
    run: Callable[[Any, str], Any]
    plain: bool

    @property
    def name(self) -> str:
        return f"{self.shape.__module__.partition('.')[0]}.{self.shape.__name__}"


KINDS = [
    Kind(asyncpg.Connection, by_asyncpg, plain=False),
    Kind(AsyncSession, by_async_sqlalchemy, plain=False),
    Kind(AsyncConnection, by_async_sqlalchemy, plain=False),
    Kind(Session, by_sqlalchemy, plain=True),
    Kind(Connection, by_sqlalchemy, plain=True),
    Kind(psycopg.Connection, by_cursor, plain=True),
    Kind(BaseDatabaseWrapper, by_cursor, plain=True),
]


class Scene:
    """What the handlers shall do, and what became of it. `misbehave` is called in the first run, after the row."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.misbehave: Callable[[Any], Any] | None = None
        self.runs = 0
        self.late: list[BaseException | None] = []
        self.released = threading.Event()
        self.orders = Service("orders", namespace="shop")
        self.billing = Service("billing", namespace="shop")
        self.placed = self.orders.event("order.placed.v1", key="order_id")(OrderPlaced)
        self.issued = self.billing.event("invoice.issued.v1", key="order_id")(InvoiceIssued)

    def handle(self, policy: Policy) -> None:
        """Register a handler for the shape."""
        handler = self._plain() if self.kind.plain else self._async()
        handler.__annotations__ = {"event": Event[self.placed], "theirs": self.kind.shape}  # type: ignore[name-defined]
        self.billing.on(self.placed, policy=policy)(handler)

    def _plain(self) -> Callable[..., object]:
        def handler(event: Any, theirs: Any) -> object:
            self.runs += 1
            first = self.runs == 1
            self.kind.run(theirs, insert(event.data))
            if first and self.misbehave is not None:
                self.misbehave(theirs)
            return self.issued(order_id=event.data.order_id)

        return handler

    def _async(self) -> Callable[..., object]:
        async def handler(event: Any, theirs: Any) -> object:
            self.runs += 1
            first = self.runs == 1
            await self.kind.run(theirs, insert(event.data))
            if first and self.misbehave is not None:
                await self.misbehave(theirs)
            return self.issued(order_id=event.data.order_id)

        return handler

    def try_late(self, theirs: Any) -> Any:
        """Outstay the deadline, then write all the same."""
        late = "INSERT INTO invoice (order_id, number) VALUES ('late', 0)"

        def plain() -> None:
            self.released.wait(PATIENCE)
            try:
                self.kind.run(theirs, late)
                self._commit_anyhow(theirs)
                self.late.append(None)
            except BaseException as error:
                self.late.append(error)

        async def asynchronous() -> None:
            while not self.released.is_set():
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue  # it does not listen
            try:
                await self.kind.run(theirs, late)
                self.late.append(None)
            except BaseException as error:
                self.late.append(error)

        return plain() if self.kind.plain else asynchronous()

    async def tried_late(self) -> Sequence[BaseException | None]:
        """What became of writing too late; empty before."""
        return self.late

    def _commit_anyhow(self, theirs: Any) -> None:
        commit = getattr(theirs, "commit", None)
        if commit is not None:
            commit()

    def kill(self, url: str) -> Callable[[Any], Any]:
        """End the server's side of the handler's connection, then go on."""

        def plain(theirs: Any) -> None:
            [(pid,)] = self.kind.run(theirs, "SELECT pg_backend_pid()")
            end_backend(url, pid)
            self.kind.run(theirs, "SELECT 1")

        async def asynchronous(theirs: Any) -> None:
            [(pid,)] = await self.kind.run(theirs, "SELECT pg_backend_pid()")
            await asyncio.to_thread(end_backend, url, pid)
            await self.kind.run(theirs, "SELECT 1")

        return plain if self.kind.plain else asynchronous

    @asynccontextmanager
    async def running(self, url: str, *, options: str = "", broker: Broker | None = None) -> AsyncIterator[None]:
        """Both services at work."""
        clock = SystemClock()
        broker = broker or MemoryBroker(clock=clock)
        for service in (self.orders, self.billing):
            rehost(service, store=f"{url}?schema={service.name}{options}", broker=broker, clock=clock)
            await app_of(service).store.upgrade()
        async with app_of(self.billing).store.begin() as tx:
            await tx.execute("CREATE TABLE invoice (id bigserial, order_id text, number int)")
        runtimes = [await app_of(service).opened.prepare() for service in (self.orders, self.billing)]
        async with aclosing(self.orders), aclosing(self.billing), at_work(*(runtime.run for runtime in runtimes)):
            try:
                yield
            finally:
                self.released.set()

    async def place(self, *orders: tuple[str, int]) -> None:
        async with self.orders.transaction("t1") as tx:
            for order_id, number in orders:
                tx.publish(self.placed(order_id=order_id, number=number))

    async def settled(self) -> Status:
        """Wait until everything that was said is applied or held."""

        async def quiet() -> Status | None:
            figures = await status([self.orders, self.billing])
            still = figures.quiet and not any(line.held for line in figures.lines)
            return figures if still and figures == await status([self.orders, self.billing]) else None

        return await eventually(quiet)

    async def invoices(self) -> list[tuple[object, ...]]:
        async with app_of(self.billing).store.begin() as tx:
            return list(await tx.execute("SELECT order_id, number FROM invoice ORDER BY id"))

    async def issued_count(self) -> int:
        counts = await app_of(self.billing).store.counts()
        return sum(number for topic, number in counts.committed.items() if "invoice" in topic)


def insert(order: OrderPlaced) -> str:
    return f"INSERT INTO invoice (order_id, number) VALUES ('{order.order_id}', {order.number})"


def end_backend(url: str, pid: int) -> None:
    """Returns when the process is gone."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))


async def tables(store: PostgresStore) -> None:
    await store.upgrade()
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE mine (name text)")


__all__ = ["KINDS", "Kind", "Scene", "end_backend", "insert", "tables"]
