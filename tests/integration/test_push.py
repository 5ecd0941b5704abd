"""Push on real sockets: a server that is killed over and over, and a sender that brings everything until it is accepted."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from posthouse import App, Service
from posthouse.app import app_of
from posthouse.broker import Frame
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.store import HeldFilter
from tests.integration.push_member import made
from tests.kit.servers.issuer import Issuer, issuing
from tests.kit.servers.pusher import Pusher, wrapped
from tests.kit.shop import OrderPlaced

ROOT = Path(__file__).parents[2]
TOPIC = "shop.orders.order"
OURS = f"projects/shop/subscriptions/billing.{TOPIC}.sub"
PATIENCE = 60.0


class Server:
    """One process at a time, always on the same port and files."""

    def __init__(self, folder: Path, keys: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self._folder = folder
        self._command = [
            sys.executable, "-m", "tests.integration.push_member", str(folder), str(self.port), keys,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        process = self._process = self._launched()
        async with asyncio.timeout(PATIENCE):
            while True:
                if await self._answers():
                    return
                assert process.poll() is None, (self._folder / "server.log").read_text()[-2000:]
                await asyncio.sleep(0.05)

    async def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            await asyncio.to_thread(self._process.wait, PATIENCE)
            self._process = None

    def _launched(self) -> subprocess.Popen[bytes]:
        with (self._folder / "server.log").open("ab") as log:
            return subprocess.Popen(self._command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    async def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.close()
            await writer.wait_closed()
            return True
        return False


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@contextlib.asynccontextmanager
async def serving(folder: Path, issuer: Issuer) -> AsyncIterator[Server]:
    server = Server(folder, issuer.url)
    try:
        await server.start()
        yield server
    finally:
        await server.end(signal.SIGTERM)


async def said(folder: Path, keys: int, count: int) -> list[Frame]:
    """What `orders` publishes: `count` events of each key."""
    orders = Service("orders", namespace="shop")
    App(orders, store=f"sqlite:///{folder}/orders.db", broker=MemoryBroker(clock=SystemClock()))
    orders.event("order.placed.v1", key="order_id")(OrderPlaced)
    async with orders.running():
        tap = await app_of(orders).broker.subscribe("tap", [TOPIC])
        for number in range(count):
            async with orders.transaction("t1") as tx:
                for key in range(keys):
                    tx.publish(OrderPlaced(order_id=f"o{key}", number=number))
        frames: list[Frame] = []
        async with asyncio.timeout(PATIENCE):
            while len(frames) < keys * count:
                frames += [delivery.frame for delivery in await tap.receive(1000, 1.0)]
    return frames


def invoices(folder: Path) -> dict[str, list[int]]:
    with contextlib.closing(sqlite3.connect(f"file:{folder}/billing.db?mode=ro", uri=True)) as db:
        found: dict[str, list[int]] = {}
        for order_id, number in db.execute("SELECT order_id, number FROM invoice ORDER BY id"):
            found.setdefault(order_id, []).append(number)
        return found


async def until_nothing_is_held(folder: Path, expected: dict[str, list[int]]) -> None:
    """What was brought a second time is held first, and then run by the service's own loop."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if invoices(folder).keys() == expected.keys() and all(
                len(invoices(folder)[key]) >= len(numbers) for key, numbers in expected.items()
            ):
                return
            await asyncio.sleep(0.05)


async def more_accepted(pusher: Pusher, count: int, pushing: asyncio.Task[None]) -> None:
    """Until so many more were accepted, or all of them."""
    enough = pusher.answers[204] + count
    while True:
        if pushing.done() or pusher.answers[204] >= enough:
            return
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_server_killed_over_and_over_applies_each_event_once_and_in_order(
    tmp_path: Path, issuer: Issuer
) -> None:
    frames = await said(tmp_path, keys=12, count=30)
    expected = {f"o{key}": list(range(30)) for key in range(12)}
    async with serving(tmp_path, issuer) as server:
        pusher = Pusher(server.url, OURS, issuer.token)
        pushing = asyncio.create_task(pusher.push(frames, deadline=100))
        kills = 0
        while not pushing.done() and kills < 6:
            await more_accepted(pusher, 30, pushing)
            if not pushing.done():
                await server.end(signal.SIGKILL)
                kills += 1
                await server.start()
        await pushing
        await until_nothing_is_held(tmp_path, expected)
    assert kills == 6
    assert pusher.answers[None] > 0, "a request was cut off by a kill"
    assert invoices(tmp_path) == expected


async def test_every_204_was_committed_before_it_was_said(tmp_path: Path, issuer: Issuer) -> None:
    """After a SIGKILL right behind the answer the effect is there, or the event is held."""
    frames = await said(tmp_path, keys=3, count=1)
    async with serving(tmp_path, issuer) as server:
        for frame in frames:
            pusher = Pusher(server.url, OURS, issuer.token)
            await pusher.push([frame], deadline=30)
            await server.end(signal.SIGKILL)
            assert pusher.answers == {204: 1}
            assert frame.key is not None
            assert invoices(tmp_path)[frame.key.removeprefix("t1:")] == [0]
            await server.start()


async def test_two_servers_behind_one_name_share_the_work(tmp_path: Path, issuer: Issuer) -> None:
    """Each request goes to either of them, as behind a load balancer."""
    frames = await said(tmp_path, keys=6, count=10)
    async with serving(tmp_path, issuer) as one, serving(tmp_path, issuer) as other:
        pushers = [Pusher(server.url, OURS, issuer.token) for server in (one, other)]
        for number in range(10):
            turn = frames[number * 6 : number * 6 + 6]
            await asyncio.gather(pushers[0].push(turn[:3], deadline=60), pushers[1].push(turn[3:], deadline=60))
            pushers.reverse()
    assert invoices(tmp_path) == {f"o{key}": list(range(10)) for key in range(6)}


async def test_a_large_event_passes_the_real_server(tmp_path: Path, issuer: Issuer) -> None:
    frame = Frame(topic=TOPIC, id="large", key="t1:o1", body=b"x" * 9_000_000)
    async with serving(tmp_path, issuer) as server, httpx.AsyncClient(timeout=30, trust_env=False) as client:
        headers = {"Authorization": f"Bearer {issuer.token()}"}
        answer = await client.post(server.url, json=wrapped(frame, OURS), headers=headers)
    assert answer.status_code == 204
    billing = made(str(tmp_path))
    try:
        await app_of(billing).open()
        (held,) = await app_of(billing).store.held.find(HeldFilter())
        assert held.state == "quarantined"
        assert len(held.body) == 9_000_000
    finally:
        await billing.aclose()
