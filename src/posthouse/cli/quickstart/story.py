"""The story of the demonstration: orders, a killed worker, a poison event, an operator, and figures that add up."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from posthouse.app import App, app_of
from posthouse.cli.quickstart.shop import OrderPaid, OrderPlaced, OrderShipped, billing, orders
from posthouse.cli.quickstart.workers import Workers
from posthouse.errors import PosthouseError
from posthouse.store import HeldEvent, HeldFilter
from posthouse.watch.status import Line, status

TENANTS = ("acme", "bolt", "crane")
PATIENCE = 50.0
"""Seconds for the whole story."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the demonstration counted. The first four come from the stores and the broker, the next three from comparing
    what was acknowledged with the ledger."""

    committed: int
    applied: int
    in_flight: int
    held: int
    lost: int
    duplicated: int
    out_of_order: int
    tenants: int
    orders: int
    workers_killed: int
    seconds: float

    @property
    def adds_up(self) -> bool:
        """Nothing lost, nothing twice, nothing out of order, and the sum is right."""
        wrong = (self.lost, self.duplicated, self.out_of_order, self.in_flight, self.held)
        return self.committed == self.applied and not any(wrong)


class Story:
    """Told step by step; `tell` gets a sentence for each, `show` how far billing is."""

    def __init__(self, folder: Path, count: int, tell: Callable[[str], None], show: Callable[[int, int], None]) -> None:
        self._workers = Workers(folder)
        self._count = count
        self._tell = tell
        self._show = show
        self._acknowledged: list[str] = []
        self._began = time.monotonic()
        for service in (orders, billing):
            broker = f"embedded:///{folder}/posthouse-log.db"
            App(service, store=f"sqlite:///{folder / service.name}.db", broker=broker)

    async def run(self) -> tuple[Figures, list[HeldEvent]]:
        """Everything, in order; returns the figures and what was held on the way."""
        try:
            await app_of(billing).opened.prepare()
            await app_of(orders).opened.prepare()
            return await self._acts()
        finally:
            self._workers.stop()
            await orders.aclose()
            await billing.aclose()

    async def _acts(self) -> tuple[Figures, list[HeldEvent]]:
        self._workers.start("orders")
        first, _ = self._workers.start("billing"), self._workers.start("billing")
        poison = f"{TENANTS[-1]}-{self._count // 6}"
        await self._place(range(self._count // 2), poison)
        await self._until(lambda line: line.applied >= len(self._acknowledged) // 4)
        self._workers.kill(first)
        self._tell(f"killed billing worker {first} with SIGKILL in the middle of its work, and started another")
        self._workers.start("billing")
        await self._place(range(self._count // 2, self._count), poison)
        await self._until(lambda line: line.applied + 3 == len(self._acknowledged) and line.held.get("dead") == 1)
        held = [event async for event in billing.held.find(HeldFilter(key=poison))]
        self._tell(
            f"order {poison} is poison: its first event is dead, {len(held) - 1} later ones wait behind it, all other keys went on"
        )
        dead = next(event for event in held if event.state == "dead")
        data = msgspec.json.encode(OrderPlaced(order_id=poison, total_cents=4200))
        await billing.held.edit(dead.id, data, lambda _, changed: None)
        self._tell("an operator gave it the right total: it runs again, and its key after it")
        await self._until(lambda line: line.applied == len(self._acknowledged) and line.in_flight == 0)
        return await self._figures(), held

    async def _place(self, numbers: range, poison: str) -> None:
        """Three facts for each order, in two transactions, each with its business row."""
        dice = random.Random(numbers.start)
        for number in numbers:
            tenant = TENANTS[number % len(TENANTS)]
            order_id = f"{tenant}-{number // len(TENANTS)}"
            total = 0 if order_id == poison else dice.randrange(500, 90_000)
            async with orders.transaction(tenant) as tx:
                await tx.execute("INSERT INTO orders VALUES (?, ?)", (tenant, order_id))
                said = [tx.publish(OrderPlaced(order_id=order_id, total_cents=total))]
            async with orders.transaction(tenant) as tx:
                said += [tx.publish(OrderPaid(order_id=order_id)), tx.publish(OrderShipped(order_id=order_id))]
            self._acknowledged += said
        self._tell(
            f"{len(TENANTS)} tenants placed {len(numbers)} orders: {3 * len(numbers)} facts committed with their rows"
        )

    async def _until(self, reached: Callable[[Line], bool]) -> None:
        while not reached(line := await self._line()):
            self._show(line.applied, len(self._acknowledged))
            if time.monotonic() - self._began > PATIENCE:
                raise PosthouseError(f"the demonstration did not get on within {PATIENCE:g} s: {line}")
            await asyncio.sleep(0.1)
        self._show(line.applied, len(self._acknowledged))

    async def _line(self) -> Line:
        [line] = (await status([orders, billing])).lines
        return line

    async def _figures(self) -> Figures:
        line = await self._line()
        async with app_of(billing).store.begin() as tx:
            ledger = await tx.execute("SELECT tenant, order_id, sequence, event_id FROM ledger ORDER BY line")
        times = Counter(str(row[3]) for row in ledger)
        numbers: dict[object, list[object]] = defaultdict(list)
        for tenant, order_id, sequence, _ in ledger:
            numbers[tenant, order_id].append(sequence)
        return Figures(
            committed=line.committed,
            applied=line.applied,
            in_flight=line.in_flight,
            held=sum(line.held.values()),
            lost=len(set(self._acknowledged) - set(times)),
            duplicated=sum(times.values()) - len(times),
            out_of_order=sum(seen != list(range(1, len(seen) + 1)) for seen in numbers.values()),
            tenants=len(TENANTS),
            orders=self._count,
            workers_killed=1,
            seconds=round(time.monotonic() - self._began, 1),
        )
