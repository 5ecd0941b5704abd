"""Other people's clients, with the CloudEvents SDK: they hear what `orders` publishes, and `billing` applies what they say.

The same questions to every broker; how a bare client of it sends and receives is the test's own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings import http
from cloudevents.core.v1.event import CloudEvent

from posthouse import App, Event, Service, Tx
from posthouse.broker import Broker
from posthouse.clock import new_id
from tests.kit.shop import OrderPlaced

KEY = "t1:größe 1"
WIRES = pytest.mark.parametrize("wire", ["structured", "binary"])


class Orders:
    """`orders`, at work in a namespace that no other test has."""

    def __init__(self, broker: Broker, folder: Path, wire: str) -> None:
        namespace = f"shop{new_id()[-6:]}"
        self.topic = f"{namespace}.orders.order"
        self.service = Service("orders", namespace=namespace, envelope=wire)
        App(self.service, store=f"sqlite:///{folder}/orders.db", broker=broker)
        self.service.event("order.placed.v1", key="order_id")(OrderPlaced)

    async def tell(self) -> str:
        """Publish one event; its id."""
        async with self.service.transaction("t1") as tx:
            self.event_id = tx.publish(OrderPlaced(order_id="größe 1", number=7))
        return self.event_id

    def assert_told(self, event: Any) -> None:
        assert event.get_id() == self.event_id
        assert event.get_type() == f"{self.topic}.placed.v1"
        assert event.get_data() == {"order_id": "größe 1", "number": 7}


@contextlib.asynccontextmanager
async def telling(broker: Broker, folder: Path, wire: str) -> AsyncIterator[Orders]:
    orders = Orders(broker, folder, wire)
    async with orders.service.running():
        yield orders


class Billing:
    """`billing`, which hears of orders that nobody here has declared."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        namespace = f"shop{new_id()[-6:]}"
        self.topic = f"{namespace}.orders.order"
        self.service = Service("billing", namespace=namespace)
        App(self.service, store=f"sqlite:///{folder}/billing.db", broker=broker)
        self.service.external(f"{self.topic}.placed.v1", key="order_id")(OrderPlaced)
        self.service.on(OrderPlaced)(self._note)
        self._heard: asyncio.Queue[Event[OrderPlaced]] = asyncio.Queue()

    async def _note(self, event: Event[OrderPlaced], tx: Tx) -> None:
        self._heard.put_nowait(event)

    def event(self, **more: str) -> CloudEvent:
        """What a stranger says, with the attributes that are asked for."""
        attributes = {"id": "their-1", "type": f"{self.topic}.placed.v1", "source": "/theirs", "specversion": "1.0"}
        return CloudEvent(attributes={**attributes, "tenantid": "t1", **more}, data={"order_id": "o1", "number": 3})

    def message(self, wire: str) -> http.HTTPMessage:
        """The same as headers and a body."""
        return http.to_structured_event(self.event()) if wire == "structured" else http.to_binary_event(self.event())

    async def assert_heard(self, event_id: str = "their-1", *, within: float = 30.0) -> None:
        async with asyncio.timeout(within):
            heard = await self._heard.get()
        assert (heard.id, heard.tenant, heard.data.number) == (event_id, "t1", 3)


@contextlib.asynccontextmanager
async def hearing(broker: Broker, folder: Path) -> AsyncIterator[Billing]:
    billing = Billing(broker, folder)
    async with billing.service.running():
        yield billing
