"""What a process of the kit does: produce facts, or run parts of the services."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from posthouse.clock import SystemClock
from posthouse.runtime import PARTS, Part
from posthouse.service import Service
from posthouse.status import Status, status
from tests.faults.kit.failpoint import Failpoint, Steps
from tests.faults.kit.quiet import Quiet
from tests.faults.kit.shop import Conditions, Kind, Poison, Shop, fact

TENANTS = ("t1", "t2", "t3")
LOOK = 0.002


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
    """Something to do in a process of its own, on the files of `folder`."""

    folder: str
    result: str = ""
    conditions: Conditions = Conditions()
    failpoint: Failpoint = Failpoint()

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


class Produce(Job, tag=True, kw_only=True):
    """Carry out `deals`, or make up deals until SIGTERM. Each intent has its own name as idempotency key, so that
    producing the same deals again changes nothing."""

    deals: Sequence[Deal] = ()
    name: str = "p"
    seed: int = 0
    pause: float = 0.0

    async def work(self, shop: Shop, steps: Steps) -> Result:
        stop = told_to_stop()
        acks = os.open(shop.folder / "acks.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        await shop.orders.open()
        steps.counting = True
        for deal in self.deals or made_up(self.name, self.seed):
            await self._carry_out(shop.orders, deal, acks)
            await asyncio.sleep(self.pause)
            if stop.is_set():
                break
        await shop.orders.aclose()
        return Result()

    async def _carry_out(self, orders: Service, deal: Deal, acks: int) -> None:
        names = [intent.n for intent in deal.intents]
        _note(acks, "broken" if deal.broken else "attempted", names)
        with contextlib.suppress(Broken):
            async with orders.transaction(deal.tenant) as tx:
                for intent in deal.intents:
                    row = (intent.n, deal.tenant, intent.key, intent.kind)
                    await tx.execute("INSERT OR IGNORE INTO said (n, tenant, key, kind) VALUES (?, ?, ?, ?)", row)
                    said = fact(intent.kind, intent.key, intent.n, intent.fails, intent.poison)
                    timer = intent.n if intent.after else None
                    tx.publish(said, idempotency_key=intent.n, after=intent.after, timer=timer)
                if deal.broken:
                    await tx.flush()
                    raise Broken
            _note(acks, "acknowledged", names)


class Work(Job, tag=True, kw_only=True):
    """Run parts of services: until SIGTERM, or until everything that these parts can move has been moved."""

    services: Sequence[str] = ("orders", "billing")
    parts: Sequence[Part] = PARTS
    until: Literal["told", "quiet"] = "told"
    tidy: bool = False

    async def work(self, shop: Shop, steps: Steps) -> Result:
        stop = told_to_stop()
        services = [shop.services[name] for name in self.services]
        runtimes = [await service.prepare() for service in services]
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
        with Quiet(Path(self.folder)) as quiet:
            while not quiet.reached(self.services, self.parts) and not await SystemClock().wait(stop, LOOK):
                pass
        stop.set()


AnyJob = Produce | Work


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


def _note(acks: int, word: str, names: Sequence[str]) -> None:
    """One write: it reaches the file whole, and stays there when the process is killed."""
    os.write(acks, "".join(f"{word} {name}\n" for name in names).encode())
