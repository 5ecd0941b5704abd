"""E3: whichever way a fact is made, its envelope says all there is to say about it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest

from posthouse import (
    Actor,
    Aggregate,
    App,
    Event,
    Model,
    Payload,
    Policy,
    Run,
    Saga,
    Service,
    Settings,
    Turn,
    Tx,
    starts,
    step,
)
from posthouse.broker import Frame
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.contracts import Idempotency, event_type_of
from posthouse.edges.correlation import correlated
from posthouse.errors import ConfigurationError, RuleBroken, SubjectError
from posthouse.events import STRUCTURED, Metadata, decode_any
from posthouse.testing import Harness
from tests.kit.waiting import eventually


class Asked(Payload):
    id: str


class Said(Payload):
    """What every way says; `way` tells which."""

    id: str
    way: str


class Paid(Payload):
    id: str


class Drawn(Payload):
    id: str


class Listed(Payload):
    id: str


class Noted(Payload):
    id: str
    way: str


CALLS: list[type[Saga]] = []
"""The saga that code starts, of the service that was made last."""


def shop_of(idempotency: Idempotency = "optional") -> Service:
    shop = Service("shop", namespace="acme", owner="team")
    shop.event("thing.asked.v1", key="id")(Asked)
    shop.event("thing.said.v1", key="id", idempotency=idempotency)(Said)
    shop.event("thing.paid.v1", key="id")(Paid)
    shop.event("account.drawn.v1", key="id")(Drawn)
    shop.event("room.listed.v1", key="id")(Listed)
    shop.event("note.noted.v1", idempotency=idempotency)(Noted)

    @shop.on(Asked, consumer="answers")
    async def answer(event: Event[Asked], tx: Tx) -> Sequence[Said | Noted]:
        tx.publish(Said(id=event.data.id, way="a handler's publish"))
        tx.publish(Said(id=event.data.id, way="a handler's timer"), after=0.01)
        one = Said(id=event.data.id, way="a handler's return value")
        return [one, Noted(id=event.data.id, way="an event without a key")]

    accounts: Aggregate[int, Drawn] = shop.aggregate(
        "account", initial=int, evolve=lambda count, _: count + 1, events=[Drawn]
    )

    @shop.on(Asked, consumer="accounts")
    async def draw(event: Event[Asked], tx: Tx) -> None:
        await accounts.decide(tx, event.data.id, lambda count: Drawn(id=event.data.id))

    @shop.saga("payment", correlate="id")
    class Payment(Saga):
        id: str

        @starts(Asked)
        def begin(self, event: Event[Asked], turn: Turn) -> None:
            turn.publish(Said(id=self.id, way="the start of a saga"))

        @step(Paid)
        def paid(self, event: Event[Paid], turn: Turn) -> None:
            turn.publish(Said(id=self.id, way="the step of a saga"))
            turn.complete()

    @shop.saga("call", correlate="id")
    class Call(Saga):
        id: str

        @starts
        def begin(self, turn: Turn) -> None:
            turn.publish(Said(id=self.id, way="a saga that code started"))

        @step(Paid)
        def paid(self, event: Event[Paid], turn: Turn) -> None: ...

    CALLS[:] = [Call]

    @shop.every("0 6 * * *", tenants=["t1"])
    async def audit(run: Run, tx: Tx) -> Said:
        return Said(id="r1", way="a schedule")

    listings = shop.projection("listings", publishes=[Said])

    @listings.on(Listed)
    async def listed(event: Event[Listed], model: Model) -> None:
        model.publish(Said(id=event.data.id, way="a projection"))

    return shop


@asynccontextmanager
async def opened(shop: Service, folder: Path) -> AsyncIterator[tuple[App, MemoryBroker]]:
    broker = MemoryBroker(clock=SystemClock())
    settings = Settings(region="me-central1", residency="eu")
    app = App(shop, store=f"sqlite:///{folder}/shop.db", broker=broker, settings=settings)
    async with shop.running():
        yield app, broker


def on_the_wire(broker: MemoryBroker) -> dict[str, Event[bytes]]:
    """What was published, by the way in which it was said; of other facts by their type."""
    events = [decode_any(s.frame.headers, s.frame.body) for log in broker.log.topics.values() for s in log]
    return {_way(event): event for event in events}


def _way(event: Event[bytes]) -> str:
    _, found, way = event.data.partition(b'"way":"')
    return way.rstrip(b'"}').decode() if found else event.type


async def say_in_every_way(shop: Service, app: App, folder: Path, keys: bool) -> set[str]:
    def key(way: str) -> str | None:
        return f"shop:thing:{way}" if keys else None

    def said(way: str) -> Said:
        return Said(id="o1", way=way)

    path = f"{folder}/shop.db"
    async with shop.transaction("t1") as tx:
        tx.publish(Asked(id="o1"))
        tx.publish(said("a transaction"), idempotency_key=key("a"))
        tx.publish(said("a timer"), after=0.01, idempotency_key=key("b"))
        await shop.start_saga(tx, CALLS[0](id="o1"))
        tx.publish(Listed(id="o1"))
    async with shop.transaction("t1") as tx:
        tx.publish(Paid(id="o1"))
    await asyncio.to_thread(_say_without_a_loop, shop, path, key)
    with closing(sqlite3.connect(path, timeout=30.0, check_same_thread=False)) as connection, connection:
        await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")  # others write meanwhile, and need this loop
        async with shop.joined(connection, "t1") as tx:
            tx.publish(said("a joined transaction"), idempotency_key=key("e"))
        await shop.outbox.add(connection, said("outbox.add"), tenant="t1", idempotency_key=key("f"))
    if not keys:
        await shop.record("UPDATE tried SET id = 'o2'", {}, said("record"), tenant="t1")
    await app.schedules.run_now("audit", by="ann")
    return {
        "a transaction", "a timer", "add_now", "outbox.joined", "a joined transaction", "outbox.add",
        "a handler's publish", "a handler's timer", "a handler's return value", "an event without a key",
        "the start of a saga", "the step of a saga", "a saga that code started", "a schedule", "a projection",
        "acme.shop.account.drawn.v1", *([] if keys else ["record"]),
    }  # fmt: skip


def _say_without_a_loop(shop: Service, path: str, key: Callable[[str], str | None]) -> None:
    with closing(sqlite3.connect(path, timeout=30.0)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS tried AS SELECT 'o1' AS id")
        connection.commit()
        connection.execute("BEGIN IMMEDIATE")
        shop.outbox.add_now(connection, Said(id="o1", way="add_now"), tenant="t1", idempotency_key=key("c"))
        with shop.outbox.joined(connection, "t1") as tx:
            tx.publish(Said(id="o1", way="outbox.joined"), idempotency_key=key("d"))


FOLLOWING = {
    "a handler's publish", "a handler's timer", "a handler's return value", "an event without a key", "the start of a saga",
    "the step of a saga", "a saga that code started", "a schedule", "a projection", "acme.shop.account.drawn.v1",
}  # fmt: skip
"""What follows from something, so that its key does too."""


async def test_whichever_way_a_fact_is_made_its_envelope_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTHOUSE_COMMIT", "c0ffee")
    shop = shop_of()
    async with opened(shop, tmp_path) as (app, broker):
        ways = await say_in_every_way(shop, app, tmp_path, keys=False)
        await eventually(lambda: ways <= on_the_wire(broker).keys(), "every way was said")
        found = on_the_wire(broker)
        rows = {event.metadata.outbox_id for event in found.values()}
    assert len(rows) == len(found)
    for way in ways:
        event = found[way]
        assert event.actor == Actor(kind="service", id="shop"), way
        assert event.producer is not None
        assert (event.producer.service, event.producer.commit, event.producer.region) == (
            "shop",
            "c0ffee",
            "me-central1",
        )
        assert event.producer.instance, way
        assert event.metadata.residency == "eu", way
        assert event.metadata.outbox_id is not None, way
        assert event.metadata.outbox_id.isdecimal(), way
        assert event.metadata.offline_replay is False, way
        assert event.schema is not None, way
        assert event.correlation, way
        assert event.time, way
        assert (event.idempotency_key is not None) == (way in FOLLOWING), way
        if event.idempotency_key is not None:
            assert event.idempotency_key.startswith(f"shop:{event.type.split('.')[2]}:{event.type.split('.')[3]}:"), way


async def test_a_contract_that_asks_for_a_key_is_kept_by_every_way_that_names_one_or_follows_from_something(
    tmp_path: Path,
) -> None:
    shop = shop_of("required")
    async with opened(shop, tmp_path) as (app, broker):
        ways = await say_in_every_way(shop, app, tmp_path, keys=True)
        await eventually(lambda: ways <= on_the_wire(broker).keys(), "every way was said")
        found = on_the_wire(broker)
    assert all(found[way].idempotency_key for way in ways)
    assert len({found[way].idempotency_key for way in ways}) == len(ways)


async def test_a_contract_that_asks_for_a_key_refuses_a_fact_without_one_before_anything_is_written(
    tmp_path: Path,
) -> None:
    shop = shop_of("required")
    async with opened(shop, tmp_path) as (app, broker):
        with pytest.raises(RuleBroken, match=r"idempotency_key=f\"shop:thing:said:…\"") as broken:
            async with shop.transaction("t1") as tx:
                tx.publish(Said(id="o1", way="bare"))
        assert broken.value.rule == "idempotency"
        with pytest.raises(RuleBroken, match="has no key"):
            await shop.record("UPDATE tried SET id = 'o2'", {}, Said(id="o1", way="bare"), tenant="t1")
        assert not (await app.store.counts()).committed
        assert not on_the_wire(broker)


async def test_what_was_done_offline_is_marked_and_what_follows_from_it_is_not(tmp_path: Path) -> None:
    shop = shop_of()
    async with opened(shop, tmp_path) as (_, broker):
        with correlated(offline_replay=True, actor=Actor(kind="user", id="ann")):
            async with shop.transaction("t1") as tx:
                tx.publish(Asked(id="o1"))
        await eventually(lambda: "a handler's return value" in on_the_wire(broker))
        found = on_the_wire(broker)
    assert found["acme.shop.thing.asked.v1"].metadata.offline_replay is True
    assert found["a handler's return value"].metadata.offline_replay is False
    assert found["a handler's return value"].actor == Actor(kind="user", id="ann")


async def test_a_residency_that_was_declared_stands_before_that_of_the_settings(tmp_path: Path) -> None:
    shop = Service("shop", residency="ca")
    shop.event("thing.said.v1", key="id")(Said)
    async with opened(shop, tmp_path) as (_, broker):
        async with shop.transaction("t1") as tx:
            tx.publish(Said(id="o1", way="declared"))
        await eventually(lambda: "declared" in on_the_wire(broker))
        assert on_the_wire(broker)["declared"].metadata.residency == "ca"


async def test_the_residency_of_the_settings_is_a_rule_like_a_declared_one(tmp_path: Path) -> None:
    shop = Service("shop")
    shop.event("thing.said.v1", key="id")(Said)
    broker = MemoryBroker(clock=SystemClock())
    broker.sheet = msgspec.structs.replace(broker.sheet, region="us-east-1")
    App(shop, store=f"sqlite:///{tmp_path}/shop.db", broker=broker, settings=Settings(residency="eu"))
    with pytest.raises(ConfigurationError, match="must not leave 'eu', and the broker is in 'us-east-1'"):
        async with shop.running():
            pass


async def test_a_handler_that_is_run_again_says_its_facts_under_the_same_keys() -> None:
    """As after an inbox was cleared, or a database was restored to before it ran."""
    shop = Service("shop")
    shop.event("note.noted.v1")(Noted)
    shop.event("thing.said.v1", key="id")(Said)

    @shop.on(Noted)
    async def answer(event: Event[Noted]) -> Said:
        return Said(id="o1", way="answer")

    async with Harness(shop) as harness:
        await harness.publish(Noted(id="o1", way="cause"))
        await harness.settled()
        async with shop.transaction("t1") as tx:
            await tx.execute("DELETE FROM posthouse_inbox")
        await harness.broker.publish([one.frame for one in harness.broker.log.topics["shop.note"]])
        first, again = await eventually(lambda: harness.published(Said), right=lambda said: len(said) == 2)
    assert again.id != first.id
    assert again.idempotency_key == first.idempotency_key is not None


async def test_two_facts_of_one_kind_from_one_cause_are_two() -> None:
    shop = Service("shop")
    shop.event("thing.asked.v1", key="id")(Asked)
    shop.event("thing.said.v1", key="id")(Said)
    shop.event("note.noted.v1")(Noted)

    @shop.on(Asked)
    async def answer(event: Event[Asked]) -> list[Said | Noted]:
        return [
            Said(id="o1", way="1"), Said(id="o1", way="2"), Said(id="o2", way="3"), Noted(id="o1", way="1"),
            Noted(id="o1", way="2"),
        ]  # fmt: skip

    async with Harness(shop) as harness:
        cause = await harness.publish(Asked(id="o1"))
        await harness.settled()
        keys = [event.idempotency_key for event in await harness.published(Said)]
        notes = [event.idempotency_key for event in await harness.published(Noted)]
    assert keys == [
        f"shop:thing:said:shop:{cause}:1:o1",
        f"shop:thing:said:shop:{cause}:2:o1",
        f"shop:thing:said:shop:{cause}:1:o2",
    ]
    assert notes == [f"shop:note:noted:shop:{cause}:1", f"shop:note:noted:shop:{cause}:2"]


async def test_a_list_of_events_is_no_cause_because_another_list_comes_the_next_time() -> None:
    shop = Service("shop")
    shop.event("thing.asked.v1", key="id")(Asked)
    shop.event("note.noted.v1")(Noted)

    @shop.on(Asked)
    async def answer(events: list[Event[Asked]]) -> Noted:
        return Noted(id="o1", way="list")

    async with Harness(shop) as harness:
        await harness.publish(Asked(id="o1"))
        await harness.settled()
        (noted,) = await harness.published(Noted)
    assert noted.idempotency_key is None


async def test_both_versions_of_one_fact_mean_the_same() -> None:
    shop = Service("shop")
    shop.event("thing.asked.v1", key="id")(Asked)
    shop.event("thing.said.v1", key="id")(Noted)
    shop.event("thing.said.v2", key="id")(Said)

    @shop.downcast(Said, to=Noted)
    def older(new: Said) -> Noted:
        return Noted(id=new.id, way=new.way)

    @shop.on(Asked)
    async def answer(event: Event[Asked]) -> Said:
        return Said(id="o1", way="both")

    async with Harness(shop) as harness:
        await harness.publish(Asked(id="o1"))
        await harness.settled()
        (new,), (old,) = await harness.published(Said), await harness.published(Noted)
    assert new.idempotency_key == old.idempotency_key is not None


async def test_an_unordered_fact_and_a_dead_letter_keep_the_row_that_they_came_from(tmp_path: Path) -> None:
    shop = Service("shop")
    shop.event("note.noted.v1")(Noted)

    @shop.on(Noted, policy=Policy(max_attempts=1))
    async def fail(event: Event[Noted]) -> None:
        raise ValueError("no")

    async with Harness(shop) as harness:
        await harness.publish(Noted(id="o1", way="x"))
        await harness.settled()
        (noted,) = await harness.published(Noted)
        (letter,) = harness.broker.log.topics["shop.note.dlq"]
    assert noted.metadata.outbox_id is not None
    assert decode_any(letter.frame.headers, letter.frame.body).metadata.outbox_id == noted.metadata.outbox_id


def test_a_fact_that_is_no_past_tense_is_declared_where_it_is() -> None:
    lock = Service("lock")

    @lock.event("vendor.offline.v1", not_past=True)
    class VendorOffline(Payload):
        name: str

    assert event_type_of(VendorOffline).name == "lock.vendor.offline.v1"
    assert lock.not_past == ("vendor.offline",)
    with pytest.raises(SubjectError, match="not past tense"):
        lock.event("door.offline.v1")


async def test_a_fact_of_others_that_a_model_made_is_held_when_it_does_not_say_which() -> None:
    shop = Service("shop")

    @shop.external("brain.guess.made.v1", key="id", provenance=True)
    class GuessMade(Payload):
        id: str

    seen: list[str] = []

    @shop.on(GuessMade)
    async def believe(event: Event[GuessMade]) -> None:
        seen.append(event.data.id)

    async with Harness(shop) as harness:
        for id, provenance in (("bare", None), ("made", {"model": "m1"})):
            event = Event(
                id=id, type="brain.guess.made.v1", source="/brain", data=b'{"id":"%b"}' % id.encode(), time="", tenant="t1",
                key=id, sequence=1, metadata=Metadata(ai_provenance=provenance),
            )  # fmt: skip
            headers, body = STRUCTURED.encode(event)
            await harness.broker.publish(
                [Frame(topic="brain.guess", id=id, key=f"t1:{id}", headers=headers, body=body)]
            )
        await eventually(lambda: seen)
        await harness.settled()
        (held,) = await harness.held(shop)
    assert seen == ["made"]
    assert "lacks the provenance" in held.error
