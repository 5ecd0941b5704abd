"""Google's side of a push subscription, for the tests: wraps messages as Pub/Sub does, brings each until it is answered
with a 2xx, ever more slowly, and has one of an ordering key on its way at a time."""

from __future__ import annotations

import asyncio
import base64
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx

from posthouse.broker import Frame
from posthouse.brokers.pubsub.messages import message_of
from posthouse.clock import new_id

ACCEPTED = (102, 200, 201, 202, 204)
"""The statuses that acknowledge, by Google's page."""


def wrapped(frame: Frame, subscription: str, *, attempt: int | None = 1) -> dict[str, Any]:
    """The body of a request."""
    message = message_of(frame)
    number, published = new_id(), datetime.now(UTC).isoformat().replace("+00:00", "Z")
    body: dict[str, Any] = {
        "message": {
            "data": base64.b64encode(message.data).decode(),
            "attributes": dict(message.attributes),
            "messageId": number,
            "message_id": number,
            "publishTime": published,
            "publish_time": published,
            **({"orderingKey": message.ordering_key} if message.ordering_key else {}),
        },
        "subscription": subscription,
    }
    if attempt is not None:
        body["deliveryAttempt"] = attempt
    return body


class Pusher:
    """`sent` counts requests, `answers` the statuses; None stands for no answer."""

    def __init__(self, url: str, subscription: str, token: Callable[[], str]) -> None:
        self._url = url
        self._subscription = subscription
        self._token = token
        self.answers: dict[int | None, int] = defaultdict(int)

    async def push(self, frames: Sequence[Frame], *, deadline: float) -> None:
        """Until every frame was accepted, or TimeoutError."""
        keys: dict[str | None, list[Frame]] = defaultdict(list)
        for frame in frames:
            keys[frame.key].append(frame)
        async with asyncio.timeout(deadline), httpx.AsyncClient(timeout=20, trust_env=False) as client:
            await asyncio.gather(*(self._line(client, line) for line in keys.values()))

    async def _line(self, client: httpx.AsyncClient, frames: Sequence[Frame]) -> None:
        for frame in frames:
            attempt, pause = 1, 0.02
            while not await self._accepted(client, wrapped(frame, self._subscription, attempt=attempt)):
                await asyncio.sleep(pause)
                attempt, pause = attempt + 1, min(pause * 2, 0.1)

    async def _accepted(self, client: httpx.AsyncClient, body: dict[str, Any]) -> bool:
        try:
            headers = {"Authorization": f"Bearer {self._token()}"}
            status: int | None = (await client.post(self._url, json=body, headers=headers)).status_code
        except httpx.TransportError:
            status = None
        self.answers[status] += 1
        return status in ACCEPTED
