"""Payload types of three libraries behave alike."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest

from posthouse.contracts import Payload, event_type_of, payload_of, schema_hash
from posthouse.errors import ConfigurationError, ContractError, SubjectError
from posthouse.service import Service


@dataclasses.dataclass
class AsDataclass:
    name: str
    size: int


class AsStruct(msgspec.Struct):
    name: str
    size: int


class AsModel(pydantic.BaseModel):
    name: str
    size: int


KINDS = [AsDataclass, AsStruct, AsModel]


@pytest.mark.parametrize("cls", KINDS)
def test_a_payload_reads_back_what_it_wrote(cls: type[Any]) -> None:
    payload = payload_of(cls)
    value = cls(name="a", size=3)
    assert payload.decode(payload.encode(value)) == value
    assert payload.decode(b'{"name":"a","size":3,"new":true}') == value


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("cls", KINDS)
def test_a_misfit_is_refused_on_both_ways_and_names_the_field(cls: type[Any]) -> None:
    payload = payload_of(cls)
    with pytest.raises(ContractError, match="size"):
        payload.decode(b'{"name":"a","size":"many"}')
    with pytest.raises(ContractError, match="size"):
        payload.decode(b'{"name":"a"}')
    wrong = cls(name="a", size=3)
    wrong.size = "many"
    with pytest.raises(ContractError, match="size"):
        payload.encode(wrong)


def test_the_schema_hash_follows_meaning_not_prose() -> None:
    plain = {"type": "object", "properties": {"title": {"type": "string"}}}
    told = {"properties": {"title": {"type": "string", "description": "words"}}, "type": "object", "title": "X"}
    other = {"type": "object", "properties": {"name": {"type": "string"}}}
    assert schema_hash(plain) == schema_hash(told)
    assert schema_hash(plain) != schema_hash(other)


def test_declaring_an_event_gives_it_a_subject_a_topic_and_a_schema() -> None:
    shop = Service("orders", namespace="shop")

    @shop.event("order.placed.v1", key="order_id")
    class OrderPlaced(Payload):
        order_id: str

    event_type = event_type_of(OrderPlaced)
    assert event_type.name == "shop.orders.order.placed.v1"
    assert event_type.topic == "shop.orders.order"
    assert event_type.schema.startswith("schemas://orders/order/placed/v1#sha256-")
    assert event_type.key_of(OrderPlaced(order_id="o1")) == "o1"


def test_bad_declarations_say_what_to_do() -> None:
    shop = Service("orders", namespace="shop")
    with pytest.raises(ConfigurationError, match="Did you mean 'order_id'"):

        @shop.event("order.placed.v1", key="orderid")
        class OrderPlaced:
            order_id: str

    with pytest.raises(SubjectError, match="placed"):
        shop.event("order.place.v1")
    with pytest.raises(ConfigurationError, match="not an event"):
        shop.on(int)(lambda event: None)
    with pytest.raises(ConfigurationError, match="envelope"):
        Service("orders", envelope="binry")
