"""A survey of Pub/Sub, on pstest: subscriptions as seed and service name them, and settings that are mended."""

from __future__ import annotations

from datetime import timedelta

from google.pubsub_v1.types import Subscription

from posthouse.broker import Topology
from posthouse.brokers.pubsub import PubSubBroker
from posthouse.brokers.pubsub.inventory import drift_of, place_of
from posthouse.clock import SystemClock, new_id
from posthouse.topology import Scope, carry_out, plan
from tests.servers.pubsub import PubSubServer


async def test_subscriptions_with_other_settings_are_shown_and_mended(plain_pubsub_server: PubSubServer) -> None:
    namespace = f"shop{new_id()[-8:]}"
    topic = f"{namespace}.orders.order"
    wanted = Topology(topics=[topic], groups={"billing": [topic]})
    scope = Scope(topics=frozenset({f"{namespace}.orders"}), groups=frozenset({"billing"}))
    old = PubSubBroker("shop", emulator=plain_pubsub_server.address, clock=SystemClock(), lease=20, retention=86_400.0)
    new = PubSubBroker("shop", emulator=plain_pubsub_server.address, clock=SystemClock(), lease=30)
    try:
        await old.ensure(wanted)
        ours = [step for step in await plan(new, wanted, scope) if step.thing.topic == topic]
        (step,) = ours
        assert step.thing.called == f"subscription billing.{topic}.sub"
        assert [(drift.setting, drift.found, drift.wanted) for drift in step.drift] == [
            ("ack deadline", "20 s", "30 s"),
            ("retention", "86,400 s", "604,800 s"),
        ]
        assert not step.loses
        await carry_out(new, wanted, ours, allow_delete=False)
        assert [step for step in await plan(new, wanted, scope) if step.thing.topic == topic] == []
        (back,) = [step for step in await plan(old, wanted, scope) if step.thing.topic == topic]
        assert back.loses == "frames older than 86,400 s"
    finally:
        await old.aclose()
        await new.aclose()


def test_a_subscription_of_another_name_is_not_ours() -> None:
    ours = Subscription(
        name="projects/p/subscriptions/billing.mailer.shop.order.sub", topic="projects/p/topics/shop.order"
    )
    assert place_of(ours) == ("billing.mailer", "shop.order")
    theirs = Subscription(name="projects/p/subscriptions/theirs", topic="projects/p/topics/shop.order")
    assert place_of(theirs) is None


def test_what_a_subscription_keeps_for_life_says_what_to_do() -> None:
    found = Subscription(
        ack_deadline_seconds=60,
        message_retention_duration=timedelta(seconds=60),
        filter='attributes.x = "1"',
        expiration_policy={"ttl": timedelta(days=31)},
    )
    drift = {change.setting: change for change in drift_of(found, 60, 60.0)}
    assert {name for name, change in drift.items() if not change.mendable} == {"order", "filter"}
    assert drift["expires"].found == "after 2,678,400 s"
    assert "make it anew" in drift["order"].fix
    assert drift.keys() == {"keeps acknowledged", "expires", "order", "filter"}
