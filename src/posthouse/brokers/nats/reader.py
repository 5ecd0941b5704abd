"""Reading one partition: a consumer of our own that acknowledges nothing, made anew whenever anything is amiss.

The server holds no state that matters: the cursor is in the ledger. So a lost message, a lost connection, a restarted
server and a forgotten consumer are one case: begin again behind the last frame that arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from nats.aio.msg import Msg

from posthouse.brokers.nats.buffer import ROOM, PartitionBuffer
from posthouse.brokers.nats.client import STATUS, Client
from posthouse.brokers.nats.messages import place_of, stream_of, subjects_of
from posthouse.clock import new_id
from posthouse.errors import BrokerError
from posthouse.local.notifier import LocalNotifier

PULL = 500
"""The most frames to ask for at once."""
EXPIRES = 30.0
HEARTBEAT = 2.0
NANO = 1_000_000_000


class Reader:
    """Fills a buffer as far as it has room; wakes the `notifier` when something arrived, and calls `lost` when it must be opened anew."""

    def __init__(
        self,
        client: Client,
        buffer: PartitionBuffer,
        partitions: int,
        *,
        notifier: LocalNotifier,
        lost: Callable[[], None],
    ) -> None:
        self._client = client
        self._buffer = buffer
        self._stream = stream_of(buffer.topic)
        self._subject = subjects_of(buffer.topic, partitions)[buffer.number]
        self._notifier = notifier
        self._lost = lost
        self._name = ""
        """Of the consumer that is listened to; empty when there is none."""
        self._made = ""
        """Of the one that the server may have, from before it was asked for."""
        self._inbox = ""
        self._end: Callable[[], Awaitable[None]] | None = None
        self._number = 0
        """Of the last message that this consumer sent."""
        self._asked = 0
        """Frames that were asked for and have not come."""
        self._heard = 0.0
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def silent(self) -> bool:
        """Nothing was heard for longer than a living consumer is silent, or there is none."""
        quiet = asyncio.get_running_loop().time() - self._heard
        return not self._name or (self._asked > 0 and quiet > 2 * HEARTBEAT)

    async def open(self) -> None:
        """Make a consumer that begins behind the last frame that arrived."""
        async with self._opening:
            await self._forget()
            if self._closed:
                return
            name = self._made = f"posthouse-{new_id()}"
            config = {
                "name": name,
                "filter_subject": self._subject,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": self._buffer.last + 1,
                "ack_policy": "none",
                "inactive_threshold": int(2 * EXPIRES * NANO),
                "mem_storage": True,
                "num_replicas": 1,
            }
            question = {"stream_name": self._stream, "config": config, "action": "create"}
            verb = f"CONSUMER.CREATE.{self._stream}.{name}.{self._subject}"
            await self._client.ask(verb, question, msgspec.Raw)
            self._inbox, self._end = await self._client.listen(partial(self._take, name))
            self._name, self._number, self._asked = name, 0, 0
        await self.ask()

    async def ask(self) -> None:
        """Ask for as much as there is room for, in good time before the last of it has come."""
        room = min(PULL, self._buffer.room - self._asked)
        if not self._name or self._closed or room <= 0 or self._asked > PULL // 2:
            return
        self._asked += room
        self._heard = asyncio.get_running_loop().time()
        most = max(ROOM, 2 * await self._client.max_payload())
        request = {
            "batch": room,
            "max_bytes": most,
            "expires": int(EXPIRES * NANO),
            "idle_heartbeat": int(HEARTBEAT * NANO),
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._client.tell(subject, msgspec.json.encode(request), self._inbox)

    async def aclose(self) -> None:
        self._closed = True
        async with self._opening:  # or what is being made would outlive us
            await self._forget()

    async def _forget(self) -> None:
        """The server forgets a consumer that it cannot be told to delete, after a minute of silence."""
        self._name, end, self._end = "", self._end, None
        made, self._made = self._made, ""
        if end is not None:
            await end()
        if made:
            with contextlib.suppress(BrokerError):
                await self._client.tell(f"$JS.API.CONSUMER.DELETE.{self._stream}.{made}")

    async def _take(self, consumer: str, message: Msg) -> None:
        if consumer != self._name:
            return  # it was given up
        self._heard = asyncio.get_running_loop().time()
        if message.headers and STATUS in message.headers and not message.reply:
            await self._told(message.headers)
            return
        place = place_of(message.reply)
        if place.number != self._number + 1:
            self._name = ""  # one is missing: begin anew behind the last that came
            self._lost()
            return
        self._number = place.number
        self._asked -= 1
        self._buffer.arrive(place, message)
        self._notifier.wake()
        if self._asked <= PULL // 2:
            with contextlib.suppress(BrokerError):
                await self.ask()

    async def _told(self, headers: dict[str, str]) -> None:
        """100 is a heartbeat; 408 and 409 end a request, with what is left of it; 503: the consumer is gone."""
        status = headers[STATUS]
        if status == "100":
            return
        if "Nats-Pending-Messages" in headers:
            self._asked -= int(headers["Nats-Pending-Messages"])
            with contextlib.suppress(BrokerError):
                await self.ask()
        else:
            self._name = ""
            self._lost()
