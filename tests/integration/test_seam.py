"""The seam on both stores: what is refused at it was never committed, and every crossing is timed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import pytest
import pytest_asyncio

from posthouse import App, Event, Payload, RuleBroken, Rules, Seam, Service, Tx
from posthouse.broker import Frame
from posthouse.contracts import event_type_of
from posthouse.errors import ConfigurationError, ContractError, EventError, FrameRefused
from posthouse.events import decode_any
from posthouse.processes import Model, Plan, Saga, Turn, starts
from posthouse.seam.timing import read_timing
from posthouse.store import HeldFilter, Transaction
from posthouse.store.streams import Stream
from posthouse.watch.status import drained
from tests.kit.waiting import eventually


class OrderPlaced(Payload):
    order_id: str
    provenance: dict[str, str] | None = None


class Shop:
    """A service that hears itself, on some store, with this seam."""

    def __init__(self, store: str, seam: Seam, broker: str, **terms: object) -> None:
        self.service = Service("shop", residency="eu")
        self.heard: list[Event[OrderPlaced]] = []
        self.service.event("order.placed.v1", key="order_id", **terms)(OrderPlaced)  # type: ignore[arg-type]
        self.service.on(OrderPlaced)(self.hear)
        self.app = App(self.service, store=store, broker=broker, seam=seam)

    async def hear(self, event: Event[OrderPlaced], tx: Tx) -> None:
        self.heard.append(event)

    async def place(self, order_id: str, tenant: str = "t1") -> None:
        async with self.service.transaction(tenant) as tx:
            await tx.execute("INSERT INTO placed VALUES (:id)", {"id": order_id})
            tx.publish(OrderPlaced(order_id=order_id))

    async def committed(self) -> tuple[int, int]:
        """Rows of their own, and facts."""
        async with self.service.transaction("t1") as tx:
            (count,) = await tx.execute("SELECT count(*) FROM placed")
        facts = (await self.app.store.counts()).committed
        return int(str(count[0])), sum(facts.values())


class Make(Protocol):
    """A shop with this seam and these terms of its event, with its tables."""

    async def __call__(self, seam: Seam, **terms: object) -> Shop: ...


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    yield f"sqlite:///{tmp_path / 'shop.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest_asyncio.fixture
async def shop_with(url: str, tmp_path: Path) -> AsyncIterator[Make]:
    opened: list[Shop] = []

    async def made(seam: Seam, **terms: object) -> Shop:
        shop = Shop(url, seam, f"embedded:///{tmp_path / 'log.db'}?single_host=true", **terms)
        opened.append(shop)
        await shop.app.store.upgrade()
        async with shop.service.transaction("t1") as tx:
            await tx.execute("CREATE TABLE placed (id text)")
        return shop

    yield made
    for shop in opened:
        await shop.app.aclose()


@pytest.mark.parametrize(
    ("rules", "terms", "tenant", "rule"),
    [
        (Rules(), {}, "platform", "platform"),
        (Rules(), {"cross_tenant": True}, "t1", "cross-tenant"),
        (Rules(region="us-east-1"), {}, "t1", "residency"),
        (Rules(), {"provenance": "provenance"}, "t1", "provenance"),
        (Rules(retention={"shop.order.*": "cold"}), {}, "t1", "retention"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_nothing_of_a_transaction_is_committed_in_which_a_rule_is_broken(
    shop_with: Make, rules: Rules, terms: dict[str, object], tenant: str, rule: str
) -> None:
    shop = await shop_with(Seam(rules=rules), **terms)
    with pytest.raises(RuleBroken) as broken:
        await shop.place("o1", tenant)
    assert broken.value.rule == rule
    assert await shop.committed() == (0, 0)
    outcomes = {(figure.crossing, figure.outcome) for figure in shop.app.opened.seam.timing.figures()}
    assert {("outward", f"RuleBroken ({rule})"), ("transaction", f"RuleBroken ({rule})")} <= outcomes


async def test_nothing_is_committed_when_a_step_at_the_flush_refuses(shop_with: Make) -> None:
    class OverQuota(EventError):
        pass

    async def quota(transaction: Transaction, events: Sequence[Event[bytes]]) -> Sequence[Event[bytes]]:
        (row,) = await transaction.execute("SELECT count(*) FROM placed")
        if int(str(row[0])) > 1:
            raise OverQuota(f"{events[0].tenant} has had enough")
        return events

    shop = await shop_with(Seam(quota=quota))
    await shop.place("o1")
    with pytest.raises(OverQuota, match="t1 has had enough"):
        await shop.place("o2")
    assert await shop.committed() == (1, 1)


async def test_what_a_step_made_of_a_fact_is_what_a_consumer_gets(shop_with: Make) -> None:
    async def sign(transaction: Transaction, events: Sequence[Event[bytes]]) -> Sequence[Event[bytes]]:
        return [msgspec.structs.replace(event, extensions={"signature": f"of {event.id}"}) for event in events]

    shop = await shop_with(Seam(sign=sign))
    insert = "INSERT INTO placed VALUES (:id)"
    async with shop.app.running():
        await shop.place("o1")
        await shop.service.record(insert, {"id": "o2"}, OrderPlaced(order_id="o2"), tenant="t1")
        async with shop.service.transaction("t1") as tx:
            tx.publish(OrderPlaced(order_id="o3"), after=0.01)
        await eventually(lambda: len(shop.heard) == 3)
        await drained(shop.service)
        for event in shop.heard[:2]:
            assert event.extensions == {"signature": f"of {event.id}"}
        assert "signature" in shop.heard[2].extensions
        assert [held async for held in shop.app.held.find(HeldFilter())] == []


async def test_a_saga_publishes_through_the_steps_too(shop_with: Make) -> None:
    async def sign(transaction: Transaction, events: Sequence[Event[bytes]]) -> Sequence[Event[bytes]]:
        return [msgspec.structs.replace(event, extensions={"signature": "s"}) for event in events]

    shop = await shop_with(Seam(sign=sign))

    @shop.service.saga("buying", correlate="order_id")
    class Buying(Saga):
        order_id: str

        @starts
        async def begin(self, turn: Turn) -> None:
            turn.publish(OrderPlaced(order_id=self.order_id))

    async with shop.app.running():
        async with shop.service.transaction("t1") as tx:
            assert await shop.service.start_saga(tx, Buying(order_id="o1"))
        await eventually(lambda: len(shop.heard) == 1)
        assert shop.heard[0].extensions == {"signature": "s"}


async def test_a_frame_that_was_refused_and_is_accepted_later_is_applied_once(shop_with: Make) -> None:
    strangers = True

    def verify(frame: Frame) -> None:
        if strangers:
            raise FrameRefused("nobody signed it")

    async def quarantined(wanted: int) -> list[int] | None:
        found = [event.id async for event in shop.app.held.find(HeldFilter(state="quarantined"))]
        return found if len(found) == wanted else None

    shop = await shop_with(Seam(verify=verify))
    async with shop.app.running():
        for number in (1, 2):
            await shop.place("o1")
            found = await eventually(partial(quarantined, number))
        strangers = False
        for id in reversed(found):
            await shop.app.held.retry(id)
        await eventually(lambda: len(shop.heard) == 2)
        await drained(shop.service)
    assert [(event.tenant, event.sequence) for event in shop.heard] == [("t1", 1), ("t1", 2)]


async def encrypt(transaction: Transaction, events: Sequence[Event[bytes]]) -> Sequence[Event[bytes]]:
    return [event.with_data(msgspec.json.encode({"sealed": event.data.hex()})) for event in events]


async def decrypt(event: Event[bytes]) -> Event[bytes]:
    return event.with_data(bytes.fromhex(msgspec.json.decode(event.data)["sealed"]))


async def test_streams_and_read_models_that_are_rebuilt_from_them_get_decrypted_data(shop_with: Make) -> None:
    shop = await shop_with(Seam(encrypt=encrypt, decrypt=decrypt))
    orders = shop.service.aggregate("order", initial=list[str], evolve=_with_id, events=(OrderPlaced,))
    model = shop.service.projection("orders")
    fed: list[str] = []

    @model.on(OrderPlaced)
    async def feed(event: Event[OrderPlaced], model: Model) -> None:
        fed.append(event.data.order_id)

    await shop.app.aclose()  # it was opened without the read model
    async with shop.app.running():
        for number in (1, 2):
            assert await orders.execute("o1", _place, tenant="t1") == ["o1"] * number
        async with shop.service.transaction("t1") as tx:
            assert [event.data for event in await orders.history(tx, "o1")] == [OrderPlaced(order_id="o1")] * 2
            stored = await tx.store.streams.read(tx.transaction, Stream("t1", "order", "o1"))
        assert all(b"sealed" in row.body for row in stored)
        await drained(shop.service)
        assert fed == ["o1", "o1"]
        assert (await shop.app.projections.rebuild("orders", Plan(source="streams"))).events == 2
        assert fed == ["o1"] * 4


async def test_what_a_stream_keeps_sealed_is_named_when_it_cannot_be_opened(shop_with: Make) -> None:
    async def refuse(event: Event[bytes]) -> Event[bytes]:
        raise FrameRefused("its key is gone")

    shop = await shop_with(Seam(encrypt=encrypt, decrypt=refuse))
    orders = shop.service.aggregate("order", initial=list[str], evolve=_with_id, events=(OrderPlaced,))
    await orders.execute("o1", _place, tenant="t1")
    with pytest.raises(ContractError, match=r"o1.*, version 1: its key is gone"):
        await orders.execute("o1", _place, tenant="t1")


def _place(state: list[str]) -> OrderPlaced:
    return OrderPlaced(order_id="o1")


def _with_id(state: list[str], placed: OrderPlaced) -> list[str]:
    return [*state, placed.order_id]


async def test_a_service_that_declares_what_breaks_rules_does_not_start_and_says_all(shop_with: Make) -> None:
    rules = Rules(region="us-east-1", retention={"shop.order.*": "cold"}, provenance=["shop.order.*"])
    shop = await shop_with(Seam(rules=rules), cross_tenant=True)
    with pytest.raises(ConfigurationError) as refused:
        await shop.app.opened.prepare()
    named = [problem.partition(": shop.order.placed.v1 ")[0] for problem in refused.value.problems]
    assert named == ["rule 'cross-tenant'", "rule 'residency'", "rule 'provenance'", "rule 'retention'"]


async def test_the_answer_to_a_frame_without_a_tenant_must_be_listed(shop_with: Make) -> None:
    shop = await shop_with(Seam())

    @shop.service.external("vendor.payments.payment.settled.v1", key="order_id")
    class Settled(Payload):
        order_id: str

    @shop.service.on(Settled, consumer="answers")
    async def answer(event: Event[Settled], tx: Tx) -> OrderPlaced:
        return OrderPlaced(order_id=event.data.order_id)

    async def held() -> list[str]:
        return [event.error async for event in shop.app.held.find(HeldFilter())]

    async with shop.app.running():
        said = {"specversion": "1.0", "id": "1", "source": "/vendor", "subject": "o1", "data": {"order_id": "o1"}}
        body = msgspec.json.encode({**said, "type": "vendor.payments.payment.settled.v1"})
        headers = {"content-type": "application/cloudevents+json"}
        topic = event_type_of(Settled).topic
        await shop.app.broker.publish([Frame(topic=topic, id="1", key="o1", headers=headers, body=body)])
        await eventually(held)
        [error] = await held()
    assert "list it in Rules(platform=[…]), as the answer to a frame of others that names no tenant must be" in error


async def test_every_crossing_is_timed_and_written_down_for_others_to_see(shop_with: Make) -> None:
    shop = await shop_with(Seam())
    async with shop.app.running():
        await shop.place("o1")
        await eventually(lambda: len(shop.heard) == 1)
        await drained(shop.service)
    figures = {
        (figure.crossing, figure.name, figure.outcome): figure for figure in shop.app.opened.seam.timing.figures()
    }
    crossed = [place for place in figures if place[2] == "ok"]
    assert ("outward", "shop.order.placed.v1", "ok") in crossed
    assert ("publish", "shop", "ok") in crossed
    assert {"outward", "inward", "handler", "publish", "receive", "transaction"} == {place[0] for place in crossed}
    assert figures["outward", "shop.order.placed.v1", "ok"].count == 1
    (written,) = await read_timing(shop.app.store.workers)
    assert (written.service, written.processes) == ("shop", 1)
    assert {figure.crossing for figure in written.figures} == {place[0] for place in crossed}


def test_a_step_that_waits_for_nobody_is_taken_in_a_synchronous_transaction_too(tmp_path: Path) -> None:
    async def sign(transaction: Transaction, events: Sequence[Event[bytes]]) -> Sequence[Event[bytes]]:
        return [msgspec.structs.replace(event, extensions={"signature": "s"}) for event in events]

    async def ask(transaction: Transaction, events: Sequence[Event[bytes]]) -> Sequence[Event[bytes]]:
        await asyncio.sleep(0)
        return events

    file = tmp_path / "shop.db"
    for seam in (Seam(sign=sign), Seam(quota=ask)):
        shop = Shop(f"sqlite:///{file}", seam, "memory://")
        asyncio.run(shop.app.open())
        connection = sqlite3.connect(file)
        connection.execute("BEGIN")
        if seam.quota is None:
            shop.service.outbox.add_now(connection, OrderPlaced(order_id="o1"), tenant="t1")
        else:
            with pytest.raises(ConfigurationError, match="waits"):
                shop.service.outbox.add_now(connection, OrderPlaced(order_id="o2"), tenant="t1")
        connection.commit()
        rows = connection.execute("SELECT headers, body FROM posthouse_outbox").fetchall()
        connection.close()
        asyncio.run(shop.app.aclose())
    ((headers, body),) = rows
    assert decode_any(msgspec.json.decode(headers), body).extensions == {"signature": "s"}
