"""Who may publish and read what: asked in the library, before anything is written and before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Service, Tx
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError, RuleBroken
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing import rehost
from posthouse.trust.rights import Party, Rights

ORDERS = Party("orders", "shop")


class Shop:
    """Two services that know of each other."""

    def __init__(self) -> None:
        self.orders = Service("orders", namespace="shop")
        self.billing = Service("billing", namespace="shop")

        @self.orders.event("order.placed.v1", key="order_id")
        class OrderPlaced(Payload):
            order_id: str

        @self.billing.event("invoice.issued.v1", key="order_id")
        class InvoiceIssued(Payload):
            order_id: str

        self.placed, self.issued = OrderPlaced, InvoiceIssued

    def app(self, *services: Service, rights: Rights | None = None) -> App:
        store = SqliteStore(":memory:", clock=SystemClock())
        return App(*services, store=store, broker=MemoryBroker(clock=SystemClock()), rights=rights)


async def said(service: Service, *facts: object) -> None:
    async with service.transaction("t1") as tx:
        for fact in facts:
            tx.publish(fact)


async def test_a_service_says_its_own_facts_as_before() -> None:
    shop = Shop()
    app = shop.app(shop.orders, rights=Rights())
    async with shop.orders.transaction("t1") as tx:
        tx.publish(shop.placed(order_id="o1"))
    assert sum((await app.store.counts()).committed.values()) == 1
    await app.aclose()


async def test_a_fact_of_another_service_is_refused_by_the_name_of_the_rule_and_nothing_is_written() -> None:
    shop = Shop()
    app = shop.app(shop.orders, rights=Rights())
    with pytest.raises(RuleBroken, match="billing") as refused:
        await said(shop.orders, shop.placed(order_id="o1"), shop.issued(order_id="o1"))
    assert refused.value.rule == "publish-right"
    assert sum((await app.store.counts()).committed.values()) == 0
    await app.aclose()


async def test_a_service_of_the_same_name_in_another_namespace_is_another_one() -> None:
    shop, elsewhere = Shop(), Service("orders", namespace="elsewhere")
    app = shop.app(elsewhere, rights=Rights())
    with pytest.raises(RuleBroken) as refused:
        async with elsewhere.transaction("t1") as tx:
            tx.publish(shop.placed(order_id="o1"))
    assert refused.value.rule == "publish-right"
    assert sum((await app.store.counts()).committed.values()) == 0
    await app.aclose()


async def test_a_fact_for_a_tenant_that_is_not_among_those_of_the_service_is_refused() -> None:
    shop = Shop()
    app = shop.app(shop.orders, rights=Rights(tenants={"orders": ["eu-*"]}))
    async with shop.orders.transaction("eu-1") as tx:
        tx.publish(shop.placed(order_id="o1"))
    with pytest.raises(RuleBroken, match="us-1") as refused:
        async with shop.orders.transaction("us-1") as tx:
            tx.publish(shop.placed(order_id="o2"))
    assert refused.value.rule == "tenant-right"
    assert sum((await app.store.counts()).committed.values()) == 1
    await app.aclose()


async def test_a_consumer_without_the_right_does_not_start() -> None:
    shop = Shop()

    @shop.billing.on(shop.placed)
    async def invoice(event: Event[object], tx: Tx) -> None: ...

    app = shop.app(shop.billing, rights=Rights(read={"shop.orders.*": ["ledger"]}))
    with pytest.raises(ConfigurationError, match=r"read-right.*billing may not read shop.orders.order.*ledger"):
        async with app.running():
            pass
    await app.aclose()
    app = shop.app(shop.billing, rights=Rights(read={"shop.orders.*": ["billing"]}))
    async with app.running():
        pass


async def test_the_owner_reads_its_own_topic_whatever_is_listed() -> None:
    assert Rights(read={"*": []}).read_problem(ORDERS, "shop.orders.order") == ""
    assert Rights(read={"*": []}).read_problem(ORDERS, "shop.orders.order.dlq") == ""
    assert "nobody" in Rights(read={"*": []}).read_problem(ORDERS, "shop.billing.invoice")


def test_a_topic_that_only_begins_alike_is_not_the_services_own() -> None:
    assert ORDERS.owns("shop.orders.order.placed.v1")
    assert not ORDERS.owns("shop.orders_archive.order")
    assert not ORDERS.owns("orders.order")


def test_dead_letters_are_kept_like_what_they_are_of() -> None:
    rights = Rights(read={"shop.pay.card": ["billing"]})
    assert rights.read_problem(ORDERS, "shop.pay.card.dlq")
    assert not rights.publish_problem(ORDERS, "shop.pay.card.dlq", reads=True)
    assert rights.publish_problem(ORDERS, "shop.pay.card.dlq")


def test_the_first_pattern_that_fits_counts() -> None:
    rights = Rights(replay={"shop.pay.*": [], "*": ["orders"]})
    assert "nobody" in rights.replay_problem(ORDERS, "shop.pay.card")
    assert rights.replay_problem(ORDERS, "shop.stock.item") == ""


async def test_what_the_environment_says_counts_where_the_code_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rights.toml"
    file.write_text('[read]\n"shop.orders.*" = ["ledger"]\n')
    monkeypatch.setenv("POSTHOUSE_RIGHTS", str(file))
    shop = Shop()
    app = shop.app(shop.orders)
    assert app.opened.rights == Rights(read={"shop.orders.*": ["ledger"]})
    assert shop.app(shop.orders, rights=Rights()).opened.rights == Rights()
    file.write_text("reed = 1\n")
    with pytest.raises(ConfigurationError, match=r"rights\.toml.*Did you mean 'read'"):
        shop.app(shop.orders)
    monkeypatch.setenv("POSTHOUSE_RIGHTS", str(tmp_path / "none.toml"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        shop.app(shop.orders)


async def test_a_service_that_runs_elsewhere_for_a_while_keeps_its_rights() -> None:
    shop = Shop()
    first = shop.app(shop.orders, rights=Rights())
    seam = first._seam
    before = rehost(
        shop.orders,
        store=SqliteStore(":memory:", clock=SystemClock()),
        broker=MemoryBroker(clock=SystemClock()),
        clock=SystemClock(),
    )
    with pytest.raises(RuleBroken):
        async with shop.orders.transaction("t1") as tx:
            tx.publish(shop.issued(order_id="o1"))
    assert before._seam is seam
    assert seam.rights is None
    await before.aclose()
