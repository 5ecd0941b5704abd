"""The catalogue as an AsyncAPI document."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from msgspec.structs import replace

from posthouse.brokers.sqs.messages import queue_name, topic_name
from posthouse.events import CODECS, Event, Metadata
from posthouse.governance.exports import Source, export
from posthouse.governance.exports.asyncapi.schemas import components
from posthouse.governance.exports.asyncapi.servers import Server, server_of
from tests.unit.governance.exports.catalogues import POISONED, SHOP


def document(source: Source = SHOP) -> Any:
    return json.loads(export(source, "asyncapi")["asyncapi.json"])


def references(node: object) -> list[str]:
    if isinstance(node, list):
        return [found for inner in node for found in references(inner)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [found for inner in node.values() for found in references(inner)]


def resolved(root: Any, reference: str) -> Any:
    for name in reference.removeprefix("#/").split("/"):
        root = root[name]
    return root


def body_schema(made: Any, subject: str) -> dict[str, object]:
    """What a message's body must be, as a document of its own."""
    message = made["components"]["messages"][subject]
    schema: dict[str, object] = message["payload"]["schema"]
    return {**schema, "$schema": "http://json-schema.org/draft-07/schema#", "components": made["components"]}


def encoded(subject: str, data: bytes, **more: Any) -> Any:
    """An event of the catalogue as it is on the wire."""
    entry = SHOP.document.event(subject)
    assert entry is not None
    source = f"/{entry.namespace}/{entry.service}" if entry.namespace else f"/{entry.service}"
    event = Event(
        id="1",
        type=subject,
        source=source,
        data=data,
        time="2026-11-15T10:00:00Z",
        tenant="t1",
        schema=entry.schema_uri,
        content_type=entry.content_type,
        metadata=Metadata(retention="cold", residency="eu"),
        **more,
    )
    return CODECS[entry.envelope].encode(event)


@pytest.mark.parametrize("source", [SHOP, POISONED], ids=["shop", "hostile"])
def test_every_reference_leads_somewhere(source: Source) -> None:
    made = document(source)
    found = references(made)
    assert len(found) > 20
    for reference in found:
        assert resolved(made, reference) is not None


def test_a_topic_is_a_channel_with_its_events_and_its_guarantee() -> None:
    channel = document()["channels"]["shop.orders.order"]
    assert channel["address"] == "shop.orders.order"
    assert sorted(channel["messages"]) == ["shop.orders.order.placed.v1", "shop.orders.order.placed.v2"]
    assert channel["tags"] == [{"name": "owner:team checkout"}]
    assert channel["x-posthouse"] == {
        "guarantee": "ordered per key",
        "orderingKey": ["order_id"],
        "parallelism": "one per key",
        "deadLetters": "shop.orders.order.dlq",
    }


def test_services_send_and_groups_receive_only_what_they_read() -> None:
    operations = document()["operations"]
    place = "#/channels/shop.orders.order"
    send, receive = operations["orders.send.shop.orders.order"], operations["billing.receive.shop.orders.order"]
    assert (send["action"], len(send["messages"])) == ("send", 2)
    assert (receive["action"], receive["channel"]) == ("receive", {"$ref": place})
    assert receive["messages"] == [{"$ref": f"{place}/messages/shop.orders.order.placed.v2"}]
    assert send["summary"] == "orders says shop.orders.order.placed.v1, shop.orders.order.placed.v2"
    assert receive["summary"] == "billing hears shop.orders.order.placed.v2"
    assert operations["parcels.pack.receive.shop.billing.invoice"]["tags"] == [{"name": "service:parcels"}]


def test_a_foreign_event_is_named_and_has_no_schema() -> None:
    made = document()
    channel = made["channels"]["shop.stock.item"]
    assert (channel["messages"], channel["x-foreign-messages"]) == ({}, ["shop.stock.item.counted.v1"])
    assert "messages" not in made["operations"]["parcels.receive.shop.stock.item"]


def test_tags_say_owner_retention_residency_and_deprecation() -> None:
    tags = document()["components"]["messages"]["shop.orders.order.placed.v1"]["tags"]
    assert [tag["name"] for tag in tags] == [
        "owner:team checkout",
        "retention:hot",
        "residency:eu-west",
        "deprecated:2027-01-31",
    ]


def test_servers_have_no_credentials_and_channels_name_theirs() -> None:
    made = document()
    assert "secret" not in json.dumps(made)
    assert made["servers"] == {
        "googlepubsub": {
            "host": "pubsub.googleapis.com",
            "protocol": "googlepubsub",
            "pathname": "/v1/projects/acme",
        },
        "kafka": {"host": "k1,k2", "protocol": "kafka"},
        "sqs": {"host": "sqs.eu-central-1.amazonaws.com", "protocol": "sqs"},
    }
    servers = made["channels"]["shop.billing.invoice"]["servers"]
    assert servers == [{"$ref": "#/servers/googlepubsub"}, {"$ref": "#/servers/kafka"}]


def test_bindings_have_the_names_that_the_adapters_use() -> None:
    made = document()
    channel = made["channels"]["shop.orders.order"]["bindings"]
    assert channel["kafka"]["topic"] == "shop.orders.order"
    assert channel["sns"]["name"] == topic_name("shop.orders.order")
    receiving = made["operations"]["hotel.receive.shop.orders.order"]["bindings"]
    assert receiving["sqs"]["queues"] == [{"name": queue_name("hotel", "shop.orders.order"), "fifoQueue": True}]
    assert made["operations"]["billing.receive.shop.orders.order"]["bindings"]["kafka"]["groupId"]["enum"] == [
        "billing"
    ]
    message = made["components"]["messages"]["shop.billing.invoice.issued.v1"]["bindings"]
    assert message["googlepubsub"]["orderingKey"] == "tenant:order_id"
    assert message["kafka"]["key"]["type"] == "string"


def test_a_message_without_a_key_has_no_binding_for_one() -> None:
    made = document(replace(SHOP, brokers={"hotel": "kafka://k", "orders": "kafka://k"}))["components"]["messages"]
    assert "bindings" not in made["hotel.guest.arrived.v1"]
    assert made["shop.orders.order.placed.v1"]["bindings"]["kafka"]["key"]["description"].endswith("order_id.")


def test_what_draft_7_spells_differently_is_rewritten() -> None:
    schema = {
        "type": "object",
        "properties": {
            "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
            "again": {"$ref": "#", "maxProperties": 3},
            "node": {"$ref": "#/$defs/d1"},
        },
        "dependentRequired": {"pair": ["node"]},
        "$defs": {"d1": {"properties": {"next": {"$ref": "#/$defs/d1"}}}},
    }
    entry = replace(SHOP.document.events[0], subject="a.b.v1", schema=json.dumps(schema))
    place = "#/components/schemas/a.b.v1"
    assert components(entry) == {
        "a.b.v1": {
            "type": "object",
            "properties": {
                "pair": {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}},
                "again": {"allOf": [{"$ref": place}, {"maxProperties": 3}]},
                "node": {"$ref": f"{place}.d1"},
            },
            "dependencies": {"pair": ["node"]},
        },
        "a.b.v1.d1": {"properties": {"next": {"$ref": f"{place}.d1"}}},
    }
    assert components(replace(entry, schema="true")) == {"a.b.v1": True}


def test_a_rabbitmq_topic_is_a_topic_exchange() -> None:
    made = document(replace(SHOP, brokers={"orders": "rabbitmq://u:secret@h/v"}))
    bound = made["channels"]["shop.orders.order"]["bindings"]["amqp"]
    assert bound["exchange"] == {"name": "shop.orders.order", "type": "topic", "durable": True, "autoDelete": False}


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("nats://a:4222,b:4222?replicas=3", Server("a:4222,b:4222", "nats")),
        ("kafka://u:p@a:9092?security.protocol=SASL_SSL", Server("a:9092", "kafka-secure")),
        ("rabbitmq://u:p@h:5672/vhost?tls=true", Server("h:5672", "amqps", "/vhost")),
        ("rediss://u:p@h:6379/0", Server("h:6379", "rediss")),
        ("postgresql://u:p@h/db", Server("h", "postgresql", "/db")),
        ("pubsub://p?endpoint=europe-west1-pubsub.googleapis.com", Server("europe-west1-pubsub.googleapis.com", "googlepubsub", "/v1/projects/p")),
        ("embedded:///posthouse-log.db", None),
        ("memory", None),
    ],
)  # fmt: skip
def test_a_broker_url_is_a_server(url: str, server: Server | None) -> None:
    assert server_of(url) == server


def test_two_servers_of_one_protocol_have_names_of_their_own() -> None:
    made = document(replace(SHOP, brokers={"orders": "nats://a", "billing": "nats://b", "hotel": "nats://a"}))
    assert {name: server["host"] for name, server in made["servers"].items()} == {"nats": "b", "nats-2": "a"}
    assert made["channels"]["shop.stock.item"].get("servers") is None


def test_what_a_structured_service_writes_fits_its_schema_and_other_events_do_not() -> None:
    schema = jsonschema_rs.Draft7Validator(body_schema(document(), "shop.orders.order.placed.v2"))
    data = b'{"order_id":"o1","place":[1,"a"],"lines":[{"text":"x","lines":[{"text":"y"}]}]}'
    made = encoded("shop.orders.order.placed.v2", data, key="o1", sequence=7)
    body = json.loads(made.body)
    schema.validate(body)
    assert not schema.is_valid({**body, "type": "shop.orders.order.placed.v1"})
    assert not schema.is_valid({name: value for name, value in body.items() if name != "sequence"})
    body["data"]["lines"][0]["lines"][0]["text"] = 3
    assert not schema.is_valid(body)


def test_a_tuple_of_fixed_places_is_checked_place_by_place() -> None:
    schema = jsonschema_rs.Draft7Validator(body_schema(document(), "shop.orders.order.placed.v2"))
    made = encoded("shop.orders.order.placed.v2", b'{"order_id":"o","place":["a",1],"lines":[]}', key="o", sequence=1)
    assert not schema.is_valid(json.loads(made.body))


def test_what_a_binary_service_writes_has_its_attributes_in_the_headers() -> None:
    message = document()["components"]["messages"]["shop.parcels.parcel.sent.v1"]
    made = encoded("shop.parcels.parcel.sent.v1", b"avro", key="o1", sequence=7, lineage=2, correlation="c1")
    assert (made.headers["ce-lineage"], made.headers["ce-correlationid"]) == ("2", "c1")
    assert message["correlationId"] == {"location": "$message.header#/ce-correlationid"}
    headers = jsonschema_rs.Draft7Validator(message["headers"])
    headers.validate(dict(made.headers))
    assert not headers.is_valid({**made.headers, "ce-type": "other"})
    assert {name for name in made.headers if name.startswith("ce-")} <= message["headers"]["properties"].keys()
    assert message["contentType"] == "application/avro"
    assert message["payload"]["schemaFormat"].startswith("application/vnd.apache.avro+json")
    assert message["payload"]["schema"]["name"] == "ParcelSent"


def test_what_a_melmastoon_service_writes_fits_its_schema() -> None:
    schema = jsonschema_rs.Draft7Validator(body_schema(document(), "hotel.guest.arrived.v1"))
    body = json.loads(encoded("hotel.guest.arrived.v1", b'{"name":"Zarmina"}').body)
    schema.validate(body)
    assert not schema.is_valid({**body, "eventVersion": 2})


def test_bytes_in_a_json_envelope_are_base64_with_their_schema_beside() -> None:
    events = tuple(replace(entry, envelope="structured") for entry in SHOP.document.events)
    made = document(replace(SHOP, document=replace(SHOP.document, events=events)))
    data = made["components"]["messages"]["shop.parcels.parcel.sent.v1"]["payload"]["schema"]["properties"]
    assert "data" not in data
    assert data["data_base64"]["contentMediaType"] == "application/avro"
    assert data["data_base64"]["x-schema"]["schema"]["name"] == "ParcelSent"


def test_the_version_changes_with_the_catalogue_and_with_nothing_else() -> None:
    first, again = document()["info"]["version"], document(replace(SHOP, brokers={}))["info"]["version"]
    other = document(replace(SHOP, document=replace(SHOP.document, handlers=())))["info"]["version"]
    assert first == again != other
