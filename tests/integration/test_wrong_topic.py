"""A type is heard on its own topic alone: whoever may speak on another one speaks for nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from posthouse import App, Event, Payload, Policy, Service, Tx
from posthouse.broker import Frame
from posthouse.clock import SystemClock
from posthouse.events import STRUCTURED, codec_of, decode_any, timestamp
from posthouse.receiving.place import digest_of
from posthouse.seam.seals import SEAL
from posthouse.store import HeldEvent, HeldFilter
from posthouse.trust.signatures.covering import TOPIC
from posthouse.trust.signatures.drafts import FactDraft
from posthouse.trust.signatures.keys import read_keys
from tests.kit.signed_shop import Shop
from tests.kit.signing import Keys
from tests.kit.waiting import eventually


class Paid(Payload):
    id: str
    cents: int


class Said(Payload):
    id: str


class Town:
    """A bank, a chat, and a ledger that hears both."""

    def __init__(self, folder: Path, verify: Mapping[str, str] | None) -> None:
        self.bank, self.chat, self.ledger = (Service(name, namespace="n") for name in ("bank", "chat", "ledger"))
        self.bank.event("payment.received.v1", key="id")(Paid)
        self.chat.event("message.said.v1", key="id")(Said)
        self.heard: list[str] = []
        self.ledger.on(Paid, consumer="ledger", policy=Policy(max_attempts=1))(self.paid)
        self.ledger.on(Said, consumer="ledger", policy=Policy(max_attempts=1))(self.said)
        self.keys = Keys(folder)
        self.keys.make("bank-1", "/n/bank", topics=("n.bank.*",))
        self.keys.make("chat-1", "/n/chat", topics=("n.chat.*",))
        self.app = App(
            self.bank,
            self.chat,
            self.ledger,
            store=f"sqlite:///{folder / 'town.db'}",
            broker=f"embedded:///{folder / 'log.db'}?single_host=true",
            signing=None if verify is None else self.keys.signing("bank-1", "chat-1", verify=verify),
        )

    async def paid(self, event: Event[Paid], tx: Tx) -> None:
        self.heard.append(event.id)

    async def said(self, event: Event[Said], tx: Tx) -> None:
        self.heard.append(event.id)

    def payment(self, id: str, source: str) -> Event[bytes]:
        return Event(
            id=id,
            type="n.bank.payment.received.v1",
            source=source,
            data=b'{"id":"p1","cents":1000000}',
            tenant="t1",
            content_type="application/json",
            time=timestamp(SystemClock().now()),
        )

    def signed(self, event: Event[bytes], key: str, topic: str) -> Event[bytes]:
        return FactDraft(read_keys(self.keys.file)[key], self.keys.secrets[key], {TOPIC: topic}, event).whole()

    async def send(self, topic: str, event: Event[bytes]) -> None:
        encoded = STRUCTURED.encode(event)
        frame = Frame(topic=topic, id=event.id, key=None, headers=encoded.headers, body=encoded.body)
        await self.app.broker.publish([frame])

    async def held(self) -> list[HeldEvent]:
        return list(await self.app.store.held.find(HeldFilter()))


REQUIRED = {"n.bank.*": "require", "n.chat.*": "require"}
UNASKED = {"n.bank.*": "require", "*": "off"}
WARNED = {"n.bank.*": "warn", "*": "off"}


@pytest.mark.parametrize(
    ("verify", "reason"),
    [(REQUIRED, "forged: "), (UNASKED, "forged: "), (WARNED, "wrong-topic: "), (None, "wrong-topic: ")],
    ids=["signed", "not asked there", "warned", "without signatures"],
)
async def test_a_type_of_another_is_not_heard_on_a_topic_of_ones_own(
    tmp_path: Path, verify: Mapping[str, str] | None, reason: str
) -> None:
    town = Town(tmp_path, verify)
    await town.app.open()
    async with town.app.running():
        await town.send("n.bank.payment", town.signed(town.payment("true", "/n/bank"), "bank-1", "n.bank.payment"))
        await town.send("n.chat.message", town.signed(town.payment("lie", "/n/chat"), "chat-1", "n.chat.message"))
        async with town.chat.transaction("t1") as tx:
            said = tx.publish(Said(id="m1"))

        async def settled() -> bool:
            return len(town.heard) == 2 and len(await town.held()) == 1

        await eventually(settled, f"heard {town.heard}")
        assert sorted(town.heard) == sorted(["true", said])
        (held,) = await town.held()
        words = "n.bank.payment.received.v1 belongs to the topic n.bank.payment, and came by n.chat.message"
        assert (held.entry.topic, held.state, held.reason) == ("n.chat.message", "quarantined", reason + words)
        await town.app.held.retry(held.id)

        async def refused_again() -> bool:
            (now,) = await town.held()
            return now.state == "quarantined" and now.turn != held.turn

        await eventually(refused_again, "it is refused again")
        assert sorted(town.heard) == sorted(["true", said])
    await town.app.aclose()


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    url = f"sqlite:///{tmp_path / 'shop.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    shop = Shop(url, tmp_path)
    signing = shop.keys.signing("shop-1", verify={"shop.*": "require", "*": "off"})
    shop.app = App(shop.service, store=url, broker=shop.broker, signing=signing)
    await shop.app.store.upgrade()
    yield shop
    await shop.app.aclose()


@pytest.mark.parametrize("changed", [True, False], ids=["another number", "as it was"])
async def test_a_held_row_is_not_run_from_a_topic_where_nothing_is_asked(shop: Shop, changed: bool) -> None:
    shop.fails = True
    async with shop.app.running():
        await shop.place(("a", 1))
        (held,) = await shop.settles(0, 1)
    shop.fails = False
    body = held.body
    if changed:
        event = decode_any(held.headers, held.body)
        unsigned = {name: value for name, value in event.extensions.items() if name != SEAL}
        lie = replace(event, data=event.data.replace(b"1", b"9"), extensions=unsigned)
        body = codec_of(held.headers, held.body).encode(lie).body
    columns = "topic = 'elsewhere.order', state = 'retrying', attempts = 0, next_at = 0"
    await shop.sql(
        f"UPDATE posthouse_held SET {columns}, body = ?, digest = ? WHERE id = ?",
        f"UPDATE posthouse.held SET {columns}, body = $1, digest = $2 WHERE id = $3",
        body,
        digest_of(body),
        held.id,
    )
    async with shop.app.running():

        async def refused() -> bool:
            return (await shop.held())[0].state == "quarantined"

        await eventually(refused, "the row is refused")
        await shop.place(("b", 2))
        await eventually(lambda: ("b", 2) in shop.heard, "its neighbours go on")
        (now,) = await shop.held()
        assert now.reason.startswith("forged: shop.order.placed.v1 belongs to the topic shop.order")
        assert shop.heard == [("b", 2)]
