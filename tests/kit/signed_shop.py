"""A shop whose facts are signed, and a hand in its database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import asyncpg

from posthouse import App, Event, Payload, Policy, Service, Tx
from posthouse.seam.seals import SEAL
from posthouse.store import HeldEvent, HeldFilter, OutboxRow
from tests.kit.signing import Keys
from tests.kit.waiting import eventually


class OrderPlaced(Payload):
    order_id: str
    number: int = 0


class PageSeen(Payload):
    number: int = 0


def paid(total: int, placed: OrderPlaced) -> int:
    return total + placed.number


class Shop:
    """A service that hears itself and requires signatures."""

    def __init__(self, store: str, folder: Path) -> None:
        self.folder, self.url = folder, store
        self.keys = Keys(folder)
        self.keys.make("shop-1")
        self.heard: list[tuple[str, int]] = []
        self.fails = False
        self.service = Service("shop")
        self.service.event("order.placed.v1", key="order_id")(OrderPlaced)
        self.service.event("page.seen.v1")(PageSeen)
        self.service.on(OrderPlaced, policy=Policy(max_attempts=1))(self.hear)
        self.service.on(PageSeen, policy=Policy(max_attempts=1))(self.see)
        self.order = self.service.aggregate("order", initial=int, evolve=paid, events=(OrderPlaced,))
        self.broker = f"embedded:///{folder / 'log.db'}?single_host=true"
        self.app = self.opened("shop-1")

    def opened(self, *ids: str) -> App:
        return App(self.service, store=self.url, broker=self.broker, signing=self.keys.signing(*ids))

    async def hear(self, event: Event[OrderPlaced], tx: Tx) -> None:
        if self.fails:
            raise ValueError("not now")
        assert SEAL not in event.extensions, "the marks of a signature are not for handlers"
        self.heard.append((event.data.order_id, event.data.number))

    async def see(self, event: Event[PageSeen], tx: Tx) -> None:
        if self.fails:
            raise ValueError("not now")
        self.heard.append(("page", event.data.number))

    async def place(self, *orders: tuple[str, int], **terms: object) -> None:
        async with self.service.transaction("t1") as tx:
            for order_id, number in orders:
                tx.publish(OrderPlaced(order_id=order_id, number=number), **terms)  # type: ignore[arg-type]

    async def kept(self) -> list[OutboxRow]:
        return list(await self.app.store.outbox.kept(0, 100))

    async def held(self) -> list[HeldEvent]:
        return list(await self.app.store.held.find(HeldFilter()))

    def logged(self) -> int:
        """How many frames are in the log."""
        with sqlite3.connect(self.folder / "log.db") as log:
            ((count,),) = log.execute("SELECT count(*) FROM frames")
        log.close()
        return int(count)

    async def reopen(self, *ids: str) -> None:
        """The same with other private halves."""
        await self.app.aclose()
        self.app = self.opened(*ids)

    async def sql(self, sqlite: str, postgres: str, *values: object) -> None:
        """A hand in the database, beside the library, that touches one row."""
        if self.url.startswith("sqlite"):
            with sqlite3.connect(self.folder / "shop.db") as connection:
                assert connection.execute(sqlite, values).rowcount == 1
            connection.close()
        else:
            server = await asyncpg.connect(self.url)
            assert (await server.execute(postgres, *values)).endswith(" 1")
            await server.close()

    async def settles(self, heard: int, held: int) -> list[HeldEvent]:
        async def look() -> bool:
            return len(self.heard) == heard and len(await self.held()) == held

        await eventually(look, f"heard {self.heard}")
        return await self.held()


def flipped(body: bytes, mark: bytes) -> bytes:
    """A body with one bit of it changed."""
    place = body.index(mark)
    return body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
