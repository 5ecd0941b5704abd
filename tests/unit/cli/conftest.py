"""A project folder with one service, and the command line run inside it as a person would."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from posthouse.app import app_of
from posthouse.broker import Frame
from posthouse.cli import app
from posthouse.cli.target import load
from posthouse.clock import new_id
from posthouse.service import Service
from posthouse.store import Counts

SHOP = """
from posthouse import Event, Policy, Service, Tx

orders = Service("orders", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced:
    order_id: str
    total_cents: int
    note: str = ""


@orders.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS invoice (order_id TEXT, total_cents INTEGER)")


@orders.on(OrderPlaced, policy=Policy(max_attempts=1))
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    if event.data.total_cents < 0:
        raise ValueError(f"a negative total: [bold]{event.data.total_cents}[/bold] \\x1b[31mcents")
    await tx.execute("INSERT INTO invoice VALUES (?, ?)", (event.data.order_id, event.data.total_cents))
"""


class Project:
    """A folder with `shop.py`. Every command imports it anew, as every process does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner = CliRunner()
        self._others = set(sys.modules)
        self.write("shop.py", SHOP)

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text, encoding="utf-8")
        return file

    def run(self, *arguments: str, input: str | None = None, columns: int | None = None) -> Result:
        """One command; whatever it raises that is not an exit fails the test."""
        self.forget()
        env = {} if columns is None else {"COLUMNS": str(columns)}
        return self.runner.invoke(app, list(arguments), input=input, env=env, catch_exceptions=False)

    def json(self, *arguments: str) -> object:
        """What a command that must succeed prints as JSON."""
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def place(self, *orders: tuple[str, int], after: float | None = None, timer: str | None = None) -> None:
        """Commit one OrderPlaced per (order_id, total_cents)."""

        async def work(service: Service) -> None:
            made = sys.modules["shop"].OrderPlaced
            async with service.transaction("t1") as tx:
                for order_id, total in orders:
                    tx.publish(made(order_id=order_id, total_cents=total), after=after, timer=timer)

        self.with_service(work)

    def settle(self, applied: int, held: int) -> None:
        """Run the service until so many events are applied and held."""
        self._run_until(
            lambda counts: (
                (sum(counts.applied.values()), sum(counts.held.values())) == (applied, held)
                and not any(counts.unsent.values())
            )
        )

    def put(self, *bodies: bytes) -> None:
        """Frames of a stranger in the topic."""

        async def work(service: Service) -> None:
            frames = [Frame(topic="shop.orders.order", id=new_id(), body=body) for body in bodies]
            assert all(verdict.accepted for verdict in await app_of(service).broker.publish(frames))

        self.with_service(work)

    def settle_strange(self, strange: int) -> None:
        """Run the service until so many frames are quarantined in which no event could be read, and nothing moves."""
        self._run_until(
            lambda counts: (
                sum(counts.strange.values()) == strange and sum(counts.unsent.values()) == sum(counts.refused.values())
            )
        )

    def settle_stuck(self, stuck: int) -> None:
        """Run the service until so many rows are stuck."""
        self._run_until(lambda counts: counts.stuck == stuck)

    def invoices(self) -> list[tuple[object, ...]]:
        """What the handler has written."""
        found: list[tuple[object, ...]] = []

        async def work(service: Service) -> None:
            async with service.transaction("t1") as tx:
                found.extend(await tx.execute("SELECT order_id, total_cents FROM invoice ORDER BY rowid"))

        self.with_service(work)
        return found

    def forget(self) -> None:
        """The next import starts afresh."""
        for name in sys.modules.keys() - self._others:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(self.folder)):
                del sys.modules[name]

    def _run_until(self, reached: Callable[[Counts], bool]) -> None:
        async def work(service: Service) -> None:
            stop = asyncio.Event()
            running = asyncio.create_task(service.run(stop=stop))
            deadline = time.monotonic() + 20
            while not reached(counts := await app_of(service).store.counts()):
                assert time.monotonic() < deadline, f"unsettled: {counts}"
                await asyncio.sleep(0.01)
            stop.set()
            await running

        self.with_service(work)

    def with_service(self, work: Callable[[Service], Awaitable[None]]) -> None:
        self.forget()
        service = load("shop:orders")

        async def whole() -> None:
            try:
                await work(service)
            finally:
                await service.aclose()

        asyncio.run(whole())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("COLUMNS", "FORCE_COLOR", "POSTHOUSE_STORE", "POSTHOUSE_BROKER", "EDITOR", "VISUAL"):
        monkeypatch.delenv(name, raising=False)
    made = Project(tmp_path)
    yield made
    made.forget()


@pytest.fixture
def poisoned(project: Project) -> Project:
    """Two orders are invoiced; of order `bad` one event is dead and another waits behind it."""
    project.place(("a", 100), ("bad", -1), ("bad", 7), ("b", 200))
    project.settle(applied=2, held=2)
    return project
