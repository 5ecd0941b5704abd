"""Frames to publish, and what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from posthouse.broker import Delivery, Frame, Stream
from posthouse.clock import new_id


def frames(topic: str, count: int, *, keys: int = 1, body: bytes = b"x") -> list[Frame]:
    """Of so many keys in turn: k0, k1 …"""
    return [Frame(topic=topic, id=new_id(), key=f"k{n % keys}", body=body) for n in range(count)]


def ids(deliveries: Iterable[Delivery]) -> list[str]:
    return [delivery.frame.id for delivery in deliveries]


async def collect(stream: Stream, count: int, *, ack: bool = True, within: float = 40.0) -> list[Delivery]:
    """So many deliveries, acknowledged as they come unless told otherwise."""
    got: list[Delivery] = []
    async with asyncio.timeout(within):
        while len(got) < count:
            batch = await stream.receive(count - len(got), within)
            got += batch
            if ack:
                await stream.ack(batch)
    return got
