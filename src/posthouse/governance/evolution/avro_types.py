"""Avro schemas as values: names resolved, defaults checked, every mistake named with its place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from posthouse.errors import SchemaError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEEPEST = 100
"""Levels of nesting that a schema may have."""

MOST_STEPS = 100_000
"""Steps that the check of one default may take."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT, _LONG = 2**31, 2**63


@dataclass(eq=False)
class Primitive:
    """One of the eight simple types."""

    name: str
    logical: Logical | None = None


@dataclass(eq=False)
class Logical:
    """What a number or some bytes stand for."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})" if self.name == "decimal" else self.name


@dataclass(eq=False)
class Array:
    items: AvroType


@dataclass(eq=False)
class Map:
    values: AvroType


@dataclass(eq=False)
class Union:
    branches: list[AvroType]


@dataclass(eq=False)
class Fixed:
    name: str
    aliases: frozenset[str]
    size: int
    logical: Logical | None = None


@dataclass(eq=False)
class Enum:
    name: str
    aliases: frozenset[str]
    symbols: list[str]
    default: str | None


@dataclass(eq=False)
class Field:
    name: str
    aliases: frozenset[str]
    type: AvroType
    has_default: bool
    default: object


@dataclass(eq=False)
class Record:
    name: str
    aliases: frozenset[str]
    fields: list[Field] = field(default_factory=list)


Named = Fixed | Enum | Record
AvroType = Primitive | Array | Map | Union | Named
N = TypeVar("N", Fixed, Enum, Record)


def read_avro(*schemas: object) -> AvroType:
    """The last of several schemas as JSON values; the ones before it define names that it may use."""
    reader = _Reader()
    found: list[AvroType] = [reader.read(schema, "", "", 0) for schema in schemas]
    for place, kind, value in reader.defaults:
        if not _Fitting().fits(kind, value):
            raise SchemaError(f"{place}: the default {_shown(value)} is not a value of type {described(kind)}")
    return found[-1]


def parse_avro(text: str) -> object:
    """The JSON value of a schema's text; a bare word such as `string` is a schema too."""
    if text.strip() in PRIMITIVES:
        return text.strip()
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the text is not JSON: {error}") from error


def described(kind: AvroType) -> str:
    """The type in a few words."""
    match kind:
        case Primitive(name=name, logical=logical) if logical:
            return f"{logical} on {name}"
        case Primitive(name=name):
            return name
        case Array(items=items):
            return f"array of {described(items)}"
        case Map(values=values):
            return f"map of {described(values)}"
        case Union(branches=branches):
            return f"union of {', '.join(map(described, branches))}" if branches else "empty union"
        case Fixed(name=name, size=size):
            return f"fixed {name} of {size} bytes"
        case Enum(name=name):
            return f"enum {name}"
        case Record(name=name):
            return f"record {name}"


def unqualified(name: str) -> str:
    """A full name without its namespace."""
    return name.rpartition(".")[2]


def _fits_primitive(name: str, value: object) -> bool:
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return number is not None and -_INT <= number < _INT
        case "long":
            return number is not None and -_LONG <= number < _LONG
        case "float" | "double":
            return number is not None or isinstance(value, float) or value in ("NaN", "Infinity", "-Infinity")
        case "bytes":
            return isinstance(value, str) and _is_latin(value)
        case _:
            return isinstance(value, str)


class _Fitting:
    """Whether a JSON value can stand as a default of a type. Of a union it may fit any branch, as Avro 1.12 allows."""

    def __init__(self) -> None:
        self._steps = 0

    def fits(self, kind: AvroType, value: object) -> bool:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise SchemaError(f"a default takes more than {MOST_STEPS:,} steps to check: make it simpler")
        match kind:
            case Primitive(name=name):
                return _fits_primitive(name, value)
            case Array(items=items):
                return isinstance(value, list) and all(self.fits(items, item) for item in value)
            case Map(values=values):
                return isinstance(value, dict) and all(self.fits(values, item) for item in value.values())
            case Union(branches=branches):
                return any(self.fits(branch, value) for branch in branches)
            case Fixed(size=size):
                return isinstance(value, str) and len(value) == size and _is_latin(value)
            case Enum(symbols=symbols):
                return value in symbols
            case Record(fields=fields):
                return isinstance(value, dict) and all(
                    self.fits(f.type, value[f.name]) if f.name in value else f.has_default for f in fields
                )


class _Reader:
    """Walks schemas in order and keeps the names that they define."""

    def __init__(self) -> None:
        self.names: dict[str, Named] = {}
        self.defaults: list[tuple[str, AvroType, object]] = []

    def read(self, schema: object, space: str, place: str, depth: int) -> AvroType:
        if depth > DEEPEST:
            raise SchemaError(f"{place[:100]}…: more than {DEEPEST} levels deep")
        if isinstance(schema, str):
            return self._named(schema, space, place)
        if isinstance(schema, list):
            return self._union(schema, space, place, depth)
        if not isinstance(schema, dict):
            raise SchemaError(f"{place or 'the schema'}: a schema is a name, an object or a list, not {_shown(schema)}")
        return self._object(schema, space, place, depth)

    def _named(self, name: str, space: str, place: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not space else f"{space}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise SchemaError(f"{place or 'the schema'}: there is no type {name!r}; define it before it is used")
        return found

    def _object(self, schema: dict[str, object], space: str, place: str, depth: int) -> AvroType:
        kind = schema.get("type")
        match kind:
            case "array":
                return Array(self.read(_part(schema, "items", place), space, f"{place}/items", depth + 1))
            case "map":
                return Map(self.read(_part(schema, "values", place), space, f"{place}/values", depth + 1))
            case "fixed":
                return self._fixed(schema, space, place)
            case "enum":
                return self._enum(schema, space, place)
            case "record" | "error":
                return self._record(schema, space, place, depth)
            case str() if kind in PRIMITIVES:
                return Primitive(kind, _logical(schema, kind, None))
            case None:
                raise SchemaError(f"{place or 'the schema'}: the object has no `type`")
            case _:
                return self.read(kind, space, place, depth + 1)

    def _union(self, schema: list[object], space: str, place: str, depth: int) -> AvroType:
        branches = [self.read(branch, space, f"{place}/{number}", depth + 1) for number, branch in enumerate(schema)]
        seen: set[str] = set()
        for branch in branches:
            if isinstance(branch, Union):
                raise SchemaError(f"{place or 'the schema'}: a union stands directly in a union")
            name = branch.name if isinstance(branch, Primitive | Named) else type(branch).__name__.lower()
            if name in seen:
                raise SchemaError(f"{place or 'the schema'}: the union has {name} twice")
            seen.add(name)
        return Union(branches)

    def _fixed(self, schema: dict[str, object], space: str, place: str) -> Fixed:
        name = self._name(schema, space, place)
        size = schema.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise SchemaError(f"{place or name}: `size` of a fixed is a number of bytes, not {_shown(size)}")
        return self._keep(Fixed(name, _aliases(schema, name, place), size, _logical(schema, "fixed", size)), place)

    def _enum(self, schema: dict[str, object], space: str, place: str) -> Enum:
        name = self._name(schema, space, place)
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(s, str) and _NAME.fullmatch(s) for s in symbols):
            raise SchemaError(f"{place or name}: `symbols` of an enum is a list of names")
        if len(set(symbols)) < len(symbols):
            raise SchemaError(f"{place or name}: the enum has a symbol twice")
        default = schema.get("default")
        if default is not None and default not in symbols:
            raise SchemaError(f"{place or name}: the default {_shown(default)} is none of the enum's symbols")
        chosen = default if isinstance(default, str) else None
        return self._keep(Enum(name, _aliases(schema, name, place), symbols, chosen), place)

    def _record(self, schema: dict[str, object], space: str, place: str, depth: int) -> Record:
        name = self._name(schema, space, place)
        record = self._keep(Record(name, _aliases(schema, name, place)), place)
        inner = name.rpartition(".")[0]
        given = schema.get("fields")
        if not isinstance(given, list):
            raise SchemaError(f"{place or name}: `fields` of a record is a list")
        for item in given:
            record.fields.append(self._field(item, inner, place, depth))
        names = [f.name for f in record.fields]
        if len(set(names)) < len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise SchemaError(f"{place or name}: the record has the field {twice!r} twice")
        return record

    def _field(self, item: object, space: str, place: str, depth: int) -> Field:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SchemaError(f"{place or 'the record'}: a field is an object with a name of letters, digits and _")
        here = f"{place}/{name}"
        kind = self.read(_part(item, "type", here), space, here, depth + 1)
        aliases = item.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            raise SchemaError(f"{here}: `aliases` is a list of names")
        if "default" in item:
            self.defaults.append((here, kind, item["default"]))
        return Field(name, frozenset(aliases), kind, "default" in item, item.get("default"))

    def _name(self, schema: dict[str, object], space: str, place: str) -> str:
        name, own = schema.get("name"), schema.get("namespace", space)
        if not isinstance(name, str) or not isinstance(own, str | None):
            raise SchemaError(f"{place or 'the schema'}: a {schema['type']} needs a `name`, and `namespace` is a text")
        full = name if "." in name or not own else f"{own}.{name}"
        if not all(_NAME.fullmatch(part) for part in full.split(".")):
            raise SchemaError(f"{place or 'the schema'}: {full!r} is not a name: letters, digits and _ between dots")
        if full in PRIMITIVES:
            raise SchemaError(f"{place or 'the schema'}: {full!r} is the name of a simple type")
        return full

    def _keep(self, kind: N, place: str) -> N:
        if kind.name in self.names:
            raise SchemaError(f"{place or 'the schema'}: the type {kind.name!r} is defined twice")
        self.names[kind.name] = kind
        return kind


def _aliases(schema: dict[str, object], name: str, place: str) -> frozenset[str]:
    given = schema.get("aliases", [])
    if not isinstance(given, list) or not all(isinstance(alias, str) for alias in given):
        raise SchemaError(f"{place or name}: `aliases` is a list of names")
    space = name.rpartition(".")[0]
    return frozenset(alias if "." in alias or not space else f"{space}.{alias}" for alias in given)


def _logical(schema: dict[str, object], kind: str, size: int | None) -> Logical | None:
    """What a logical type says; one that cannot stand here counts for nothing, as Avro says."""
    name = schema.get("logicalType")
    if not isinstance(name, str):
        return None
    if name != "decimal":
        return Logical(name)
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if kind not in ("bytes", "fixed") or not isinstance(precision, int) or not isinstance(scale, int):
        return None
    most = math.inf if size is None else math.floor(math.log10(2) * (8 * size - 1)) if size else 0
    return Logical(name, precision, scale) if 0 < precision <= most and 0 <= scale <= precision else None


def _part(schema: dict[str, object], name: str, place: str) -> object:
    if name not in schema:
        raise SchemaError(f"{place or 'the schema'}: `{name}` is missing")
    return schema[name]


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise SchemaError("an object has a key twice")
    return found


def _refuse_constant(word: str) -> object:
    raise SchemaError(f"{word} is no number of JSON")


def _is_latin(text: str) -> bool:
    return all(ord(character) < 256 for character in text)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"
