"""What a publisher accepts, every consumer can read: through both stores, whichever way it was published."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from posthouse import Actor, App, Event, Payload, Service, Tx, drained
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import PosthouseError

TEXTS: list[Any] = [
    "t1",
    "zürich",
    "a b",
    "line\nbreak",
    "x" * 256,
    "",
    0,
    5,
    True,
    1.5,
    b"t1",
    "\x00",
    "\ud800",
    "x" * 600,
]
NUMBERS: list[Any] = [None, 1.5, math.nan, math.inf, 2**70, "text", True]


class Said(NamedTuple):
    """One publish, as a hurried person writes it."""

    number: int
    tenant: Any = "t1"
    idempotency_key: Any = None
    correlation: Any = None
    actor: Any = None
    weight: Any = None


SAID = [
    Said(number, **fields)
    for number, fields in enumerate(
        [
            *({"tenant": text} for text in TEXTS),
            *({"idempotency_key": text} for text in TEXTS),
            *({"correlation": text} for text in TEXTS),
            *({"actor": text} for text in (Actor(kind="user", id="ü"), Actor(kind="", id=""), "ann", 5)),
            *({"weight": number} for number in NUMBERS),
        ]
    )
]


class Shop:
    """Publishes and reads its own orders, and keeps what it read."""

    def __init__(self, store: str) -> None:
        self.service = shop = Service("shop")
        App(shop, store=store, broker=MemoryBroker(clock=SystemClock()))
        self.read: dict[int, Event[Any]] = {}
        self.accepted: list[Said] = []

        @shop.event("order.placed.v1", key="key")
        class OrderPlaced(Payload):
            key: str
            number: int
            weight: float | None = None

        @shop.on(OrderPlaced)
        async def note(event: Event[OrderPlaced], tx: Tx) -> None:
            self.read[event.data.number] = event

        self.placed = OrderPlaced

    def say(self, publish: Callable[[Said, Any], object]) -> None:
        for said in SAID:
            try:
                publish(said, self.placed(f"k{said.number}", said.number, said.weight))
            except PosthouseError:
                continue
            self.accepted.append(said)

    async def check(self) -> None:
        """Everything that was accepted was read, as it was said."""
        async with self.service.running():
            figures = await drained(self.service)
            counts = await app_of(self.service).store.counts()
        assert (counts.held, counts.strange) == ({}, {}), figures
        assert self.read.keys() == {said.number for said in self.accepted}
        for said in self.accepted:
            event = self.read[said.number]
            assert (event.tenant, event.idempotency_key, event.actor) == (
                said.tenant,
                said.idempotency_key,
                said.actor or Actor(kind="service", id="shop"),
            )
            assert event.correlation == (said.correlation or event.id)
            assert event.data.weight == said.weight
        assert len(self.accepted) >= 15


def options(said: Said) -> dict[str, Any]:
    return {"tenant": said.tenant, "correlation": said.correlation, "actor": said.actor}


def test_what_a_connection_of_psycopg_accepts_is_read(store_url: str) -> None:
    shop = Shop(store_url)
    with psycopg.connect(store_url) as connection:

        def add(said: Said, payload: object) -> None:
            with connection.transaction():
                shop.service.outbox.add_now(connection, payload, idempotency_key=said.idempotency_key, **options(said))

        shop.say(add)
    asyncio.run(shop.check())


def test_what_a_connection_of_sqlite_accepts_is_read(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path}/shop.db")
    asyncio.run(app_of(shop.service).open())
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:

        def add(said: Said, payload: object) -> None:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                shop.service.outbox.add_now(connection, payload, idempotency_key=said.idempotency_key, **options(said))

        shop.say(add)
    asyncio.run(shop.check())


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_what_a_transaction_accepts_is_read(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path}/shop.db" if store == "sqlite" else request.getfixturevalue("store_url")
    shop = Shop(url)

    async def work() -> None:
        async def publish(said: Said, payload: object) -> None:
            async with shop.service.transaction(**options(said)) as tx:
                tx.publish(payload, idempotency_key=said.idempotency_key)

        for said in SAID:
            try:
                await publish(said, shop.placed(f"k{said.number}", said.number, said.weight))
            except PosthouseError:
                continue
            shop.accepted.append(said)
        await shop.check()

    asyncio.run(work())
