"""Plant: one service on PostgreSQL, in this process and on real time, that books what it hears from itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from posthouse import App, Event, Payload, Policy, RelaySettings, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.broker import Broker
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import Clock, SystemClock
from posthouse.errors import StoreError
from posthouse.runtime import PARTS, Part
from posthouse.store import Store
from posthouse.testing import rehost
from posthouse.watch.status import Status, status
from tests.kit.running import at_work as running
from tests.kit.waiting import eventually

QUICK = RelaySettings(lease=2.0, idle=0.2, first_delay=0.05, last_delay=0.3)


class Made(Payload):
    key: str
    number: int = 0


class Seen(Payload):
    number: int = 0


async def tables(tx: Tx) -> None:
    await tx.execute(
        "CREATE TABLE IF NOT EXISTS effect (id bigint GENERATED ALWAYS AS IDENTITY, tenant text, key text, number int)"
    )


BOOK = "INSERT INTO effect (tenant, key, number) VALUES ($1, $2, $3)"


async def book(event: Event[Made], tx: Tx) -> None:
    await tx.execute(BOOK, (event.tenant, event.data.key, event.data.number))


def plant() -> Service:
    """A service that owns both events; each test registers its own handlers."""
    made = Service("plant")
    App(made, settings=Settings(relay=QUICK))
    made.event("thing.made.v1", key="key")(Made)
    made.event("view.seen.v1")(Seen)
    made.setup(tables)
    return made


def booking(policy: Policy | None = None) -> Service:
    """One that books every thing that was made."""
    service = plant()
    service.on(Made, policy=policy or Policy(first_delay=0.1, last_delay=0.5))(book)
    return service


@asynccontextmanager
async def at_work(
    service: Service,
    store: str | Store,
    broker: Broker | None = None,
    *,
    clock: Clock | None = None,
    only: tuple[Part, ...] = PARTS,
) -> AsyncIterator[Service]:
    """The service, running."""
    clock = clock or SystemClock()
    rehost(service, store=store, broker=broker or MemoryBroker(clock=clock), clock=clock)
    if await app_of(service).store.pending_migrations():
        await app_of(service).store.upgrade()
    runtime = await app_of(service).opened.prepare()
    async with contextlib.aclosing(service), running(partial(runtime.run, only=only)):
        yield service


async def say(service: Service, key: str, *numbers: int, tenant: str = "t1") -> None:
    """Each in a transaction of its own."""
    for number in numbers:
        async with service.transaction(tenant) as tx:
            tx.publish(Made(key=key, number=number), idempotency_key=f"{tenant} {key} {number}")


async def effects(service: Service, key: str) -> list[int]:
    """The numbers that were booked for a key, in their order."""
    async with app_of(service).store.begin() as tx:
        found = await tx.execute("SELECT number FROM effect WHERE key = $1 ORDER BY id", (key,))
        return [int(str(number)) for (number,) in found]


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = 30.0) -> float:
    """Wait for a condition; the seconds that it took. While the database is away it does not hold."""
    began = time.monotonic()
    await eventually(lambda: holds(condition), what, within=seconds, pause=0.02)
    return time.monotonic() - began


async def holds(condition: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await condition()
    except StoreError:
        return False


async def settled(service: Service, seconds: float = 30.0) -> Status:
    """Wait until everything that was said is applied, or dead, and adds up."""
    figures: Status | None = None

    async def quiet() -> bool:
        nonlocal figures
        before, figures = figures, await status([service])
        moving = any(line.held.get(state) for line in figures.lines for state in ("retrying", "gap"))
        return figures.quiet and not moving and figures == before

    await until(quiet, "calm", seconds)
    assert figures is not None
    return figures
