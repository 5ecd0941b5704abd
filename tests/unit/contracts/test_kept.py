"""What readers hear is what was said, or it is not published."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.struct_pb2 import Value
from pydantic.alias_generators import to_camel

from posthouse.contracts import avro, payload_of
from posthouse.errors import ConfigurationError, ContractError

BERLIN = ZoneInfo("Europe/Berlin")
ODD = datetime.timezone(datetime.timedelta(hours=1, seconds=7))


@dataclasses.dataclass
class Taxed:
    cents: int

    def __post_init__(self) -> None:
        self.cents = round(self.cents * 1.2)


class Money(msgspec.Struct):
    cents: int


class WithFee(Money):
    fee: int = 0


class Charged(msgspec.Struct):
    money: Money
    share: float = 0.0
    at: datetime.datetime | None = None


class MoneyModel(pydantic.BaseModel):
    cents: int


class WithFeeModel(MoneyModel):
    fee: int = 0


class ChargedModel(pydantic.BaseModel):
    money: MoneyModel
    total: str | Decimal = ""
    hidden: int = pydantic.Field(default=0, exclude=True)


class Computing(pydantic.BaseModel):
    cents: int

    @pydantic.field_validator("cents")
    @classmethod
    def taxed(cls, cents: int) -> int:
        return round(cents * 1.2)


class Entity(msgspec.Struct, eq=False):
    """Compares by its id, as entities do."""

    id: str
    cents: Money

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entity) and other.id == self.id


@avro
@dataclasses.dataclass
class Timed:
    since: datetime.datetime | None = None
    daily: datetime.time | None = None
    share: float = 0.0


@avro
@dataclasses.dataclass
class Either:
    when: datetime.datetime | int


@avro(schema={"type": "record", "name": "Narrow", "fields": [{"name": "price", "type": "float"}]})
@dataclasses.dataclass
class Narrow:
    price: float


LOST: dict[str, tuple[Callable[[], object], str]] = {
    "a constructor that computes": (lambda: Taxed(10_000), r"`\$.cents` is 12000 here, and readers would hear 14400"),
    "a validator that computes": (lambda: Computing(cents=10_000), r"`\$.cents` is 12000 .* 14400"),
    "a subclass in a field": (lambda: Charged(WithFee(100, 7)), r"`\$.money` is WithFee\(.*fee=7\) .* Money\("),
    "a subclass in a field of a model": (
        lambda: ChargedModel(money=WithFeeModel(cents=100, fee=7)),
        r"`\$.money` is WithFeeModel\(.*fee=7\) .* MoneyModel\(",
    ),
    "one of two types that are written alike": (
        lambda: ChargedModel(money=MoneyModel(cents=1), total=Decimal("1.5")),
        r"`\$.total` is Decimal\('1.5'\) .* '1.5'",
    ),
    "an excluded field": (lambda: ChargedModel(money=MoneyModel(cents=1), hidden=7), r"`\$.hidden` is 7 .* 0"),
    "a float that is no float": (lambda: Charged(Money(1), share=2**53 + 1), r"`\$.share` is 9007199254740993 "),
    "a zone with seconds": (
        lambda: Charged(Money(1), at=datetime.datetime(2026, 1, 1, tzinfo=ODD)),
        r"`\$.at` is .*seconds=3607.* readers would hear",
    ),
    "a loss in a class that compares by its id": (lambda: Entity("e1", WithFee(100, 7)), r"`\$.cents` is WithFee"),
    "a time with a zone": (lambda: Timed(daily=datetime.time(9, tzinfo=datetime.UTC)), r"`\$.daily`"),
    "a number that is read as a moment": (lambda: Either(5), r"`\$.when` is 5 .* datetime.datetime\(1970"),
    "a float of four bytes": (lambda: Narrow(19.99), r"`\$.price` is 19.99 here, and readers would hear 19.98999"),
    "the first moment of the calendar": (
        lambda: Timed(datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1)))),
        "not a valid Timed",
    ),
    "the last moment of the calendar": (
        lambda: Timed(datetime.datetime.max.replace(tzinfo=datetime.timezone(-datetime.timedelta(hours=5)))),
        "not a valid Timed",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_a_value_that_readers_would_hear_otherwise_is_refused(name: str) -> None:
    make, words = LOST[name]
    value = make()
    with pytest.raises(ContractError, match=words):
        payload_of(type(value)).encode(value)


@dataclasses.dataclass(eq=False)
class Unequal:
    numbers: list[int]
    names: frozenset[str] = frozenset()
    at: datetime.datetime | None = None


class Open(pydantic.BaseModel, extra="allow"):
    cents: int
    _seen: int = pydantic.PrivateAttr(0)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def gross(self) -> int:
        return self.cents * 2


def _open() -> Open:
    made = Open.model_validate({"cents": 1, "note": "x"})
    made._seen = 7
    return made


SAME: dict[str, Callable[[], object]] = {
    "a class that does not compare": lambda: Unequal([1, 2]),
    "a tuple in place of a list": lambda: Unequal((1, 2)),  # type: ignore[arg-type]
    "names in any order": lambda: Unequal([], frozenset(f"n{number}" for number in range(50))),
    "the hour that a zone has twice": lambda: Unequal([], at=datetime.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)),
    "the hour that a zone leaves out": lambda: Unequal([], at=datetime.datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN)),
    "a private attribute and a computed field": _open,
    "Avro: the hour that a zone has twice": lambda: Timed(datetime.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)),
    "Avro: no number": lambda: Timed(share=math.nan),
    "protobuf: no number": lambda: Value(number_value=math.nan),
}


@pytest.mark.parametrize("name", SAME)
def test_a_value_that_readers_hear_as_it_was_said_is_taken(name: str) -> None:
    value = SAME[name]()
    assert payload_of(type(value)).encode(value)


def test_a_message_with_more_levels_than_readers_take_is_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="tree.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Tree")
    message.field.add(name="id", number=1, type=9, label=1)
    message.field.add(name="children", number=2, type=11, label=3, type_name=".shop.Tree")
    tree: Any = message_factory.GetMessages([file], pool=descriptor_pool.DescriptorPool())["shop.Tree"]
    root = node = tree(id="c1")
    for _ in range(120):
        node = node.children.add(id="c")
    with pytest.raises(ContractError, match="not a valid Tree"):
        payload_of(tree).encode(root)


def test_a_field_that_travels_under_a_name_by_which_nobody_reads_it_is_refused_where_it_is_declared() -> None:
    class Out(pydantic.BaseModel):
        cents: int = pydantic.Field(0, serialization_alias="amountCents")

    class In(pydantic.BaseModel):
        cents: int = pydantic.Field(0, validation_alias="amountCents")

    class Camel(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(alias_generator=pydantic.AliasGenerator(serialization_alias=to_camel))
        order_id: str = ""
        items: list[Out] = []

    with pytest.raises(ConfigurationError, match=r"Out.cents would travel as 'amountCents' and be read as 'cents'"):
        payload_of(Out)
    with pytest.raises(ConfigurationError, match=r"In.cents would travel as 'cents' and be read as 'amountCents'"):
        payload_of(In)
    with pytest.raises(ConfigurationError, match=r"(?s)Camel.order_id .*'orderId'.*Out.cents"):
        payload_of(Camel)


def test_a_field_that_is_read_by_the_name_it_travels_under_is_taken() -> None:
    class Both(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(alias_generator=to_camel, validate_by_name=True)
        order_id: str
        cents: int = pydantic.Field(
            0, serialization_alias="amount", validation_alias=pydantic.AliasChoices("cents", "amount")
        )

    payload = payload_of(Both)
    said = Both(order_id="o1", cents=5)
    assert payload.decode(payload.encode(said)) == said
