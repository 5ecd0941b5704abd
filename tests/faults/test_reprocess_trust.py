"""Who says when an event arrived, what was said, and how long a grant runs: never whoever made the event, and never longer than it is so."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from posthouse import App, Event, Payload, Rights, Service, Tx, reprocessing
from posthouse.broker import Frame
from posthouse.events import STRUCTURED
from posthouse.history.replay import Choice, From
from posthouse.store import Scope
from posthouse.trust.rights import Asked, signed_in
from posthouse.trust.signatures.covering import TOPIC
from posthouse.trust.signatures.drafts import FactDraft
from posthouse.trust.signatures.keys import Key
from tests.kit.signed_shop import Shop
from tests.kit.signing import Keys
from tests.kit.waiting import eventually

DAY = 86_400.0


def old_id(days: float) -> str:
    """An id that says that it was drawn so many days ago."""
    ms = f"{int((time.time() - days * DAY) * 1000):012x}"
    return f"{ms[:8]}-{ms[8:]}-7abc-8def-0123456789ab"


def page(shop: Shop, key: Key | None, id: str, number: int, said: str) -> Frame:
    """A fact of the shop that somebody made beside it, dated as they like."""
    fact = Event(
        id=id, type="shop.page.seen.v1", source="/shop", data=b'{"number":%d}' % number, tenant="t1",
        content_type="application/json", time=said,
    )  # fmt: skip
    if key is not None:
        fact = FactDraft(key, shop.keys.secrets[key.id], {TOPIC: "shop.page"}, fact).whole()
    whole = STRUCTURED.encode(fact)
    return Frame(topic="shop.page", id=id, key=None, headers=whole.headers, body=whole.body)


def planted(shop: Shop, frame: Frame, written_at: float) -> None:
    """The row of it in the outbox."""
    with sqlite3.connect(shop.folder / "shop.db") as store:
        store.execute(
            "INSERT INTO posthouse_outbox (shard, topic, tenant, event_id, headers, body, written_at, lineage) "
            "SELECT shard, ?, 't1', ?, headers, ?, ?, lineage FROM posthouse_outbox LIMIT 1",
            (frame.topic, frame.id, frame.body, written_at),
        )
    store.close()


async def replayed(service: Service, source: From = "log", *, reprocess: bool = False, rate: float = 0.0) -> Any:
    choice = Choice(consumer=service.name, source=source, reprocess=reprocess)
    plan = await reprocessing.planned(service, choice)
    job = await reprocessing.begin(service, choice, total=plan.events, rate=rate, by="ada", why="ticket 7")
    return plan, await reprocessing.run(service, job.id, look=0.02)


@pytest.mark.parametrize("what", ["revoked", "since"])
async def test_the_outbox_says_when_a_fact_arrived_and_not_its_id(tmp_path: Path, what: str) -> None:
    shop = Shop(f"sqlite:///{tmp_path}/shop.db", tmp_path)
    stolen = shop.keys.make("shop-old")
    verify = {"*": "require"}
    if what == "revoked":
        shop.keys.change(msgspec.structs.replace(stolen, revoked=time.time() - DAY))
    else:
        verify = {"*": time.strftime("require since %Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - DAY))}
    shop.app = App(shop.service, store=shop.url, broker=shop.broker, signing=shop.keys.signing("shop-1", verify=verify))
    async with shop.app.running():
        await shop.place(("o1", 1))
        await shop.settles(1, 0)
        # the database says that it came now; its id, and the fact itself, that it came last week
        forged = page(shop, stolen if what == "revoked" else None, old_id(7), 666, "2026-01-01T00:00:00Z")
        planted(shop, forged, time.time())
        await shop.settles(1, 1)
        plan, job = await replayed(shop.service, "outbox")
        assert (job.state, job.done, plan.events, plan.unread) == ("done", 0, 0, 1), job
        assert shop.heard == [("o1", 1)]
        assert [held.state for held in await shop.held()] == ["quarantined"]
    await shop.app.aclose()


async def test_what_was_quarantined_when_it_came_does_not_become_true_by_a_replay(tmp_path: Path) -> None:
    """Its row was written before the key was revoked, and the relay sent it after that: the outbox alone would let it in."""
    shop = Shop(f"sqlite:///{tmp_path}/shop.db", tmp_path)
    stolen = shop.keys.make("shop-old")
    shop.keys.change(msgspec.structs.replace(stolen, revoked=time.time() - 60))
    async with shop.app.running():
        await shop.place(("o1", 1))
        await shop.settles(1, 0)
        planted(shop, page(shop, stolen, old_id(0), 666, "2026-01-01T00:00:00Z"), time.time() - 120)
        await shop.settles(1, 1)
        plan, job = await replayed(shop.service, "outbox")
        assert (job.state, job.done, plan.left_out.get("held")) == ("done", 0, 1), (job, plan)
        assert shop.heard == [("o1", 1)]
    await shop.app.aclose()


async def test_what_is_put_aside_is_judged_by_its_arrival_and_not_by_its_own_time(tmp_path: Path) -> None:
    shop, begun = Shop(f"sqlite:///{tmp_path}/shop.db", tmp_path), time.time()
    stolen = shop.keys.make("shop-old")
    async with shop.app.running():
        frames = [page(shop, stolen, f"f{n}", n, "2026-01-01T00:00:00Z") for n in range(40)]
        await shop.app.broker.publish(frames)
        await eventually(lambda: len(shop.heard) == 40)
        shop.heard.clear()
        replay = asyncio.ensure_future(replayed(shop.service, reprocess=True, rate=4.0))
        await eventually(lambda: len(shop.heard) >= 2)
        shop.keys.change(msgspec.structs.replace(stolen, revoked=begun - 60))  # before any of it arrived
        _, job = await asyncio.wait_for(replay, 30)
        assert job.state == "paused"
        assert "was revoked before it arrived" in job.note
        assert len(shop.heard) < 20, "the keys are read anew within a second or two"
    await shop.app.aclose()


class Order(Payload):
    id: str


class Invoice(Payload):
    id: str


@pytest.mark.parametrize("forged", ["unsigned", "by another service"])
async def test_only_what_a_service_said_itself_counts_as_said(tmp_path: Path, forged: str) -> None:
    keys, invoices = Keys(tmp_path), list[str]()
    shop, billing = Service("shop"), Service("billing")
    shop.event("order.placed.v1", key="id")(Order)
    billing.event("invoice.issued.v1", key="id")(Invoice)

    @billing.on(Order, publishes=[Invoice])
    async def bill(event: Event[Order], tx: Tx) -> None:
        tx.publish(Invoice(id=event.data.id), idempotency_key=f"invoice:{event.data.id}")

    @shop.on(Invoice)
    async def note(event: Event[Invoice]) -> None:
        invoices.append(event.data.id)

    keys.make("shop-1", "/shop")
    keys.make("billing-1", "/billing")
    verify: Mapping[str, str] = {"*": "require" if forged == "unsigned" else "off"}
    app = App(
        shop, billing, store=f"sqlite:///{tmp_path}/s.db", broker=f"embedded:///{tmp_path}/log.db",
        signing=keys.signing("shop-1", "billing-1", verify=verify),
    )  # fmt: skip
    async with app.running():
        async with shop.transaction("t1") as tx:
            tx.publish(Order(id="o1"))
        await eventually(lambda: invoices == ["o1"])
        junk: Event[bytes] = Event(
            id="junk", type="billing.invoice.issued.v1", source="/billing" if forged == "unsigned" else "/nobody",
            data=b'{"id":"junk"}', tenant="t1", content_type="application/json", causation="x", idempotency_key="invoice:o2",
            time="2026-01-01T00:00:00Z",
        )  # fmt: skip
        whole = STRUCTURED.encode(junk)
        await app.broker.publish(
            [Frame(topic="billing.invoice", id="junk", key=None, headers=whole.headers, body=whole.body)]
        )
        _, job = await replayed(billing, reprocess=True)
        assert job.state == "done", job
        async with shop.transaction("t1") as tx:
            tx.publish(Order(id="o2"))
        await eventually(lambda: "o2" in invoices, f"{invoices}: the invoice was never said")
        assert invoices.count("o1") == 1, "what it said itself is not said twice"
    await app.aclose()


@pytest.mark.parametrize("rate", [10.0, 0.0])
async def test_a_grant_that_is_revoked_ends_a_replay_at_once_and_only_what_ran_was_spent(
    tmp_path: Path, rate: float
) -> None:
    shop, first, again = Service("shop"), list[str](), list[str]()
    shop.event("order.placed.v1", key="id")(Order)

    @shop.on(Order)
    async def note(event: Event[Order]) -> None:
        if event.replayed:
            await asyncio.sleep(0.05 if rate else 0.3)
        (again if event.replayed else first).append(event.data.id)

    app = App(
        shop, store=f"sqlite:///{tmp_path}/s.db", broker=f"embedded:///{tmp_path}/log.db", rights=Rights(grants=True)
    )
    async with app.running():
        async with shop.transaction("t1") as tx:
            for number in range(80):
                tx.publish(Order(id=f"o{number}"))
        await eventually(lambda: len(first) == 80)
        with signed_in(True):
            asked = Asked(service="shop", scope=Scope(consumer="shop"), minutes=5, most=1000, rate=1000.0)
            grant = await app.grants.request(asked, by="ada", why="ticket 7")
            await app.grants.approve(grant.id, by="grace")
            replay = asyncio.ensure_future(replayed(shop, reprocess=True, rate=rate))
            await eventually(lambda: len(again) >= 3)
            await app.grants.revoke(grant.id, by="grace")
            ran = len(again)
            _, job = await asyncio.wait_for(replay, 20)
        used = (await app.grants.get(grant.id)).used
        assert job.state == "paused", job
        assert len(again) - ran <= 8, "those that ran already"
        assert used - len(again) <= 8, "what was spent was run, but for handlers that the pause interrupted"
    await app.aclose()
