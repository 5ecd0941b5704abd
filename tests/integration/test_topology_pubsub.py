"""A survey of Pub/Sub, on pstest: subscriptions as seed and service name them, and settings that are mended."""

from __future__ import annotations

from datetime import timedelta

import pytest
from google.pubsub_v1.types import Subscription

from posthouse.broker import Frame, Topology
from posthouse.brokers import open_broker
from posthouse.brokers.pubsub import PubSubBroker
from posthouse.brokers.pubsub.admin import drift_of, place_of
from posthouse.brokers.pubsub.client import Client
from posthouse.brokers.pubsub.push import Push, push_drift
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerError, ConfigurationError
from posthouse.topology import Scope, carry_out, plan
from tests.kit.servers.pubsub import PubSubServer


async def test_subscriptions_with_other_settings_are_shown_and_mended(plain_pubsub_server: PubSubServer) -> None:
    namespace = f"shop{new_id()[-8:]}"
    topic = f"{namespace}.orders.order"
    wanted = Topology(topics=[topic], groups={"billing": [topic]})
    scope = Scope(topics=frozenset({f"{namespace}.orders"}), groups=frozenset({"billing"}))
    old = PubSubBroker("shop", emulator=plain_pubsub_server.address, clock=SystemClock(), lease=20, retention=86_400.0)
    new = PubSubBroker("shop", emulator=plain_pubsub_server.address, clock=SystemClock(), lease=30)
    try:
        await old.ensure(wanted)
        ours = [step for step in await plan(new, wanted, scope) if step.resource.topic == topic]
        (step,) = ours
        assert step.resource.called == f"subscription billing.{topic}.sub"
        assert [(drift.setting, drift.found, drift.wanted) for drift in step.drift] == [
            ("ack deadline", "20 s", "30 s"),
            ("retention", "86,400 s", "604,800 s"),
        ]
        assert not step.loses
        await carry_out(new, wanted, ours, allow_delete=False)
        assert [step for step in await plan(new, wanted, scope) if step.resource.topic == topic] == []
        (back,) = [step for step in await plan(old, wanted, scope) if step.resource.topic == topic]
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
    assert {name for name, change in drift.items() if not change.repairable} == {"order", "filter"}
    assert drift["expires"].found == "after 2,678,400 s"
    assert "make it anew" in drift["order"].fix
    assert drift.keys() == {"keeps acknowledged", "expires", "order", "filter"}


async def test_a_pulled_subscription_becomes_a_pushed_one_and_back(plain_pubsub_server: PubSubServer) -> None:
    namespace = f"shop{new_id()[-8:]}"
    topic = f"{namespace}.orders.order"
    wanted = Topology(topics=[topic], groups={"billing": [topic]})
    scope = Scope(topics=frozenset({f"{namespace}.orders"}), groups=frozenset({"billing"}))
    to = Push(endpoint="https://billing.example/push", account="push@shop.iam.gserviceaccount.com")
    pulled = PubSubBroker("shop", emulator=plain_pubsub_server.address, clock=SystemClock())
    pushed = PubSubBroker("shop", emulator=plain_pubsub_server.address, clock=SystemClock(), push=to)
    there = "to https://billing.example/push as push@shop.iam.gserviceaccount.com"
    try:
        await pulled.ensure(wanted)
        for new, old, found, becomes in ((pushed, pulled, "pulled", there), (pulled, pushed, there, "pulled")):
            with pytest.raises(BrokerError, match="topology apply"):
                await new.subscribe("billing", [topic])
            ours = [step for step in await plan(new, wanted, scope) if step.resource.topic == topic]
            (step,) = ours
            assert [(drift.setting, drift.found, drift.wanted) for drift in step.drift] == [("push", found, becomes)]
            assert not step.loses
            await carry_out(new, wanted, ours, allow_delete=False)
            assert [step for step in await plan(new, wanted, scope) if step.resource.topic == topic] == []
            await (await new.subscribe("billing", [topic])).aclose()
            with pytest.raises(BrokerError, match="topology apply"):
                await old.subscribe("billing", [topic])
    finally:
        await pulled.aclose()
        await pushed.aclose()


async def test_a_new_subscription_is_made_as_the_url_says_and_gives_a_silent_stream(
    plain_pubsub_server: PubSubServer,
) -> None:
    topic = f"shop{new_id()[-8:]}.orders.order"
    push = "push=https://billing.example/push&push_account=push@x.iam.gserviceaccount.com&push_audience=billing"
    broker = open_broker(f"{plain_pubsub_server.url}&{push}", clock=SystemClock())
    bare = Client("shop", emulator=plain_pubsub_server.address)
    try:
        await broker.ensure(Topology(topics=[topic], groups={"billing": [topic]}))
        made = await bare.subscriber.get_subscription(
            subscription=f"projects/shop/subscriptions/billing.{topic}.sub", retry=None
        )
        assert made.push_config.push_endpoint == "https://billing.example/push"
        assert made.push_config.oidc_token.service_account_email == "push@x.iam.gserviceaccount.com"
        assert made.push_config.oidc_token.audience == "billing"
        assert made.enable_message_ordering
        stream = await broker.subscribe("billing", [topic])
        await broker.publish([Frame(topic=topic, id=new_id(), key="k", body=b"x")])
        assert list(await stream.receive(10, 0.3)) == []
        assert (await broker.progress("billing", [topic]))[topic].truncated
        await broker.aclose()
        with pytest.raises(BrokerError, match="closed"):
            await stream.receive(10, 10.0)
    finally:
        await broker.aclose()
        await bare.aclose()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("push=http://billing.example/push&push_account=a@b", "no https URL"),
        ("push=billing.example&push_account=a@b", "no https URL"),
        ("push=https://billing.example/push", "needs push_account"),
        ("push_account=a@b", "needs push, the https URL"),
        ("push_audience=billing", "needs push, the https URL"),
    ],
)
def test_a_push_that_cannot_work_is_refused_in_the_url(options: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        open_broker(f"pubsub://shop?{options}", clock=SystemClock())


def test_a_push_without_a_token_or_unwrapped_shows_as_drift() -> None:
    to = Push(endpoint="https://billing.example/push", account="push@x")
    for config, found in (
        ({"push_endpoint": "https://billing.example/push"}, "to https://billing.example/push without a token"),
        (
            {
                "push_endpoint": "https://billing.example/push",
                "oidc_token": {"service_account_email": "push@x"},
                "no_wrapper": {"write_metadata": True},
            },
            "to https://billing.example/push unwrapped as push@x",
        ),
    ):
        (drift,) = push_drift(Subscription(push_config=config), to)
        assert drift.found == found
        assert drift.repairable
    same = {"push_endpoint": "https://billing.example/push", "oidc_token": {"service_account_email": "push@x"}}
    assert push_drift(Subscription(push_config=same), to) == []
