"""What the classes mean, and what cannot be meant."""

from __future__ import annotations

import msgspec
import pytest

from posthouse import App, Payload, Service, Settings
from posthouse.contracts.retention import DAY, Kept, RetentionClasses
from posthouse.errors import ConfigurationError, RuleBroken

shop = Service("orders", namespace="shop")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.event("order.paid.v1", key="order_id", retention="cold")
class OrderPaid(Payload):
    order_id: str


@shop.event("basket.filled.v1", key="basket_id", retention="warm")
class BasketFilled(Payload):
    basket_id: str


def test_the_classes_are_those_of_the_platform_unless_somebody_says_otherwise() -> None:
    classes = RetentionClasses(warm=Kept(log=14 * DAY, archive=400 * DAY))
    assert [(classes.of(name).log / DAY, classes.of(name).archive / DAY) for name in ("hot", "warm", "cold")] == [
        (7, 30),
        (14, 400),
        (7, 7 * 365),
    ]


def test_a_topic_is_kept_as_long_as_the_class_of_its_events_that_asks_for_most() -> None:
    classes = RetentionClasses(hot=Kept(log=9 * DAY, archive=30 * DAY))
    topics = classes.of_topics(shop.declared.own_events)
    assert topics == {
        "shop.orders.order": Kept(log=9 * DAY, archive=7 * 365 * DAY),
        "shop.orders.basket": Kept(log=7 * DAY, archive=365 * DAY),
    }


def test_classes_that_cannot_be_meant_are_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match="the archive would forget what the log still has"):
        Kept(log=8 * DAY, archive=7 * DAY)
    with pytest.raises(ConfigurationError, match="a class is kept at least as long as the one before it"):
        RetentionClasses(warm=Kept(log=DAY, archive=20 * DAY))
    with pytest.raises(ConfigurationError, match=r"RetentionClasses has no option 'frozen'"):
        RetentionClasses(frozen=Kept(log=DAY, archive=DAY))  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="log"):
        Kept(log=0, archive=DAY)


def test_failures_are_kept_at_least_as_long_as_what_was_applied() -> None:
    with pytest.raises(ConfigurationError, match=r"held_retention=86400.*failures are kept at least as long"):
        Settings(held_retention=DAY)
    assert Settings(held_retention=None, inbox_retention=900 * DAY).held_retention is None


def test_an_unknown_class_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ConfigurationError, match=r"retention='wram'.*'warm'|no retention class 'wram'"):
        shop.event("order.lost.v1", retention="wram")(type("OrderLost", (Payload,), {}))  # type: ignore[arg-type]


async def test_a_class_that_is_none_is_refused_before_the_commit() -> None:
    """However it got past the declaration."""
    service = Service("stock", namespace="shop")

    @service.event("item.counted.v1", key="item")
    class ItemCounted(Payload):
        item: str

    app = App(service, store="sqlite:///:memory:")
    (known,) = service.declared.own_events
    msgspec.structs.force_setattr(known.terms, "retention", "glacier")
    with pytest.raises(RuleBroken, match="has the retention class 'glacier', which there is not: hot, warm, cold"):
        async with service.transaction(tenant="t1") as tx:
            tx.publish(ItemCounted(item="i2"))
    assert await app.store.outbox.kept(0, 10) == []
    await app.aclose()


async def test_an_inbox_that_forgets_before_the_log_does_is_refused_at_the_start() -> None:
    service = Service("mail", namespace="shop")

    @service.event("letter.sent.v1", key="letter")
    class LetterSent(Payload):
        letter: str

    @service.on(LetterSent)
    async def note(event: object, tx: object) -> None: ...

    long = RetentionClasses(hot=Kept(log=60 * DAY, archive=60 * DAY))
    app = App(service, store="sqlite:///:memory:", settings=Settings(retention=long))
    with pytest.raises(ConfigurationError, match="inbox_retention"):
        await app.opened.prepare()
    await app.aclose()
