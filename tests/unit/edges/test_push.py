"""The push endpoint: what is acknowledged, what is not, and that an event takes the same way as one that was pulled."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

from posthouse import App, Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.broker import Frame
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock, new_id
from posthouse.edges.push import LARGEST, PushEndpoint, push_endpoint
from posthouse.errors import ConfigurationError, StoreUnavailable
from posthouse.processes import Model, Plan
from posthouse.processes.projection import Projection
from posthouse.store import HeldFilter
from tests.kit.running import at_work
from tests.kit.servers.issuer import ACCOUNT, AUDIENCE, Issuer, issuing
from tests.kit.servers.pusher import wrapped
from tests.kit.shop import OrderPlaced

TOPIC = "shop.orders.order"
OURS = f"projects/shop/subscriptions/billing.{TOPIC}.sub"


class House:
    """`billing`, with a table of what it has applied, and an endpoint in front of it."""

    def __init__(self, folder: Path, issuer: Issuer) -> None:
        self.issuer = issuer
        self.orders = Service("orders", namespace="shop")
        App(self.orders, store=f"sqlite:///{folder}/orders.db", broker=_memory())
        self.orders.event("order.placed.v1", key="order_id")(OrderPlaced)
        self.billing = Service("billing", namespace="shop")
        App(self.billing, store=f"sqlite:///{folder}/billing.db", broker=_memory())
        self.billing.setup(self._tables)
        self.billing.on(OrderPlaced, policy=Policy(max_attempts=2, first_delay=60.0))(self._invoice)
        self.failing: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()
        self.endpoint = self.endpoint_with()
        self.client = client_of(self.endpoint)

    def endpoint_with(self, **options: Any) -> PushEndpoint:
        return push_endpoint(
            self.billing,
            audience=AUDIENCE,
            service_account=ACCOUNT,
            project="shop",
            keys_url=self.issuer.url,
            **options,
        )

    async def _tables(self, tx: Tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS invoice (id INTEGER PRIMARY KEY, order_id TEXT, number INTEGER)")

    async def _invoice(self, event: Event[OrderPlaced], tx: Tx) -> None:
        await tx.execute(
            "INSERT INTO invoice (order_id, number) VALUES (?, ?)", (event.data.order_id, event.data.number)
        )
        self.entered.set()
        await self.gate.wait()
        if self.failing is not None:
            raise self.failing

    async def frames(self, *numbers: int, order_id: str = "o1") -> list[Frame]:
        """As the relay of `orders` would publish them."""
        await app_of(self.orders).opened.prepare()
        tap = await app_of(self.orders).broker.subscribe(new_id(), [TOPIC], start="latest")
        for number in numbers:
            async with self.orders.transaction("t1") as tx:
                tx.publish(OrderPlaced(order_id=order_id, number=number))
        runtime = await app_of(self.orders).opened.prepare()
        found: list[Frame] = []
        async with at_work(runtime.relay.run), asyncio.timeout(10):
            while len(found) < len(numbers):
                found += [delivery.frame for delivery in await tap.receive(100, 1.0)]
        return found

    async def post(self, body: object, *, token: str | None = None) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self.issuer.token()}"}
        return await self.client.post("/", content=content, headers=headers)

    async def push(self, frame: Frame, *, attempt: int | None = 1) -> int:
        return (await self.post(wrapped(frame, OURS, attempt=attempt))).status_code

    async def applied(self) -> list[object]:
        async with self.billing.transaction("t1") as tx:
            return [number for (number,) in await tx.execute("SELECT number FROM invoice ORDER BY id")]

    async def until_applied(self, *numbers: int) -> None:
        while True:
            if await self.applied() == list(numbers):
                return
            await asyncio.sleep(0.01)

    async def held(self) -> list[tuple[str, str]]:
        return [(event.state, event.reason) for event in await app_of(self.billing).store.held.find(HeldFilter())]

    async def aclose(self) -> None:
        await self.client.aclose()
        await self.orders.aclose()
        await self.billing.aclose()


async def soon(step: Awaitable[object]) -> None:
    async with asyncio.timeout(10):
        await step


def _memory() -> MemoryBroker:
    return MemoryBroker(clock=SystemClock())


def client_of(endpoint: PushEndpoint) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=endpoint)
    return httpx.AsyncClient(transport=transport, base_url="http://billing.example")


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest_asyncio.fixture
async def house(tmp_path: Path, issuer: Issuer) -> AsyncIterator[House]:
    house = House(tmp_path, issuer)
    try:
        yield house
    finally:
        await house.aclose()


async def test_an_event_is_applied_once_and_acknowledged_after_its_commit(house: House) -> None:
    first, second = await house.frames(1, 2)
    assert await house.push(first) == 204
    assert await house.applied() == [1]
    assert await house.push(first, attempt=2) == 204
    assert await house.push(second) == 204
    assert await house.applied() == [1, 2]
    assert await house.held() == []


async def test_nothing_is_answered_before_the_commit(house: House) -> None:
    (frame,) = await house.frames(1)
    house.gate.clear()
    pushing = asyncio.create_task(house.push(frame))
    await soon(house.entered.wait())
    assert not pushing.done()
    house.gate.set()
    assert await pushing == 204
    assert await house.applied() == [1]


async def test_an_event_that_comes_too_early_is_held_and_applied_in_its_turn(house: House) -> None:
    first, second = await house.frames(1, 2)
    assert await house.push(second) == 204
    assert [state for state, _ in await house.held()] == ["gap"]
    assert await house.push(first) == 204
    async with house.billing.running():
        await soon(house.until_applied(1, 2))
        assert await house.held() == []


async def test_an_event_whose_handler_fails_is_held_and_acknowledged(house: House) -> None:
    (frame,) = await house.frames(1)
    house.failing = RuntimeError("the ledger is closed")
    assert await house.push(frame) == 204
    assert await house.applied() == []
    assert [state for state, _ in await house.held()] == ["retrying"]


@pytest.mark.parametrize("attempt", [2, 0, None])
async def test_what_may_have_run_before_is_held_first(house: House, attempt: int | None) -> None:
    """As when it is pulled: the attempt is counted before the handler runs."""
    (frame,) = await house.frames(1)
    assert await house.push(frame, attempt=attempt) == 204
    assert await house.held() == [("retrying", "may have run before a crash")]


async def test_bytes_that_are_no_event_are_quarantined_and_acknowledged_as_on_pull(house: House) -> None:
    frame = Frame(topic=TOPIC, id=new_id(), body=b"\xff no event", headers={"content-type": "application/json"})
    assert await house.push(frame) == 204
    ((state, reason),) = await house.held()
    assert state == "quarantined"
    assert reason.startswith("unreadable")


async def test_an_event_over_the_limit_of_the_service_is_quarantined_and_not_lost(house: House) -> None:
    (frame,) = await house.frames(1)
    huge = msgspec.structs.replace(frame, body=frame.body + b" " * 400_000)
    assert await house.push(huge) == 204
    ((state, reason),) = await house.held()
    assert state == "quarantined"
    assert "too_large" in reason


async def test_trouble_of_the_database_is_not_acknowledged_and_the_event_comes_again(house: House) -> None:
    (frame,) = await house.frames(1)
    house.failing = StoreUnavailable("the database is away")
    answer = await house.post(wrapped(frame, OURS))
    assert (answer.status_code, answer.text, answer.headers["retry-after"]) == (503, "not now", "1")
    assert await house.applied() == []
    house.failing = None
    assert await house.push(frame, attempt=2) == 204  # it may have run: held first, and run by the service's own loop
    async with house.billing.running():
        await soon(house.until_applied(1))
    assert await house.held() == []


async def test_a_service_that_was_closed_is_opened_again(house: House) -> None:
    first, second = await house.frames(1, 2)
    assert await house.push(first) == 204
    await house.billing.aclose()
    assert await house.push(second) in (204, 500, 503)
    assert await house.push(second) == 204
    assert await house.applied() == [1, 2]


async def test_headers_longer_than_an_attribute_come_back_whole(house: House) -> None:
    (frame,) = await house.frames(1)
    long = msgspec.structs.replace(frame, headers={**frame.headers, "x-long": "ü" * 3_000}, body=b"no event")
    assert await house.push(long) == 204
    (held,) = await app_of(house.billing).store.held.find(HeldFilter())
    assert held.headers["x-long"] == "ü" * 3_000


@pytest.mark.parametrize(
    "subscription",
    [
        f"projects/other/subscriptions/billing.{TOPIC}.sub",
        f"projects/shop/subscriptions/mailer.{TOPIC}.sub",
        f"projects/shop/subscriptions/billing.{TOPIC}.dlq.sub",
        f"billing.{TOPIC}.sub",
        "",
    ],
)
async def test_a_subscription_of_somebody_else_is_refused(house: House, subscription: str) -> None:
    """The token is not bound to the body: one for this endpoint may come with any."""
    (frame,) = await house.frames(1)
    answer = await house.post(wrapped(frame, subscription))
    assert (answer.status_code, answer.text) == (404, "no such subscription here")
    assert await house.applied() == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"message": {}}', b"\xff\xfe", b"[" * 5_000, b'{"message": 1, "subscription": "x"}'],
)
async def test_a_body_that_pubsub_would_not_send_is_refused(house: House, body: bytes) -> None:
    answer = await house.post(body)
    assert (answer.status_code, answer.text) == (400, "not a push of Pub/Sub")


async def test_a_body_that_goes_too_deep_is_refused(house: House) -> None:
    assert (await house.post(b'{"message":' + b'{"a":[' * 5_000)).status_code == 400
    assert (await house.post(b'{"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}")).status_code == 400


async def test_a_body_that_never_ends_gives_its_turn_back(house: House) -> None:
    client = client_of(house.endpoint_with(at_once=1, patience=0.2))

    async def half() -> AsyncIterator[bytes]:
        yield b'{"message":'
        await asyncio.Event().wait()

    headers = {"Authorization": f"Bearer {house.issuer.token()}"}
    async with client:
        async with asyncio.timeout(20):
            assert (await client.post("/", content=half(), headers=headers)).status_code == 408
        (frame,) = await house.frames(1)
        body = json.dumps(wrapped(frame, OURS, attempt=1))
        assert (await client.post("/", content=body, headers=headers)).status_code == 204


async def test_data_that_is_not_base64_is_refused(house: House) -> None:
    (frame,) = await house.frames(1)
    body = wrapped(frame, OURS)
    body["message"]["data"] = "not base64!"
    assert (await house.post(body)).status_code == 400


async def test_a_message_without_data_and_attributes_is_held(house: House) -> None:
    body = wrapped(Frame(topic=TOPIC, id="x", body=b""), OURS)
    del body["message"]["data"], body["message"]["attributes"]
    assert (await house.post(body)).status_code == 204
    ((state, _),) = await house.held()
    assert state == "quarantined"


async def test_a_body_larger_than_any_push_is_not_even_kept(house: House) -> None:
    assert (await house.post(b" " * (LARGEST + 1))).status_code == 413


async def test_whoever_is_not_known_is_refused_before_a_byte_of_the_body_is_read(house: House) -> None:
    read = False

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read = True
        yield b"{}"

    for headers in (
        [],
        [("Authorization", "Basic eDp5")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer nonsense")],
        [("Authorization", f"Bearer {house.issuer.token()}"), ("Authorization", f"Bearer {house.issuer.token()}")],
        [("Authorization", f"Bearer {house.issuer.token(aud='https://other.example')}")],
    ):
        answer = await house.client.post("/", content=body(), headers=headers)
        assert (answer.status_code, answer.text) == (401, "no token that can be believed")
        assert answer.headers["www-authenticate"] == "Bearer"
    other = {"Authorization": f"Bearer {house.issuer.token(email='x@shop.iam.gserviceaccount.com')}"}
    answer = await house.client.post("/", content=body(), headers=other)
    assert (answer.status_code, answer.text) == (403, "not for this account")
    assert not read


async def test_the_token_is_never_logged(house: House, caplog: pytest.LogCaptureFixture) -> None:
    token = house.issuer.token(aud="https://other.example")
    with caplog.at_level("DEBUG", logger="posthouse"):
        await house.post(b"{}", token=token)
    assert "another audience" in caplog.text
    assert not any(part in caplog.text for part in token.split("."))


async def test_only_a_post_is_answered(house: House) -> None:
    answer = await house.client.get("/")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_when_keys_cannot_be_had_the_event_comes_again(house: House) -> None:
    (frame,) = await house.frames(1)
    fresh = client_of(house.endpoint_with())
    house.issuer.answer = (500, b"")
    try:
        headers = {"Authorization": f"Bearer {house.issuer.token()}"}
        answer = await fresh.post("/", json=wrapped(frame, OURS), headers=headers)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    finally:
        house.issuer.answer = None
        await fresh.aclose()


async def test_more_than_it_takes_at_once_is_sent_away_and_comes_again(house: House) -> None:
    frames = [(await house.frames(n, order_id=f"o{n}"))[0] for n in range(4)]
    house.client = client_of(house.endpoint_with(at_once=2))
    house.gate.clear()
    inside = [asyncio.create_task(house.push(frame)) for frame in frames[:2]]
    await soon(house.entered.wait())
    answer = await house.post(wrapped(frames[2], OURS))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    house.gate.set()
    assert await asyncio.gather(*inside) == [204, 204]
    assert await asyncio.gather(*(house.push(frame) for frame in frames[2:])) == [204, 204]
    assert sorted(map(int, map(str, await house.applied()))) == [0, 1, 2, 3]


async def test_served_by_itself_it_runs_the_service(house: House) -> None:
    said: list[str] = []
    started = asyncio.Event()
    turns: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def send(message: Any) -> None:
        said.append(message["type"])
        started.set()

    living = asyncio.create_task(house.endpoint({"type": "lifespan"}, turns.get, send))
    turns.put_nowait({"type": "lifespan.startup"})
    (frame,) = await house.frames(1)
    await soon(started.wait())
    assert await house.push(frame, attempt=2) == 204
    await soon(house.until_applied(1))  # held first, and then run by the service's own loop
    turns.put_nowait({"type": "lifespan.shutdown"})
    await living
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_endpoints_of_one_app_share_what_runs(house: House, tmp_path: Path) -> None:
    other = Service("other", namespace="shop")
    app = App(house.billing, other, store=f"sqlite:///{tmp_path}/both.db", broker=_memory())
    said: asyncio.Queue[str] = asyncio.Queue()

    async def send(message: Any) -> None:
        said.put_nowait(message["type"])

    lives = []
    for endpoint in (house.endpoint, house.endpoint_with()):
        turns: asyncio.Queue[Any] = asyncio.Queue()
        lives.append((turns, asyncio.create_task(endpoint({"type": "lifespan"}, turns.get, send))))
        turns.put_nowait({"type": "lifespan.startup"})
        assert await asyncio.wait_for(said.get(), 10) == "lifespan.startup.complete"
    for turns, living in reversed(lives):
        assert app.opened.runs
        turns.put_nowait({"type": "lifespan.shutdown"})
        await soon(living)
        assert said.get_nowait() == "lifespan.shutdown.complete"
    assert not app.opened.runs


async def test_a_service_that_cannot_start_says_why_to_the_server(tmp_path: Path, issuer: Issuer) -> None:
    service = Service("billing")
    App(service, store=f"sqlite:///{tmp_path}/no/such/folder/b.db", broker="memory://")
    endpoint = push_endpoint(service, audience=AUDIENCE, service_account=ACCOUNT, project="shop", keys_url=issuer.url)
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        said.append(message)

    await endpoint({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in said] == ["lifespan.startup.failed"]
    assert said[0]["message"]


@pytest.mark.parametrize("missing", ["jwt", "google.pubsub_v1"])
def test_without_its_libraries_it_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import posthouse.edges.push"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode != 0
    assert "pip install 'posthouse[push]'" in run.stderr.splitlines()[-1]


def test_what_cannot_work_is_said_all_at_once(tmp_path: Path) -> None:
    service = Service("billing")
    App(service, store=f"sqlite:///{tmp_path}/b.db", broker="memory://")
    with pytest.raises(ConfigurationError) as refused:
        push_endpoint(service, audience="", service_account="nobody", at_once=0)
    assert len(refused.value.problems) == 4


async def test_the_project_is_that_of_the_brokers_url(tmp_path: Path, issuer: Issuer) -> None:
    url = "pubsub://my-project?emulator=127.0.0.1:1&timeout=0.2"
    service = Service("billing", namespace="shop")
    App(service, store=f"sqlite:///{tmp_path}/b.db", broker=url)
    service.event("order.placed.v1", key="order_id")(Other)
    service.on(Other)(_nothing)
    endpoint = push_endpoint(service, audience=AUDIENCE, service_account=ACCOUNT, keys_url=issuer.url)
    frame = Frame(topic="shop.billing.order", id="x", body=b"")
    statuses = []
    async with client_of(endpoint) as client:
        for project in ("my-project", "shop"):
            body = wrapped(frame, f"projects/{project}/subscriptions/billing.shop.billing.order.sub")
            headers = {"Authorization": f"Bearer {issuer.token()}"}
            statuses.append((await client.post("/", json=body, headers=headers)).status_code)
    await service.aclose()
    assert statuses == [503, 404]  # the broker is not there; the subscription is not ours


class Other(Payload):
    order_id: str


async def _nothing(event: Event[Other], tx: Tx) -> None:
    """It has no effect."""


def modelled(house: House) -> Projection:
    """A read model of `billing`, which notes what it was given."""
    model = house.billing.projection("board")

    @model.setup
    async def tables(board: Model) -> None:
        await board.execute(f"CREATE TABLE {board.table('line')} (id INTEGER PRIMARY KEY, number INTEGER)")

    @model.on(OrderPlaced)
    async def note(event: Event[OrderPlaced], board: Model) -> None:
        await board.execute(f"INSERT INTO {board.table('line')} (number) VALUES (?)", (event.data.number,))

    return model


async def lines(house: House, model: Projection) -> list[object]:
    async with house.billing.transaction("t1") as tx:
        table = await model.table(tx, "line")
        return [number for (number,) in await tx.execute(f"SELECT number FROM {table} ORDER BY id")]


BOARD = f"projects/shop/subscriptions/billing.board.{TOPIC}.sub"
NEXT = f"projects/shop/subscriptions/billing.board.g2.{TOPIC}.sub"


@pytest.mark.parametrize("running", [True, False], ids=["running", "endpoint alone"])
async def test_a_read_model_is_fed_by_pushes_once_and_in_order(house: House, running: bool) -> None:
    model = modelled(house)
    frames = await house.frames(1, 2, 3)
    async with house.billing.running() if running else contextlib.nullcontext():
        for frame in (frames[0], frames[0], *frames[1:]):
            assert (await house.post(wrapped(frame, BOARD))).status_code == 204
        assert await lines(house, model) == [1, 2, 3]
        assert await house.push(frames[0]) == 204
        assert await house.applied() == [1]


async def test_pushes_for_a_generation_that_is_not_read_yet_wait_for_the_swap(house: House) -> None:
    model = modelled(house)
    first, second = await house.frames(1, 2)
    assert (await house.post(wrapped(first, NEXT))).status_code == 503
    assert (await house.post(wrapped(first, NEXT.replace(".g2.", ".g02.")))).status_code == 404
    assert (await house.post(wrapped(first, NEXT.replace(".sub", ".dlq.sub")))).status_code == 404
    await app_of(house.billing).projections.rebuild("board", Plan(source="log"))
    for frame in (first, second):
        assert (await house.post(wrapped(frame, NEXT))).status_code == 204
    assert await lines(house, model) == [1, 2]
    assert (await house.post(wrapped(second, BOARD))).status_code == 503
