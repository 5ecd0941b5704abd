"""Confluent's own client for Python, and its serializers, against a served registry."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import Message

pytest.importorskip("httpx2", reason="the registry client of confluent-kafka needs httpx2")

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.integration.registry.process import registry_process

VALUE = SerializationContext("orders", MessageField.VALUE)

ORDER_AVRO = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "string"}, {"name": "cents", "type": "long"}]}"""
ORDER_AVRO_2 = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "string"}, {"name": "cents", "type": "long"},
    {"name": "note", "type": "string", "default": "none"}]}"""
ORDER_JSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
    "properties": {"id": {"type": "string"}, "cents": {"type": "integer"}}, "required": ["id"]}"""

Order = dict[str, object]


@pytest.fixture(scope="module")
def registry_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("registry")
    with registry_process(f"sqlite:///{folder / 'registry.db'}") as url:
        yield url


@pytest.fixture
def client(registry_url: str) -> Iterator[SchemaRegistryClient]:
    """A client of an empty registry."""
    with SchemaRegistryClient({"url": registry_url}) as client:
        yield client
        for _ in range(2):  # those that are referred to can go when the others have gone
            for subject in client.get_subjects(deleted=True):
                _erased(client, subject)
        assert client.get_subjects(deleted=True) == []


def _erased(client: SchemaRegistryClient, subject: str) -> None:
    for permanent in (False, True):
        with contextlib.suppress(SchemaRegistryError):
            client.delete_subject(subject, permanent=permanent)


def test_avro_goes_there_and_back_and_old_data_is_read_by_new_readers(client: SchemaRegistryClient) -> None:
    data = AvroSerializer(client, ORDER_AVRO)({"id": "o1", "cents": 1200}, VALUE)
    assert AvroDeserializer(client)(data, VALUE) == {"id": "o1", "cents": 1200}
    AvroSerializer(client, ORDER_AVRO_2)({"id": "o2", "cents": 1, "note": "x"}, VALUE)
    read = AvroDeserializer(client, ORDER_AVRO_2)(data, VALUE)
    assert read == {"id": "o1", "cents": 1200, "note": "none"}
    assert client.get_versions("orders-value") == [1, 2]


def test_json_goes_there_and_back(client: SchemaRegistryClient) -> None:
    data = JSONSerializer(ORDER_JSON, client)({"id": "o1", "cents": 1200}, VALUE)
    assert JSONDeserializer(None, schema_registry_client=client)(data, VALUE) == {"id": "o1", "cents": 1200}


def order_class(folder: str = "shop") -> type[Message]:
    """What the compiler makes of a file that imports another one and a well-known type."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    money = descriptor_pb2.FileDescriptorProto(name=f"{folder}/money.proto", package="shop", syntax="proto3")
    cents = money.message_type.add(name="Money").field.add(name="cents", number=1, label=1)
    cents.type = descriptor_pb2.FieldDescriptorProto.TYPE_INT64
    order = descriptor_pb2.FileDescriptorProto(name=f"{folder}/order.proto", package="shop", syntax="proto3")
    order.dependency.extend([f"{folder}/money.proto", "google/protobuf/timestamp.proto"])
    fields = order.message_type.add(name="Order").field
    fields.add(name="order_id", number=1, label=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING)
    message = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
    fields.add(name="total", number=2, label=1, type=message, type_name=".shop.Money")
    fields.add(name="at", number=3, label=1, type=message, type_name=".google.protobuf.Timestamp")
    for file in (money, order):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_goes_there_and_back_with_its_imports(client: SchemaRegistryClient) -> None:
    order = order_class()
    settings = {"use.deprecated.format": False}
    sent = order(order_id="o1", total={"cents": 1200}, at={"seconds": 5})
    data = ProtobufSerializer(order, client, settings)(sent, VALUE)
    assert ProtobufDeserializer(order, settings, client)(data, VALUE) == sent
    stored = client.get_latest_version("orders-value")
    assert stored.schema.schema_type == "PROTOBUF"
    assert [link.name for link in stored.schema.references or ()] == ["shop/money.proto"]
    text = str(stored.schema.schema_str)
    assert 'import "shop/money.proto";' in text
    assert ".shop.Money total = 2;" in text


def test_protobuf_sent_as_a_descriptor_is_the_same_schema_as_its_text(client: SchemaRegistryClient) -> None:
    order = order_class()
    ProtobufSerializer(order, client, {"use.deprecated.format": False})(order(order_id="o1"), VALUE)
    stored = client.get_latest_version("orders-value")
    by_hand = """
        // the same, as a person writes it
        syntax = "proto3";
        package shop;
        import "shop/money.proto";
        import "google/protobuf/timestamp.proto";
        message Order { string order_id = 1; Money total = 2; google.protobuf.Timestamp at = 3; }
    """
    same = Schema(by_hand, "PROTOBUF", stored.schema.references)
    assert client.register_schema("by-hand", same) == stored.schema_id


def test_a_protobuf_text_is_read_by_the_python_client(client: SchemaRegistryClient, registry_url: str) -> None:
    money = type(order_class()(total={}).total)  # type: ignore[attr-defined]  # the class is made as the test runs
    text = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
    id = client.register_schema("orders-value", Schema(text, "PROTOBUF"))
    data = b"\0" + id.to_bytes(4) + b"\0" + money(cents=5).SerializeToString()
    settings = {"use.deprecated.format": False}
    with SchemaRegistryClient({"url": registry_url}) as other:  # it has not seen the text, and wants a descriptor
        assert ProtobufDeserializer(money, settings, other)(data, VALUE) == money(cents=5)
        descriptor = other.get_schema(id, "orders-value", fmt="serialized").schema_str
    assert descriptor != text
    assert client.register_schema("descriptor", Schema(descriptor, "PROTOBUF")) == id


def test_a_change_that_breaks_readers_stops_the_producer(client: SchemaRegistryClient) -> None:
    AvroSerializer(client, ORDER_AVRO)({"id": "o1", "cents": 1200}, VALUE)
    breaking = ORDER_AVRO.replace('"long"', '"string"')
    with pytest.raises(SchemaRegistryError) as refused:
        AvroSerializer(client, breaking)({"id": "o1", "cents": "12.00"}, VALUE)
    assert refused.value.http_status_code == 409
    assert "/cents" in str(refused.value)


def test_the_client_asks_all_that_it_can_ask(client: SchemaRegistryClient) -> None:
    first = Schema(ORDER_AVRO, "AVRO")
    assert client.register_schema("a", first, normalize_schemas=True) == client.register_schema("b", first, True)
    registered = client.lookup_schema("a", first, normalize_schemas=True)
    assert (registered.subject, registered.version) == ("a", 1)
    assert client.test_compatibility("a", Schema(ORDER_AVRO_2, "AVRO"))
    assert not client.test_compatibility("a", Schema('"string"', "AVRO"), version=1)
    assert client.get_subjects() == ["a", "b"]
    assert [v.subject for v in client.get_schema_versions(registered.schema_id or 0)] == ["a", "b"]
    client.set_compatibility("a", "FULL")
    assert client.get_compatibility("a") == "FULL"
    assert client.get_compatibility() == "BACKWARD"
    assert client.update_mode("a", "READONLY") == "READONLY"
    assert client.get_mode("a") == "READONLY"
    assert client.delete_mode("a") == "READONLY"
    assert client.delete_version("a", 1) == 1
    assert client.get_subjects() == ["b"]
    assert client.delete_subject("b") == [1]


def test_references_of_avro_are_resolved_by_the_serializer(client: SchemaRegistryClient) -> None:
    client.register_schema(
        "money", Schema('{"type":"record","name":"shop.Money","fields":[{"name":"cents","type":"long"}]}')
    )
    text = '{"type":"record","name":"shop.Bill","fields":[{"name":"total","type":"shop.Money"}]}'
    schema = Schema(text, "AVRO", [SchemaReference("shop.Money", "money", 1)])
    data = AvroSerializer(client, schema)({"total": {"cents": 5}}, VALUE)
    assert AvroDeserializer(client)(data, VALUE) == {"total": {"cents": 5}}


def test_the_client_names_its_user(tmp_path: Path) -> None:
    from posthouse.governance.registry.users import Role, User, hashed, keep_user, new_token

    users, token = tmp_path / "users", new_token("robot")
    keep_user(users, User("anna", Role.WRITE, hashed("correct horse")))
    keep_user(users, User("robot", Role.READ, hashed(token)))
    with registry_process("sqlite://", "--users", str(users)) as url:
        with SchemaRegistryClient({"url": url, "basic.auth.user.info": "anna:correct horse"}) as client:
            assert client.register_schema("a", Schema(ORDER_AVRO, "AVRO")) == 1
        bearer = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": token}
        ids = {"bearer.auth.logical.cluster": "none", "bearer.auth.identity.pool.id": "none"}
        with SchemaRegistryClient({"url": url, **bearer, **ids}) as client:
            assert client.get_schema(1).schema_str == ORDER_AVRO
            with pytest.raises(SchemaRegistryError) as refused:
                client.register_schema("b", Schema('"string"', "AVRO"))
            assert refused.value.http_status_code == 403
        with SchemaRegistryClient({"url": url}) as client:
            with pytest.raises(SchemaRegistryError) as refused:
                client.get_subjects()
            assert refused.value.http_status_code == 401
