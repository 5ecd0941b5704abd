"""`posthouse run` as a real process: it waits for what is away at the start, and it ends in time whatever hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from posthouse.clock import SystemClock
from posthouse.stores import open_store
from tests.kit.servers.nats import NatsServer
from tests.kit.servers.ports import free_port
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.redis import RedisServer

PATIENCE = 60.0
BUDGET = 3.0

SHOP = """
import asyncio
import pathlib

from posthouse import App, Event, Service, Tx

shop = Service("shop")
App(shop, store={store!r}, broker={broker!r})


@shop.event("order.placed.v1", key="order")
class OrderPlaced:
    order: str


@shop.on(OrderPlaced)
async def note(event: Event[OrderPlaced], tx: Tx) -> None:
    with pathlib.Path("done").open("a") as file:
        file.write(event.data.order + "\\n")


async def place(order: str) -> None:
    async with shop.transaction("t1") as tx:
        tx.publish(OrderPlaced(order=order))
    await shop.aclose()
"""

DEAF = """
import asyncio
import pathlib

from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.clock import SystemClock


async def hang() -> None:
    pathlib.Path("hangs").touch()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


def hanging_in(verb: str) -> EmbeddedBroker:
    broker = EmbeddedBroker("log.db", clock=SystemClock())
    if verb in ("publish", "aclose"):
        setattr(broker, verb, lambda *_: hang())
        if verb == "aclose":
            return broker
        return broker
    subscribe = broker.subscribe

    async def joined(*given, **named):
        stream = await subscribe(*given, **named)
        setattr(stream, verb, lambda *_: hang())
        return stream

    broker.subscribe = joined
    return broker
"""


class House:
    """A folder with one service, and the processes that run it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []

    def furnish(self, store: str, broker: str) -> None:
        (self.folder / "shop.py").write_text(SHOP.format(store=store, broker=broker))

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / "run.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", "from posthouse.cli import main; main()", "run", "shop", *options],
                cwd=self.folder,
                env=_environment(),
                stderr=log,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    async def place(self, order: str) -> None:
        code = f"import asyncio, shop; asyncio.run(shop.place({order!r}))"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=self.folder, env=_environment())
        assert await process.wait() == 0

    def log(self) -> str:
        return (self.folder / "run.log").read_text()

    def done(self) -> list[str]:
        place = self.folder / "done"
        return place.read_text().split() if place.exists() else []

    async def until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < deadline, f"{what} did not happen; the log:\n{self.log()}"
            await asyncio.sleep(0.02)

    async def ended(self, process: subprocess.Popen[bytes]) -> tuple[int | None, float]:
        """The code, and the seconds that it took."""
        began = time.monotonic()
        await self.until(lambda: process.poll() is not None, "the end")
        return process.poll(), time.monotonic() - began


def _environment() -> dict[str, str]:
    ours = ("POSTHOUSE_STORE", "POSTHOUSE_BROKER", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in ours}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    for process in made.running:
        if process.poll() is None:
            process.kill()
        process.wait()


def through(url: str, port: int) -> str:
    """The same server, by another port."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{port}")).geturl()


async def upgraded(url: str) -> None:
    store = open_store(url, clock=SystemClock())
    await store.upgrade()
    await store.aclose()


# Starting


async def test_a_broker_that_comes_later_is_waited_for(house: House, nats_server: NatsServer) -> None:
    port = free_port()
    house.furnish("sqlite:///shop.db", f"nats://127.0.0.1:{port}")
    process = house.start()
    await house.until(lambda: "the broker (nats://127.0.0.1" in house.log(), "the first try")
    assert process.poll() is None
    async with Proxy("127.0.0.1", nats_server.port, listen=port):
        await house.until(lambda: "shop: relay, consumers, timers on" in house.log(), "the start")
        await house.place("a")
        await house.until(lambda: house.done() == ["a"], "the effect")
        process.send_signal(signal.SIGTERM)
        assert (await house.ended(process))[0] == 0


async def test_a_database_that_comes_later_is_waited_for(house: House, postgres_url: str) -> None:
    await upgraded(postgres_url)
    port = free_port()
    house.furnish(through(postgres_url, port), "embedded:///log.db?single_host=true")
    process = house.start()
    await house.until(lambda: "the database (postgresql://" in house.log(), "the first try")
    assert process.poll() is None
    async with Proxy("127.0.0.1", urlsplit(postgres_url).port or 0, listen=port):
        await house.until(lambda: "shop: relay, consumers, timers on" in house.log(), "the start")
        await house.place("a")
        await house.until(lambda: house.done() == ["a"], "the effect")
        process.send_signal(signal.SIGTERM)
        assert (await house.ended(process))[0] == 0


async def test_a_database_session_that_ends_during_the_start_is_begun_anew(house: House, postgres_url: str) -> None:
    await upgraded(postgres_url)
    async with Proxy("127.0.0.1", urlsplit(postgres_url).port or 0) as link:
        house.furnish(through(postgres_url, link.port), "embedded:///log.db?single_host=true")
        link.after(1, "cut")
        process = house.start()
        for said in (4, 7, 0):
            await house.until(lambda: link.refuses, "the cut")
            await link.heal()
            if said:
                link.after(said, "cut")
        await house.until(lambda: "shop: relay, consumers, timers on" in house.log(), "the start")
        await house.place("a")
        await house.until(lambda: house.done() == ["a"], "the effect")
        process.send_signal(signal.SIGTERM)
        assert (await house.ended(process))[0] == 0


@pytest.mark.parametrize("away", ["refused", "silent"])
async def test_whoever_waits_for_the_broker_still_obeys(house: House, nats_server: NatsServer, away: str) -> None:
    async with Proxy("127.0.0.1", nats_server.port) as link:
        await (link.cut() if away == "refused" else link.stall())
        house.furnish("sqlite:///shop.db", f"nats://127.0.0.1:{link.port}")
        process = house.start()
        await house.until(lambda: " is away, start waits" in house.log(), "the first try")
        process.send_signal(signal.SIGTERM)
        code, seconds = await house.ended(process)
        assert code == 0
        assert seconds < 5


async def test_without_waiting_it_ends_at_once_and_says_why(house: House) -> None:
    house.furnish("sqlite:///shop.db", f"nats://127.0.0.1:{free_port()}")
    code, _ = await house.ended(house.start("--no-wait"))
    assert code not in (0, None)
    assert "is away" not in house.log()


@pytest.mark.parametrize(
    "broker", ["nats://nobody:wrong@127.0.0.1:{port}", "nats://127.0.0.1:{port}?no_such_option=1", "nothing://x"]
)
async def test_what_is_wrong_fails_at_once(house: House, nats_server: NatsServer, broker: str) -> None:
    house.furnish("sqlite:///shop.db", broker.format(port=nats_server.port))
    code, _ = await house.ended(house.start())
    assert code not in (0, None)
    assert "is away" not in house.log()


# Ending


@pytest.mark.parametrize("verb", ["publish", "receive", "ack", "aclose"])
async def test_a_driver_that_hangs_and_hears_nothing_cannot_keep_the_process(house: House, verb: str) -> None:
    house.furnish("sqlite:///shop.db", "")
    text = (house.folder / "shop.py").read_text().replace("broker=''", f"broker=hanging_in({verb!r})")
    (house.folder / "shop.py").write_text(DEAF + text)
    process = house.start("--stop-within", str(BUDGET))
    await house.until(lambda: "shop: relay, consumers, timers on" in house.log(), "the start")
    (house.folder / "place.py").write_text(SHOP.format(store="sqlite:///shop.db", broker="embedded:///other.db"))
    place = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import asyncio, place; asyncio.run(place.place('a'))", cwd=house.folder,
        env=_environment(),
    )  # fmt: skip
    assert await place.wait() == 0
    if verb != "aclose":
        await house.until(lambda: (house.folder / "hangs").exists(), "the hang")
    else:
        await house.until(lambda: house.done() == ["a"], "the effect")
    process.send_signal(signal.SIGTERM)
    code, seconds = await house.ended(process)
    assert code == 0
    assert BUDGET - 0.5 < seconds < BUDGET + 8
    assert "given up" in house.log()


@pytest.mark.parametrize("side", ["the database", "the broker"])
async def test_a_server_that_swallows_every_byte_cannot_keep_the_process(
    house: House, postgres_url: str, redis_server: RedisServer, side: str
) -> None:
    await upgraded(postgres_url)
    async with (
        Proxy("127.0.0.1", urlsplit(postgres_url).port or 0) as database,
        Proxy("127.0.0.1", redis_server.port) as broker,
    ):
        house.furnish(through(postgres_url, database.port), through(redis_server.url, broker.port))
        process = house.start("--stop-within", str(BUDGET))
        await house.until(lambda: "shop: relay, consumers, timers on" in house.log(), "the start")
        await house.place("a")
        await house.until(lambda: house.done() == ["a"], "the effect")
        await (database if side == "the database" else broker).stall()
        process.send_signal(signal.SIGTERM)
        code, seconds = await house.ended(process)
        assert code == 0
        assert seconds < BUDGET + 8


async def test_a_file_that_another_process_has_locked_cannot_keep_the_process(house: House) -> None:
    house.furnish("sqlite:///shop.db", "embedded:///log.db")
    process = house.start("--stop-within", str(BUDGET))
    await house.place("a")
    await house.until(lambda: house.done() == ["a"], "the effect")
    other = sqlite3.connect(house.folder / "log.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    process.send_signal(signal.SIGTERM)
    code, seconds = await house.ended(process)
    other.close()
    assert code == 0
    assert seconds < BUDGET + 8
