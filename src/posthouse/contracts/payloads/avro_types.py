"""An Avro schema from a class: each Python type has one Avro type, or a sentence about why it has none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec
from msgspec import inspect

from posthouse.errors import ConfigurationError

Avro = str | list[object] | dict[str, object]

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SIMPLE: Mapping[type[inspect.Type], Avro] = {
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "bytes",
    inspect.DateTimeType: {"type": "long", "logicalType": "timestamp-micros"},
    inspect.DateType: {"type": "int", "logicalType": "date"},
    inspect.TimeType: {"type": "long", "logicalType": "time-micros"},
    inspect.UUIDType: {"type": "string", "logicalType": "uuid"},
    inspect.DecimalType: "string",
    inspect.TimeDeltaType: "string",
}
"""Decimals travel as text, as in JSON: Avro's own need a precision that the class does not tell. Spans are ISO 8601."""

Listed = inspect.ListType | inspect.SetType | inspect.FrozenSetType | inspect.VarTupleType


def avro_of(cls: type) -> dict[str, object]:
    """The record of a dataclass or Struct. Raises ConfigurationError with every field that has no Avro type."""
    builder = _Builder()
    made = builder.of(inspect.type_info(cls), cls.__name__)
    if builder.problems:
        raise ConfigurationError(*builder.problems)
    if not isinstance(made, dict):
        raise ConfigurationError(f"{cls.__name__} is no record")
    return made


class _Builder:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self._known: dict[str, type] = {}

    def of(self, info: inspect.Type, where: str) -> Avro:
        if isinstance(info, inspect.Metadata):
            return self.of(info.type, where)
        if type(info) in _SIMPLE:
            return _SIMPLE[type(info)]
        if isinstance(info, inspect.UnionType):
            return self._union(info, where)
        if isinstance(info, Listed):
            return {"type": "array", "items": self.of(info.item_type, f"{where}[]")}
        if isinstance(info, inspect.DictType) and isinstance(info.key_type, inspect.StrType):
            return {"type": "map", "values": self.of(info.value_type, f"{where}{{}}")}
        if isinstance(info, inspect.EnumType):
            return self._named(info.cls, where, lambda: self._enum(info, where))
        if isinstance(info, inspect.LiteralType):
            return "string" if all(isinstance(value, str) for value in info.values) else "long"
        if isinstance(info, inspect.StructType | inspect.DataclassType):
            return self._named(info.cls, where, lambda: self._record(info, where))
        return self._refused(where, type(info).__name__.removesuffix("Type").lower())

    def _named(self, cls: type, where: str, make: Callable[[], Avro]) -> Avro:
        """A type that has a name is written once and named from then on."""
        name = cls.__name__
        if self._known.get(name) is cls:
            return name
        if name in self._known:
            self.problems.append(f"{where}: two classes are called {name}, which is one Avro name: rename one")
            return name
        self._known[name] = cls
        return make()

    def _record(self, info: inspect.StructType | inspect.DataclassType, where: str) -> Avro:
        if isinstance(info, inspect.StructType) and (info.tag is not None or info.array_like):
            return self._refused(where, "tagged or array-like Struct")
        fields = [self._field(field, where) for field in info.fields]
        return {"type": "record", "name": info.cls.__name__, "fields": fields}

    def _field(self, field: inspect.Field, where: str) -> dict[str, object]:
        name, kind = field.encode_name, self.of(field.type, f"{where}.{field.name}")
        made: dict[str, object] = {"name": name, "type": kind}
        if field.required:
            return made
        default = field.default if field.default is not msgspec.NODEFAULT else _call(field.default_factory)
        value = msgspec.to_builtins(default)
        if value is not None and isinstance(kind, list):
            made["type"] = sorted(kind, key=lambda branch: branch == "null")  # a default belongs to the first branch
        if _can_be_default(value):
            made["default"] = value
        return made

    def _union(self, info: inspect.UnionType, where: str) -> Avro:
        branches = [self.of(member, where) for member in info.types]
        records = [b for b in branches if isinstance(b, dict) and b.get("type") == "record"]
        if len(records) > 1:
            return self._refused(where, "union of several classes")
        return sorted(branches, key=lambda branch: branch != "null")

    def _enum(self, info: inspect.EnumType, where: str) -> Avro:
        values = [member.value for member in info.cls]
        if all(isinstance(value, int) for value in values):
            return "long"
        if not all(isinstance(value, str) and _SYMBOL.fullmatch(value) for value in values):
            return "string"
        return {"type": "enum", "name": info.cls.__name__, "symbols": values}

    def _refused(self, where: str, what: str) -> Avro:
        self.problems.append(f"{where}: a {what} has no Avro type of its own: give @avro a schema, or change the field")
        return "null"


def _call(factory: object) -> object:
    return factory() if callable(factory) else None


def _can_be_default(value: object) -> bool:
    """Scalars and empty containers; a time would need its number."""
    return value is None or isinstance(value, bool | int | float | str) or value in ([], {})
