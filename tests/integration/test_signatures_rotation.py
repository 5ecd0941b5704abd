"""Keys are rotated and revoked while facts flow through a real broker: nobody is restarted for it, and nothing true is refused."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import time
from pathlib import Path

import msgspec

from posthouse import App, Event, Payload, Service, Tx
from posthouse.clock import new_id
from posthouse.events import decode_any
from posthouse.seam.seals import SEAL
from posthouse.store import HeldFilter
from posthouse.trust.signatures.keys import read_keys, write_keys
from posthouse.trust.signatures.material import opened
from tests.kit.servers.nats import NatsServer
from tests.kit.signing import Keys
from tests.kit.waiting import eventually

ENOUGH = 100
"""Facts under each key, at least."""
NEVER = 4e9


class OrderPlaced(Payload):
    order_id: str
    number: int


class Traffic:
    """A producer that says facts as fast as they are heard, and another service that hears them and requires signatures."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.keys, self.heard, self.said = Keys(folder), set[int](), 0
        self.readers = folder / "readers.toml"
        namespace = f"n{new_id()[-8:]}"
        self.source = f"/{namespace}/shop"
        self.keys.make("first", self.source)
        self.keys.make("second", self.source, since=NEVER)
        shutil.copy(self.keys.file, self.readers)
        self.shop, books = Service("shop", namespace=namespace), Service("books", namespace=namespace)
        self.shop.event("order.placed.v1", key="order_id")(OrderPlaced)
        books.on(OrderPlaced)(self._hear)
        signing = self.keys.signing("first", "second")
        self.producer = App(self.shop, store=f"sqlite:///{folder / 'shop.db'}", broker=broker, signing=signing)
        proves = dataclasses.replace(self.keys.signing(), keys=self.readers)
        self.consumer = App(books, store=f"sqlite:///{folder / 'books.db'}", broker=broker, signing=proves)

    async def _hear(self, event: Event[OrderPlaced], tx: Tx) -> None:
        self.heard.add(event.data.number)

    async def say(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.say_some()
            await eventually(lambda: self.said - len(self.heard) < ENOUGH)  # a load, and no flood

    async def say_some(self) -> None:
        async with self.shop.transaction("t1") as tx:
            for _ in range(10):
                tx.publish(OrderPlaced(order_id=f"o{self.said % 7}", number=self.said))
                self.said += 1
        await asyncio.sleep(0)

    def change(self, id: str, file: Path, **moments: float) -> None:
        keys = dict(read_keys(file))
        keys[id] = msgspec.structs.replace(keys[id], **moments)
        write_keys(file, keys.values())

    async def signers(self) -> set[str]:
        """Whose signatures are on the newest facts."""
        outbox = self.producer.store.outbox
        newest = await outbox.kept(max(0, await outbox.newest() - 10), 10)
        return {id for row in newest for id, _ in opened(decode_any(row.headers, row.body).extensions[SEAL]).signatures}

    async def reasons(self) -> list[str]:
        return [one.reason for one in await self.consumer.store.held.find(HeldFilter())]


async def test_a_rotation_under_load_refuses_nothing_and_a_revoked_key_proves_nothing_more(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    traffic, stop = Traffic(tmp_path, nats_server.url), asyncio.Event()
    for app in (traffic.producer, traffic.consumer):
        await app.store.upgrade()
    async with traffic.producer.running(), traffic.consumer.running():
        saying = asyncio.create_task(traffic.say(stop))
        await eventually(lambda: len(traffic.heard) > ENOUGH, "facts under the first key")
        for file in (traffic.readers, traffic.keys.file):
            traffic.change("second", file, since=1.0)
            traffic.change("first", file, retired=2.0)
        await eventually(traffic.signers, "the producer has seen the new file", right=lambda ids: ids == {"second"})
        said = traffic.said
        await eventually(lambda: len(traffic.heard) > said + ENOUGH, "facts under the second")
        stop.set()
        await saying
        await eventually(lambda: len(traffic.heard) == traffic.said, "each fact is applied")
        assert await traffic.reasons() == []

        traffic.change("second", traffic.readers, revoked=time.time())  # whoever stole it signs on with it

        async def refused() -> bool:
            await traffic.say_some()
            return bool(await traffic.reasons())

        await eventually(refused, "the consumer has seen the new file", pause=0.1)
        late = traffic.said
        await traffic.say_some()
        await eventually(lambda: _all_settled(traffic), "what came after is dealt with")
        assert max(traffic.heard) < late
        assert {reason.split("'")[1] for reason in await traffic.reasons()} == {"second"}
        assert all("was revoked before it arrived" in reason for reason in await traffic.reasons())
    for app in (traffic.producer, traffic.consumer):
        await app.aclose()


async def _all_settled(traffic: Traffic) -> bool:
    return len(traffic.heard) + len(await traffic.reasons()) == traffic.said
