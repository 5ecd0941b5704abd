"""The recipe for FastStream, on a real NATS: both applications in one process, each on its own connection."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.kit.servers.nats import NatsServer

RECIPE = Path(__file__).parents[2] / "docs" / "examples" / "recipes" / "faststream_app.py"
PATIENCE = 30.0

HEADERS = {
    "ce-specversion": "1.0",
    "ce-id": "said twice",
    "ce-type": "parcels.parcel.sent.v1",
    "ce-source": "/parcels",
    "ce-tenantid": "t1",
}


class Neighbours:
    """The service and the FastStream application of the recipe."""

    def __init__(self, recipe: Any) -> None:
        self.recipe = recipe

    async def place(self, *orders: str) -> None:
        for order in orders:
            async with self.recipe.shop.transaction("t1") as tx:
                tx.publish(self.recipe.OrderPlaced(order_id=order, total_cents=100))

    async def sent(self, order: str) -> list[str]:
        """What the service knows to be sent, as soon as this order is."""
        while True:
            async with self.recipe.shop.transaction("t1") as tx:
                found = [str(name) for (name,) in await tx.execute("SELECT order_id FROM sent ORDER BY order_id")]
            if order in found:
                return found
            await asyncio.sleep(0.02)


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("faststream_app", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_faststream_reads_what_a_service_says_and_is_heard_by_it(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_NATS", nats_server.url)
    monkeypatch.chdir(tmp_path)
    recipe: Any = loaded()
    neighbours = Neighbours(recipe)
    async with recipe.shop.running(), recipe.broker, asyncio.timeout(PATIENCE):
        await recipe.broker.start()
        await neighbours.place("o1", "o2", "o3")
        for order in ("o1", "o2", "o3"):
            await neighbours.sent(order)
        for _ in range(2):  # as when FastStream runs a handler again
            await recipe.broker.publish({"order_id": "o4"}, "parcels.parcel", headers=HEADERS, stream="parcels_parcel")
        await neighbours.place("o5")
        await neighbours.sent("o4")
        assert await neighbours.sent("o5") == ["o1", "o2", "o3", "o4", "o5"]
