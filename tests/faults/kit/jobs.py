"""What a process of the kit does: produce facts, or run parts of the services."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from posthouse.app import app_of
from posthouse.clock import SystemClock
from posthouse.errors import BrokerError, StoreError
from posthouse.runtime import PARTS, Part, Runtime
from posthouse.service import Service
from posthouse.watch.status import Status, status
from tests.faults.kit.failpoint import Failpoint, Steps
from tests.faults.kit.quiet import Quiet
from tests.faults.kit.shop import Conditions, Fact, Kind, Poison, Shop, fact

log = logging.getLogger("posthouse.kit")

T = TypeVar("T")

TENANTS = ("t1", "t2", "t3")
LOOK, LOOK_AT_SERVER = 0.002, 0.02
SAID = "INSERT INTO said (n, tenant, key, kind) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """One fact to be said. `n` is unique in a world; `after` makes it a timer."""

    n: str
    kind: Kind
    key: str
    after: float = 0.0
    fails: int = 0
    poison: Poison = ""


class Deal(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction of the producer; a broken one is rolled back after everything was written."""

    tenant: str
    intents: Sequence[Intent]
    broken: bool = False


class Result(msgspec.Struct, kw_only=True):
    """What a process that lived to its end has to say."""

    steps: list[str] = []
    figures: Status | None = None


class Job(msgspec.Struct, kw_only=True):
    """Something to do in a process of its own, on the files of `folder`. A `stubborn` one waits for a database that is
    away."""

    folder: str
    result: str = ""
    conditions: Conditions = Conditions()
    failpoint: Failpoint = Failpoint()
    stubborn: bool = False

    def __call__(self) -> None:
        """Do it; what is returned is written to the file `result`."""
        folder = Path(self.folder)
        logging.basicConfig(
            filename=folder / "log.txt", level=logging.WARNING, format="%(process)d %(name)s %(message)s"
        )
        steps = Steps(self.failpoint)
        steps.install()
        result = asyncio.run(self.work(Shop(folder, self.conditions), steps))
        result.steps = steps.taken
        Path(self.result).write_bytes(msgspec.json.encode(result))

    async def work(self, shop: Shop, steps: Steps) -> Result:
        """The job itself; it lets the steps count once everything is open."""
        raise NotImplementedError

    async def reach(self, stop: asyncio.Event, opening: Callable[[], Awaitable[T]]) -> T:
        """Open everything, when the time has come."""
        while True:
            try:
                return await opening()
            except (StoreError, BrokerError) as error:
                if not self.stubborn or stop.is_set():
                    raise
                log.warning("opening waits: %s", error)
                await asyncio.sleep(0.05)


class Produce(Job, tag=True, kw_only=True):
    """Carry out `deals`, or make up deals until SIGTERM. Each intent has its own name as idempotency key, so that
    producing the same deals again changes nothing. A stubborn producer does so until it was told that it is done."""

    deals: Sequence[Deal] = ()
    name: str = "p"
    seed: int = 0
    pause: float = 0.0

    async def work(self, shop: Shop, steps: Steps) -> Result:
        stop = told_to_stop()
        acks = opened_notes(shop.folder)
        await self.reach(stop, lambda: opened(shop))
        steps.counting = True
        for deal in self.deals or made_up(self.name, self.seed):
            note(acks, "broken" if deal.broken else "attempted", deal)
            await self._carry_out(shop, deal, acks, stop)
            await asyncio.sleep(self.pause)
            if stop.is_set():
                break
        await shop.orders.aclose()
        return Result()

    async def _carry_out(self, shop: Shop, deal: Deal, acks: int, stop: asyncio.Event) -> None:
        """Until it is done or broken, however often the database is away."""
        while not stop.is_set():
            try:
                await self._try(shop, deal)
            except Broken:
                return
            except StoreError as error:
                if not self.stubborn:
                    raise
                log.warning("%s tries again: %s", deal.intents[0].n, error)
                await asyncio.sleep(0.05)
            else:
                note(acks, "acknowledged", deal)
                return

    async def _try(self, shop: Shop, deal: Deal) -> None:
        async with shop.orders.transaction(deal.tenant) as tx:
            for intent in deal.intents:
                timer = intent.n if intent.after else None
                tx.publish(fact_of(intent), idempotency_key=intent.n, after=intent.after, timer=timer)
            await tx.flush()  # takes the locks of the keys: what is noted from here on is in the order of the commits
            for intent in deal.intents:
                await tx.execute(shop.sql(SAID), row_of(deal, intent))
            if deal.broken:
                raise Broken


class InboundEvent(Job, tag=True, kw_only=True):
    """Run parts of services: until SIGTERM, or until everything that these parts can move has been moved."""

    services: Sequence[str] = ("orders", "billing")
    parts: Sequence[Part] = PARTS
    until: Literal["told", "quiet"] = "told"
    tidy: bool = False

    async def work(self, shop: Shop, steps: Steps) -> Result:
        stop = told_to_stop()
        services = [shop.services[name] for name in self.services]
        runtimes = await self.reach(stop, lambda: prepared(shop, services))
        steps.counting = True
        quiet = asyncio.create_task(self._stop_when_quiet(stop)) if self.until == "quiet" else None
        async with asyncio.TaskGroup() as group:
            for runtime in runtimes:
                group.create_task(runtime.run(stop, self.parts))
        if quiet is not None:
            await quiet
        if self.tidy:
            for runtime in runtimes:
                await runtime.tidy()
        steps.counting = False
        figures = await status(list(shop.services.values())) if self.until == "quiet" and len(services) == 2 else None
        for service in services:
            await service.aclose()
        return Result(figures=figures)

    async def _stop_when_quiet(self, stop: asyncio.Event) -> None:
        look = LOOK_AT_SERVER if self.conditions.database else LOOK
        with self.conditions.books(Path(self.folder), patience=0) as books:
            quiet = Quiet(books)
            while not quiet.reached(self.services, self.parts) and not await SystemClock().wait(stop, look):
                pass
        stop.set()


class Broken(Exception):
    """The producer changes its mind."""


def made_up(name: str, seed: int) -> Iterator[Deal]:
    """Deals without end: few keys and many, several facts in a transaction, some rolled back, some later."""
    dice = random.Random(f"{name} {seed}")
    n = 0
    while True:
        intents = []
        for _ in range(dice.choice((1, 1, 1, 2, 5))):
            n += 1
            intents.append(_intent(f"{name}-{n}", dice))
        yield Deal(tenant=dice.choice(TENANTS), intents=intents, broken=dice.random() < 0.05)


def _intent(n: str, dice: random.Random) -> Intent:
    kind: Kind = dice.choice(("placed", "placed", "cancelled", "moved", "seen", "expired"))
    if kind == "expired":
        return Intent(n=n, kind=kind, key=f"h-{n}", after=dice.uniform(0.1, 3.0))
    return Intent(n=n, kind=kind, key=f"{kind[0] if kind != 'cancelled' else 'p'}{dice.randrange(12)}")


def told_to_stop() -> asyncio.Event:
    """Set when SIGTERM comes, or has come since the process was born."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    return stop


async def opened(shop: Shop) -> None:
    """All that a producer needs."""
    await shop.upgrade([shop.orders])
    await app_of(shop.orders).open()


async def prepared(shop: Shop, services: Sequence[Service]) -> list[Runtime]:
    """All that these services need to run."""
    await shop.upgrade(services)
    return [await app_of(service).opened.prepare() for service in services]


def opened_notes(folder: Path) -> int:
    """Where the producers of a world note what they were told."""
    return os.open(folder / "acks.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def note(acks: int, word: str, deal: Deal) -> None:
    """One write: it reaches the file whole, and stays there when the process is killed."""
    os.write(acks, "".join(f"{word} {intent.n}\n" for intent in deal.intents).encode())


def fact_of(intent: Intent) -> Fact:
    """The payload that says it."""
    return fact(intent.kind, intent.key, intent.n, intent.fails, intent.poison)


def row_of(deal: Deal, intent: Intent) -> tuple[str, str, str, str]:
    """What the producer writes into its own table."""
    return intent.n, deal.tenant, intent.key, intent.kind
