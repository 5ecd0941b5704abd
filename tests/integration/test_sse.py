"""Server-sent events over real HTTP: nothing is lost or doubled, whoever dies; nobody hears what is another tenant's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from posthouse import App, Payload, Service
from posthouse.edges.sse import SseEndpoint, sse_endpoint
from posthouse.stores.postgres import PostgresStore
from tests.integration.sse_member import recipe
from tests.kit.servers.ports import free_port
from tests.kit.serving import serving
from tests.kit.sse import Listener, listening
from tests.kit.waiting import eventually

ROOT = Path(__file__).parents[2]
ADA, BOB = {"cookie": "session=s-ada"}, {"cookie": "session=s-bob"}


class Member:
    """The recipe in a process of its own, that can be ended in any way and started again on its port."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._arguments = arguments
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        self.process: subprocess.Popen[bytes] | None = None

    def _begin(self) -> None:
        command = [sys.executable, "-m", "tests.integration.sse_member", str(self.port), *self._arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=subprocess.DEVNULL)

    async def start(self) -> None:
        self._begin()

        async def answers() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return (await client.get(f"{self.url}/")).status_code in (200, 401)
            return False

        async with httpx.AsyncClient(trust_env=False) as client:
            await eventually(answers, "the server answers")

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)


@contextlib.contextmanager
def member(*arguments: str, **environment: str) -> Iterator[Member]:
    one = Member(*arguments, **environment)
    try:
        yield one
    finally:
        if one.process is not None and one.process.poll() is None:
            one.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    folder = tmp_path_factory.mktemp("sse")
    with member(ROOMS_STORE=f"sqlite:///{folder}/rooms.db", ROOMS_BROKER=f"embedded:///{folder}/broker.db") as one:
        yield one


@pytest.fixture
async def served(shared: Member) -> Member:
    """Running, whatever the test before did to it."""
    if shared.process is None or shared.process.poll() is not None:
        await shared.start()
    return shared


async def mark(url: str, room: str, state: str, who: dict[str, str] = ADA) -> str:
    async with httpx.AsyncClient(trust_env=False, headers=who) as client:
        answer = await client.put(f"{url}/rooms/{room}", params={"state": state})
        return str(answer.raise_for_status().json()["receipt"])


async def state_of(url: str, receipt: str, who: dict[str, str] = ADA, wait: int = 0) -> tuple[int, object]:
    async with httpx.AsyncClient(trust_env=False, headers=who, timeout=60) as client:
        answer = await client.get(f"{url}/stream/", params={"receipt": receipt, "wait": str(wait)})
        return answer.status_code, answer.json().get("state")


async def test_a_page_hears_what_is_committed_and_only_its_own_tenant(served: Member) -> None:
    async with listening(f"{served.url}/stream/", ADA) as ada, listening(f"{served.url}/stream/", BOB) as bob:
        await ada.hears("ready")
        await bob.hears("ready")
        await mark(served.url, "12", "ready")
        await mark(served.url, "7", "dirty", BOB)
        await eventually(lambda: ada.messages and bob.messages, "both hear")
        await mark(served.url, "13", "ready")
        await eventually(lambda: len(ada.messages) == 2, "ada hears the second")
    assert [one["data"] for one in ada.messages] == [{"room": "12", "state": "ready"}, {"room": "13", "state": "ready"}]
    assert [one["data"] for one in bob.messages] == [{"room": "7", "state": "dirty"}]
    assert ada.messages[0]["type"] == "hotel.rooms.board.changed.v1"
    assert ada.retry == 2000
    assert ada.answered is not None
    assert ada.answered["content-type"].startswith("text/event-stream")
    assert "no-cache" in ada.answered["cache-control"]
    assert ada.answered["x-accel-buffering"] == "no"


async def test_whoever_is_not_logged_in_hears_nothing(served: Member) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        for asked in ("", "?tenant=hotel-1", "?receipt=x"):
            answer = await client.get(f"{served.url}/stream/{asked}", headers={"x-tenant": "hotel-1"})
            assert answer.status_code == 401
        assert (await client.post(f"{served.url}/stream/", headers=ADA)).status_code == 405


async def test_the_position_of_one_tenant_shows_another_nothing_of_it(served: Member) -> None:
    async with listening(f"{served.url}/stream/", ADA) as ada:
        await ada.hears("ready")
        begin = ada.last_id
        await mark(served.url, "12", "ready")
        await eventually(lambda: ada.messages)
    async with listening(f"{served.url}/stream/", BOB, begin) as bob:
        await mark(served.url, "7", "clean", BOB)
        await eventually(lambda: bob.messages)
    assert [one["data"]["room"] for one in bob.messages] == ["7"]


async def test_a_strange_position_is_told_to_fetch_anew_and_goes_on(served: Member) -> None:
    async with listening(f"{served.url}/stream/", ADA, "of-another-store~12") as ada:
        await ada.hears("must-refetch")
        await mark(served.url, "12", "ready")
        await eventually(lambda: ada.messages)
    assert [one.event for one in ada.heard] == ["must-refetch", "message"]


async def test_a_write_is_processing_until_the_read_model_has_it(served: Member) -> None:
    receipt = await mark(served.url, "21", "painted")
    assert await state_of(served.url, receipt, wait=20) == (200, "applied")
    async with httpx.AsyncClient(trust_env=False, headers=ADA) as client:
        assert (await client.get(f"{served.url}/rooms")).json()["21"] == "painted"
    assert await state_of(served.url, receipt, BOB) == (200, "processing"), "nothing of another tenant is known"
    for odd in ("x", "W10", "e30", receipt[:-3], "9" * 30_000):
        assert (await state_of(served.url, odd))[0] == 400


async def test_a_stop_of_the_server_ends_its_connections_at_once(served: Member) -> None:
    async with listening(f"{served.url}/stream/", ADA) as ada:
        await ada.hears("ready")
        assert await asyncio.wait_for(asyncio.to_thread(served.end, signal.SIGTERM), 10) in (0, -signal.SIGTERM)


async def test_killed_servers_lose_and_double_nothing(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write all the time while the server of events is killed and started again."""
    store = PostgresStore(postgres_url)
    await store.upgrade()
    await store.aclose()
    monkeypatch.setenv("ROOMS_STORE", postgres_url)
    monkeypatch.setenv("ROOMS_BROKER", postgres_url)
    module, written, enough = recipe(), 0, asyncio.Event()

    async def write() -> None:
        nonlocal written
        while not enough.is_set():
            async with module.rooms.transaction("hotel-1") as tx:
                written += 1
                tx.publish(module.RoomMarked(room=f"r{written % 4}", state=str(written)))
            await asyncio.sleep(0.002)

    with member("alone", ROOMS_STORE=postgres_url, ROOMS_BROKER=postgres_url) as one:
        await one.start()
        async with listening(one.url, ADA) as ada:
            await ada.hears("ready")
            writing = asyncio.create_task(write())
            for _ in range(3):
                heard = len(ada.messages)
                await eventually(lambda: len(ada.messages) > heard + 10)  # noqa: B023  # awaited here
                await asyncio.to_thread(one.end, signal.SIGKILL)
                await one.start()
            enough.set()
            await writing
            await eventually(lambda: len(ada.messages) >= written, f"all of {written}")
    await module.rooms.aclose()
    states = [int(message["data"]["state"]) for message in ada.messages]
    assert states == list(range(1, written + 1)), "each once, in order"
    assert ada.connections >= 4
    assert "must-refetch" not in [event.event for event in ada.heard]


@pytest.fixture
async def parcels(tmp_path: Path) -> Service:
    service = Service("parcels", namespace="post")
    App(service, store=f"sqlite:///{tmp_path}/parcels.db", broker="memory://parcels")
    return service


def told(
    service: Service, *, tenant: Callable[..., str | None] = lambda _: "t1", **limits: float
) -> tuple[type, SseEndpoint]:
    """An event of a service, and an endpoint that tells `t1` of it."""

    @service.event("parcel.sent.v1", key="number")
    class ParcelSent(Payload):
        number: str
        text: str = ""

    options: dict[str, Any] = limits
    return ParcelSent, sse_endpoint(
        service, events=[ParcelSent], tenant=tenant, show=lambda event: event.data, **options
    )


async def test_a_client_that_does_not_read_is_ended_within_its_bound_and_resumes(parcels: Service) -> None:
    sent, endpoint = told(parcels, patience=0.5, backlog=200_000)
    async with serving(endpoint) as url:
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        stuck.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda: endpoint.listeners == 1)
        async with listening(url, {}) as other:
            await other.hears("ready")
            begin = other.last_id
            for number in range(0, 120, 2):
                async with parcels.transaction("t1") as tx:
                    tx.publish(sent(number=str(number), text="x" * 60_000))
                    tx.publish(sent(number=str(number + 1), text="x" * 60_000))
                await eventually(lambda: len(other.messages) == number + 2)  # noqa: B023  # awaited here
            await eventually(lambda: endpoint.listeners == 1, "the one that reads nothing was ended")
            assert other.connections == 1
        stuck.close()
        async with listening(url, {}, begin) as again:
            await eventually(lambda: len(again.messages) == 120)
        assert [one["key"] for one in again.messages] == [str(number) for number in range(120)]
    await parcels.aclose()


async def test_no_more_clients_are_let_in_than_there_is_room_for(parcels: Service) -> None:
    _, endpoint = told(parcels, clients=1, heartbeat=0.05)
    async with serving(endpoint) as url, listening(url, {}) as first:
        await first.hears("ready")
        second = Listener(url, {})
        await second.listen()
        assert [one.event for one in second.heard] == ["busy"]
        assert second.retry >= 5000
        await eventually(lambda: first.comments > 3, "heartbeats")
    await parcels.aclose()


async def test_a_connection_is_ended_after_its_lifetime_and_resumed(parcels: Service) -> None:
    sent, endpoint = told(parcels, lifetime=0.2)
    async with serving(endpoint) as url, listening(url, {}) as one:
        for number in range(30):
            await one.hears("ready")
            async with parcels.transaction("t1") as tx:
                tx.publish(sent(number=str(number)))
        await eventually(lambda: len(one.messages) == 30 and one.connections > 2)
        assert [message["key"] for message in one.messages] == [str(number) for number in range(30)]
    await parcels.aclose()


async def test_who_is_logged_in_no_more_hears_no_more(parcels: Service) -> None:
    whose: list[str | None] = ["t1"]
    sent, endpoint = told(parcels, tenant=lambda _: whose[-1], recheck=0.05, heartbeat=0.1)
    async with serving(endpoint) as url:
        one = Listener(url, {})
        listens = asyncio.create_task(one.listen())
        await one.hears("ready")
        await eventually(lambda: one.comments > 3, "it is asked again, and may")
        whose.append(None)
        await eventually(lambda: endpoint.listeners == 0)
        async with parcels.transaction("t1") as tx:
            tx.publish(sent(number="1"))
        await listens
        assert one.messages == []
    await parcels.aclose()


async def test_long_transactions_of_many_writers_are_heard_once_each(postgres_url: str) -> None:
    """One is open all the time, so that the horizon stands still, and each of the others commits late."""
    store = PostgresStore(postgres_url)
    await store.upgrade()
    parcels = Service("parcels", namespace="post")
    App(parcels, store=store, broker="memory://parcels-postgres?single_host=true")
    sent, endpoint = told(parcels, lifetime=0.5)

    async def write(writer: int) -> None:
        chance = random.Random(writer)
        for number in range(15):
            async with parcels.transaction("t1") as tx:
                await tx.execute("SELECT pg_current_xact_id()")
                tx.publish(sent(number=f"w{writer}", text=str(number)))
                await tx.flush_timers()
                await asyncio.sleep(chance.uniform(0, 0.05))

    async with parcels.running(only=["relay"]), serving(endpoint) as url, listening(url, {}) as one:
        await one.hears("ready")
        async with parcels.transaction("t1") as longest:
            await longest.execute("SELECT pg_current_xact_id()")
            await store.outbox.append(longest.transaction, [])
            longest.publish(sent(number="longest"))
            await asyncio.gather(*(write(number) for number in range(8)))
            await eventually(lambda: len(one.messages) == 120, "the others are heard while it is open")
        await eventually(lambda: len(one.messages) == 121)
        assert one.connections > 1
    for writer in range(8):
        mine = [message["data"]["text"] for message in one.messages if message["key"] == f"w{writer}"]
        assert mine == [str(number) for number in range(15)]
    assert one.messages[-1]["key"] == "longest"
    assert "must-refetch" not in [heard.event for heard in one.heard]
