"""What tests of acts share: a shop whose handler fails, and somebody at the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import pytest

from posthouse import Event, Payload, Personal, Policy, Service
from posthouse.console.access.who import Role, Who
from posthouse.console.acting.table import pressed
from posthouse.console.asking import Refusal
from posthouse.console.estate import Estate

ADA = Who(name="ada", roles=frozenset[Role](("operator", "replayer")), payloads=True)


def a_shop(name: str = "shop") -> tuple[Service, Any, dict[str, bool]]:
    """A service, its event, and whether its handler fails."""
    shop, broken = Service(name), {"broken": True}

    @shop.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str
        total: int
        email: Annotated[str, Personal("contact")] = ""

    @shop.on(OrderPlaced, policy=Policy(max_attempts=1))
    async def bill(event: Event[OrderPlaced]) -> None:
        if broken["broken"]:
            raise ValueError("broken")

    return shop, OrderPlaced, broken


class Console:
    """Somebody who presses."""

    def __init__(self, *services: Service, who: Who = ADA) -> None:
        self.estate = Estate(*services)
        self.who = who

    async def send(self, name: str, **body: object) -> Any:
        """The answer as a browser reads it."""
        answer = await pressed(self.estate, self.who, name, msgspec.json.encode(body))
        return msgspec.json.decode(msgspec.json.encode(answer))

    async def look(self, name: str, **body: object) -> Any:
        return await self.send(name, **body, dry=True)

    async def press(self, name: str, **body: object) -> Any:
        """Look, and do what was seen."""
        seen = await self.look(name, **body)
        return await self.send(name, **body, why="ticket 7", **keys(seen))

    async def refusal(self, name: str, **body: object) -> Refusal:
        with pytest.raises(Refusal) as caught:
            await self.send(name, **body)
        return caught.value


def keys(seen: Mapping[str, object]) -> dict[str, object]:
    """What a dialog sends back of a preview."""
    return {"seen": seen["seen"], "press": seen["press"]}
