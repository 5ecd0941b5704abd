"""`posthouse run --http` and `posthouse watch` as real processes: they tell the truth while loops hang, stores are away, workers are
dead and clients are hostile."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from posthouse.clock import SystemClock
from posthouse.stores import open_store
from posthouse.watch.asking import WITHIN
from posthouse.watch.pages import SILENT
from tests.kit.servers.ports import free_port
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.tls import Wardrobe
from tests.kit.shell import PATIENCE, Shell
from tests.kit.waiting import eventually, until

SHOP = """
import time

from posthouse import App, Event, Service, Tx

shop = Service("shop")
{app}


@shop.event("order.placed.v1", key="order")
class OrderPlaced:
    order: str


@shop.on(OrderPlaced, consumer="billing")
async def bill(event: Event[OrderPlaced], tx: Tx) -> None:
    if event.data.order == "block":
        time.sleep(3600)


async def place(*orders: str) -> None:
    async with shop.transaction("t1") as tx:
        for order in orders:
            tx.publish(OrderPlaced(order=order))
    await shop.aclose()
"""

ANY = ("--http", "127.0.0.1:0")
BILLING = 'consumer="shop.billing",service="shop",topic="shop.order"'


class House(Shell):
    """A folder with one service."""

    def furnish(self, app: str = "") -> None:
        (self.folder / "shop.py").write_text(SHOP.format(app=app))

    def place(self, *orders: str) -> None:
        self.call("-c", f"import asyncio, shop; asyncio.run(shop.place(*{orders!r}))")

    def serve(self, *arguments: str, verb: str = "run") -> tuple[subprocess.Popen[bytes], str]:
        """A process that serves, and where."""
        before = len(self.places())
        process = self.start("shop", *arguments, verb=verb)
        self.wait_until(lambda: len(self.places()) > before, "serving")
        return process, self.places()[-1]

    def places(self) -> list[str]:
        return re.findall(r"figures at (https?://\S+)/metrics", self.log())


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as made:
        made.furnish()
        yield made


def get(url: str) -> httpx.Response:
    return httpx.get(url, timeout=WITHIN + 5)


def figure(base: str, name: str, labels: str) -> float | None:
    """One figure of a scrape, its labels in order of the alphabet."""
    found = re.search(rf"^posthouse_{name}{{{re.escape(labels)}}} (\S+)$", get(f"{base}/metrics").text, re.MULTILINE)
    return None if found is None else float(found[1])


def test_a_run_serves_what_it_does_until_it_is_asked_to_stop(house: House) -> None:
    process, base = house.serve(*ANY)
    until(lambda: get(f"{base}/readyz").status_code == 200, "readiness", within=PATIENCE)
    assert get(f"{base}/healthz").text == "live\n"
    house.place("a", "b", "c")
    until(lambda: figure(base, "consumer_applied_total", BILLING) == 3, "three applied", within=PATIENCE, pause=0.1)
    scraped = get(f"{base}/metrics").text
    assert 'posthouse_store_up{service="shop"} 1.0' in scraped
    assert f"posthouse_consumer_unaccounted{{{BILLING}}} 0.0" in scraped
    assert (
        f"posthouse_events_consumed_total{{{BILLING.replace('service', 'result=*ok*,service')}}} 3.0".replace("*", '"')
        in scraped
    )
    until(lambda: get(f"{base}/scale?consumer=shop.billing").json().get("rate") is not None, "a rate", pause=0.1)
    work = get(f"{base}/scale?consumer=shop.billing").json()
    assert (work["service"], work["backlog"], work["workers"], work["drain_seconds"]) == ("shop", 0, 1, 0.0)
    assert get(f"{base}/scale").json()["relays"]["shop"]["workers"] == 1
    second = house.start("shop", "--http", base.removeprefix("http://"))
    assert second.wait(PATIENCE) == 2
    assert f"port {urlsplit(base).port} is taken, another process listens there" in house.log()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert "stopped, 0 tasks left behind" in house.log()
    with pytest.raises(httpx.ConnectError):
        get(f"{base}/healthz")


def test_a_port_that_is_taken_ends_a_run_before_anything_is_started(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for verb in ("run", "watch"):
            process = house.start("shop", "--http", f"127.0.0.1:{port}", verb=verb)
            assert process.wait(PATIENCE) == 2
    assert house.log().count(f"posthouse: --http 127.0.0.1:{port}: port {port} is taken") == 2
    assert [file.name for file in house.folder.glob("*.db")] == []


def test_a_loop_that_is_blocked_is_not_live_and_its_figures_are_served_all_the_same(house: House) -> None:
    _, base = house.serve(*ANY)
    house.place("a")
    until(lambda: figure(base, "consumer_applied_total", BILLING) == 1, "one applied", within=PATIENCE, pause=0.1)
    house.place("block")
    until(lambda: get(f"{base}/healthz").status_code == 503, "the sign of it", within=SILENT + PATIENCE, pause=0.1)
    assert "not live\nthe event loop has not turned for" in get(f"{base}/healthz").text
    assert get(f"{base}/readyz").status_code == get(f"{base}/scale").status_code == 503
    began = time.monotonic()
    scraped = get(f"{base}/metrics")
    assert time.monotonic() - began < 2
    assert 'posthouse_events_consumed_total{consumer="shop.billing",result="ok"' in scraped.text
    assert "posthouse_store_up" not in scraped.text
    assert float(re.findall(r"^posthouse_loop_silent_seconds (\S+)", scraped.text, re.MULTILINE)[0]) > SILENT


def test_ages_grow_while_every_worker_is_dead(house: House) -> None:
    relay = house.start("shop", "--only", "relay")
    house.place("a")
    house.wait_until(lambda: house.rows("posthouse-log.db", "SELECT 1 FROM frames") != [], "an event at the broker")
    relay.kill()
    relay.wait()
    house.place("b")
    _, base = house.serve(*ANY, verb="watch")
    for name, labels in (("consumer_lag_seconds", BILLING), ("outbox_oldest_unsent_seconds", 'service="shop"')):
        first = figure(base, name, labels)
        assert first is not None
        assert first > 0
        until(lambda: (figure(base, name, labels) or 0) > first + 1, "ageing", within=PATIENCE)  # noqa: B023
    assert figure(base, "consumer_in_flight", BILLING) == 2
    work = get(f"{base}/scale?consumer=shop.billing").json()
    assert (work["backlog"], work["workers"], work["drain_seconds"]) == (2, 0, None)
    assert get(f"{base}/scale?relay=shop").json()["backlog"] == 1
    assert get(f"{base}/readyz").status_code == 200
    scraped = get(f"{base}/metrics").text
    assert 'posthouse_workers{part="consumers",service="shop"} 0.0' in scraped, "a watch is no worker"
    assert "posthouse_build_info" not in scraped


def test_hostile_clients_hold_nothing_up(house: House) -> None:
    _, base = house.serve(*ANY)
    place = (urlsplit(base).hostname or "", urlsplit(base).port or 0)
    with ExitStack() as hostile:
        for number in range(200):
            client = hostile.enter_context(socket.create_connection(place, timeout=10))
            client.sendall((b"GET /metrics HTTP/1.1\r\nHost: ", b"", b"GET /" + b"x" * 60_000)[number % 3])
        house.place(*(f"o{number}" for number in range(50)))
        until(
            lambda: figure(base, "consumer_applied_total", BILLING) == 50, "fifty applied", within=PATIENCE, pause=0.1
        )
        assert get(f"{base}/healthz").status_code == 200


def test_a_run_that_waits_for_its_broker_is_live_and_says_for_what_it_waits(house: House) -> None:
    """On a public address, which it says once."""
    port = free_port()
    house.furnish(f"App(shop, broker='nats://127.0.0.1:{port}')")
    process, public = house.serve("--http", "0.0.0.0:0")
    base = public.replace("0.0.0.0", "127.0.0.1")
    until(lambda: f"127.0.0.1:{port}" in get(f"{base}/readyz").text, "the words for it", within=PATIENCE, pause=0.1)
    answer = get(f"{base}/readyz")
    assert answer.status_code == 503
    assert answer.text.startswith("not ready\nit has not begun to run")
    assert "shop, broker: waits for" in answer.text
    assert get(f"{base}/healthz").status_code == 200
    assert get(f"{base}/metrics").status_code == 200
    assert get(f"{base}/scale?consumer=shop.billing").status_code == 503
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert house.log().count(f"{public} speaks plain text beyond this host") == 1
    assert house.log().count(f"whoever reaches {public.removeprefix('http://')} can read it") == 1


@pytest.mark.parametrize("verb", ["run", "watch"])
def test_figures_by_tls_are_for_those_who_show_a_certificate(house: House, verb: str) -> None:
    house.place("a")
    clothes = Wardrobe(house.folder / "tls")
    files = ("--tls-cert", f"{clothes.both}", "--tls-client-ca", f"{clothes.ca}")
    _, public = house.serve("--http", "0.0.0.0:0", *files, verb=verb)
    base = public.replace("0.0.0.0", "127.0.0.1")
    assert base.startswith("https://")
    context = ssl.create_default_context(cafile=clothes.ca)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{base}/metrics", verify=context)
    context.load_cert_chain(clothes.client, clothes.client_key)
    assert "posthouse_" in httpx.get(f"{base}/metrics", verify=context, timeout=PATIENCE).text
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{base.replace('https', 'http')}/metrics")
    assert not re.search("plain text|whoever reaches", house.log())


async def test_a_store_that_is_away_is_0_in_time_and_the_watch_goes_on(house: House, postgres_url: str) -> None:
    store = open_store(postgres_url, clock=SystemClock())
    await store.upgrade()
    await store.aclose()
    parts = urlsplit(postgres_url)
    async with Proxy(parts.hostname or "", parts.port or 5432) as proxy:
        url = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}")).geturl()
        house.furnish(f"App(shop, store={url!r}, broker={url!r})")
        await proxy.cut()
        _, base = await asyncio.to_thread(house.serve, *ANY, verb="watch")

        async def up() -> float | None:
            began = time.monotonic()
            found = await asyncio.to_thread(figure, base, "store_up", 'service="shop"')
            assert time.monotonic() - began < WITHIN + 2
            return found

        assert await up() == 0
        answer = await asyncio.to_thread(get, f"{base}/scale?relay=shop")
        assert (answer.status_code, answer.json()["unknown"]) == (503, "the store of shop did not answer")
        await proxy.heal()
        await eventually(up, "its return", right=lambda found: found == 1, pause=0.1)
        await proxy.stall()
        await eventually(up, "its silence", right=lambda found: found == 0, pause=0.1)
        assert (await asyncio.to_thread(get, f"{base}/healthz")).status_code == 200
        await proxy.heal()
        await eventually(up, "its second return", right=lambda found: found == 1, pause=0.1)
