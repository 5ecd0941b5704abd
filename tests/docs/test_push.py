"""The recipe of a push endpoint, as FastAPI runs it: made from its URL on an emulator, and pushed to."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from google.pubsub_v1.types import Subscription

from posthouse import App, Payload, Service
from posthouse.brokers import open_broker
from posthouse.brokers.pubsub.client import Client
from posthouse.brokers.pubsub.messages import frame_of
from posthouse.clock import SystemClock
from tests.kit.servers.issuer import issuing
from tests.kit.servers.pubsub import running
from tests.kit.servers.pusher import wrapped

RECIPE = Path(__file__).parents[2] / "docs" / "examples" / "recipes" / "push_app.py"
TOPIC = "shop.orders.order"
NAME = f"billing.{TOPIC}.sub"


class OrderPlaced(Payload):
    order_id: str


async def test_the_push_recipe_applies_what_is_pushed_and_refuses_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(plain=True) as emulator, issuing() as issuer:
        monkeypatch.setenv("BILLING_STORE", f"sqlite:///{tmp_path}/billing.db")
        monkeypatch.setenv("BILLING_BROKER", f"pubsub://my-project?emulator={emulator.address}")
        monkeypatch.setenv("PUSH_KEYS", issuer.url)
        recipe = _recipe()
        orders = Service("orders", namespace="shop")
        App(
            orders,
            store=f"sqlite:///{tmp_path}/orders.db",
            broker=open_broker(f"pubsub://my-project?emulator={emulator.address}", clock=SystemClock()),
        )
        orders.event("order.placed.v1", key="order_id")(OrderPlaced)
        wire = Client("my-project", emulator=emulator.address)
        transport = httpx.ASGITransport(app=recipe.app)
        client = httpx.AsyncClient(transport=transport, base_url="https://billing.example")
        async with orders.running(), client, recipe.app.router.lifespan_context(recipe.app):
            made = await wire.subscriber.get_subscription(subscription=wire.subscription(NAME), retry=None)
            assert made.push_config.push_endpoint == recipe.ENDPOINT
            await _make_tap(wire)
            async with orders.transaction("t1") as tx:
                tx.publish(OrderPlaced(order_id="o1"))
            async with asyncio.timeout(30):
                pulled = await wire.subscriber.pull(subscription=wire.subscription("tap"), max_messages=1, retry=None)
            frame = frame_of(TOPIC, pulled.received_messages[0].message)
            body = wrapped(frame, wire.subscription(NAME))
            stranger = await client.post("/push", json=body)
            token = issuer.token(aud=recipe.ENDPOINT, email=recipe.ACCOUNT)
            answers = [
                await client.post("/push", json=body, headers={"Authorization": f"Bearer {token}"}) for _ in range(2)
            ]
            async with recipe.billing.transaction("t1") as tx:
                rows = list(await tx.execute("SELECT order_id FROM invoice"))
        await wire.aclose()
    assert stranger.status_code == 401
    assert [answer.status_code for answer in answers] == [204, 204]
    assert [tuple(row) for row in rows] == [("o1",)]


async def _make_tap(wire: Client) -> None:
    """pstest pushes nothing: the test reads the message beside it, and brings it."""
    tap = Subscription(name=wire.subscription("tap"), topic=wire.topic(TOPIC), ack_deadline_seconds=60)
    await wire.subscriber.create_subscription(tap, retry=None)


def _recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("push_app", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
