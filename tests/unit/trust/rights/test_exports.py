"""What is written for each broker: names that the adapters use, and nothing that a service does not need."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from posthouse import Event, Model, Payload, Service, Tx
from posthouse.accounts import accounts_of
from posthouse.app import App
from posthouse.brokers.nats import messages as nats_names
from posthouse.brokers.sqs import messages as sqs_names
from posthouse.errors import ConfigurationError
from posthouse.trust.rights import Rights
from posthouse.trust.rights.exports import BROKERS, rights_for
from posthouse.trust.rights.exports.kafka import acls
from posthouse.trust.rights.exports.nats import stream_of, word
from posthouse.trust.rights.exports.sqs import queue_name, topic_name

NAMES = ["a", "shop.orders.order", "a-b.c", "x_y", "x__y", "shop.orders.order.dlq", "q" * 90, "billing.stock.g2", "ö.ß"]


def town() -> list[Service]:
    orders, billing = Service("orders", namespace="shop"), Service("billing", namespace="shop")

    @orders.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str

    @billing.on(OrderPlaced)
    async def invoice(event: Event[OrderPlaced], tx: Tx) -> None: ...

    board = billing.projection("board", lag_budget=5.0)

    @board.on(OrderPlaced)
    async def seen(event: Event[OrderPlaced], model: Model) -> None: ...

    return [orders, billing]


def test_an_account_writes_its_own_topics_and_the_dead_letters_of_what_it_reads() -> None:
    billing, orders = accounts_of(town())
    assert (orders.name, orders.writes, orders.dead, orders.read) == ("orders", ("shop.orders.order",), (), [])
    assert (billing.writes, billing.dead) == ((), ("shop.orders.order.dlq",))
    assert dict(billing.reads) == {"billing": ("shop.orders.order",), "billing.board": ("shop.orders.order",)}
    assert dict(billing.models) == {"billing.board": ("shop.orders.order",)}


def test_what_a_service_may_not_read_is_in_no_export_and_other_makers_only_publish() -> None:
    services = town()
    App(*services, rights=Rights(read={"shop.orders.*": []}, publish={"shop.orders.*": ["bridge"]}))
    billing, bridge, _ = accounts_of(services)
    assert billing.read == []
    assert (bridge.name, bridge.foreign, bridge.writes) == ("bridge", True, ("shop.orders.order",))
    for broker in BROKERS:
        assert "bridge" in "".join((*(files := rights_for(broker, [bridge])), *files.values()))


@pytest.mark.parametrize("first", NAMES)
def test_names_are_those_of_the_adapters(first: str) -> None:
    assert word(first) == nats_names.word(first)
    assert stream_of(first) == nats_names.stream_of(first)
    assert topic_name(first) == sqs_names.topic_name(first)
    for second in NAMES:
        assert queue_name(first, second) == sqs_names.queue_name(first, second)


def test_kafka_says_each_right_by_itself_and_no_wildcard() -> None:
    billing, orders = accounts_of(town())
    assert {(acl.name, acl.operation) for acl in acls(orders)} == {
        ("shop.orders.order", operation) for operation in ("Create", "Describe", "DescribeConfigs", "Write")
    }
    assert ("shop.orders.order", "Write") not in {(acl.name, acl.operation) for acl in acls(billing)}
    assert not any("*" in acl.name for acl in (*acls(orders), *acls(billing)))
    text = rights_for("kafka", [orders])["kafka-acls.sh"]
    assert "--allow-principal User:orders --operation Create" in text


def test_every_iam_policy_names_what_it_is_for_and_nobody_else() -> None:
    files = rights_for("pubsub", accounts_of(town()))
    topic = json.loads(files["topics/shop.orders.order.json"])["bindings"]
    assert topic[0]["role"] == "roles/pubsub.publisher"
    assert topic[0]["members"] == ["serviceAccount:orders@PROJECT.iam.gserviceaccount.com"]
    assert "subscriptions/billing.shop.orders.order.sub.json" in files
    policy = json.loads(rights_for("sqs", accounts_of(town()))["orders.json"])
    [publish] = policy["Statement"]
    assert publish["Resource"] == ["arn:aws:sns:*:*:shop-orders-order.fifo"]
    assert "user:" not in "".join(files.values())


def test_the_command_writes_files_or_one_to_stdout(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from posthouse.cli import app

    monkeypatch.setattr("posthouse.cli.export.load_all", lambda _: town())
    run = CliRunner()
    done = run.invoke(app, ["export", "rights", "town", "--for", "redis", "--account", "{service}-prod"])
    assert done.exit_code == 0
    assert "user orders-prod on resetkeys" in done.stdout
    done = run.invoke(app, ["export", "rights", "town", "--for", "sqs", "--out", str(tmp_path)])
    assert done.exit_code == 0
    refused = run.invoke(app, ["export", "rights", "town", "--for", "kafak"])
    assert refused.exit_code == 2
    assert "'kafka'?" in refused.stderr
    shared = run.invoke(app, ["export", "rights", "town", "--for", "kafka", "--account", "all"])
    assert "all services would share it" in shared.stderr
    with pytest.raises(ConfigurationError):
        rights_for("none", [])
