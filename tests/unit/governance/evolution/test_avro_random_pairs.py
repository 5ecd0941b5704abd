"""No value contradicts a verdict on two Avro schemas: fastavro reads what we said it reads."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import avro.schema
import fastavro
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.governance.evolution import Mode, Weight
from posthouse.governance.evolution.avro import compare_types
from posthouse.governance.evolution.avro_types import read_avro

Schema = Any
"""Whatever JSON a schema is."""
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
FASTAVRO_IS_LOOSER = {"name-changed"}
"""It reads a record, an enum or a fixed of another name; the specification does not."""


class Maker:
    """Schemas, changes of them, and values, from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.names = 0

    def schema(self, depth: int = 0) -> Schema:
        kinds: list[Callable[[int], Schema]] = [self._primitive, self._primitive, self._enum, self._fixed]
        if depth < 3:
            kinds += [self._record, self._record, self._array, self._map, self._union]
        return self.chance.choice(kinds)(depth)

    def _primitive(self, depth: int) -> Schema:
        return self.chance.choice(PRIMITIVES)

    def _enum(self, depth: int) -> Schema:
        symbols = self.chance.sample(["A", "B", "C", "D"], self.chance.randint(1, 4))
        made: dict[str, object] = {"type": "enum", "name": self._name("E"), "symbols": symbols}
        return made | {"default": symbols[0]} if self.chance.random() < 0.3 else made

    def _fixed(self, depth: int) -> Schema:
        return {"type": "fixed", "name": self._name("F"), "size": self.chance.randint(1, 3)}

    def _record(self, depth: int) -> Schema:
        names = self.chance.sample(["a", "b", "c", "d"], self.chance.randint(0, 3))
        return {"type": "record", "name": self._name("R"), "fields": [self._field(name, depth) for name in names]}

    def _field(self, name: str, depth: int) -> Schema:
        made: dict[str, object] = {"name": name, "type": self.schema(depth + 1)}
        return made | {"default": self.value(made["type"], plain=True)} if self.chance.random() < 0.4 else made

    def _array(self, depth: int) -> Schema:
        return {"type": "array", "items": self.schema(depth + 1)}

    def _map(self, depth: int) -> Schema:
        return {"type": "map", "values": self.schema(depth + 1)}

    def _union(self, depth: int) -> Schema:
        branches: list[Schema] = list(self.chance.sample(PRIMITIVES, self.chance.randint(1, 2)))
        return [*branches, self._record(depth + 1)] if self.chance.random() < 0.5 else branches

    def _name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def changed(self, schema: Schema) -> Schema:
        """A schema that is like another one, names and all, but for a few changes."""
        chance = self.chance
        if chance.random() < 0.12:
            return self._widened(schema)
        if isinstance(schema, list):
            branches = [self.changed(branch) for branch in schema if chance.random() > 0.1]
            flat = [branch for branch in branches if not isinstance(branch, list)]
            seen = {str(b if isinstance(b, str) else b.get("name", b["type"])): b for b in flat}
            return list(seen.values())
        if not isinstance(schema, dict):
            return schema
        made = dict(schema)
        for part in ("items", "values"):
            if part in made:
                made[part] = self.changed(made[part])
        if made["type"] == "enum" and chance.random() < 0.3:
            made["symbols"] = list(dict.fromkeys([*made["symbols"][1:], chance.choice("AEF")]))
            made.pop("default", None)
        if made["type"] == "record":
            made["fields"] = self._changed_fields(made["fields"])
        return made

    def _changed_fields(self, fields: list[dict[str, object]]) -> list[dict[str, object]]:
        kept: list[dict[str, object]] = []
        for field in fields:
            if self.chance.random() < 0.12:
                continue
            made: dict[str, object] = {"name": field["name"], "type": self.changed(field["type"])}
            if self.chance.random() < 0.3:
                made["default"] = self.value(made["type"], plain=True)
            if self.chance.random() < 0.1:
                made |= {"name": f"{field['name']}{field['name']}", "aliases": [field["name"]]}
            kept.append(made)
        if self.chance.random() < 0.2:
            added: dict[str, object] = {"name": "new", "type": self.schema(3)}
            kept.append(added | {"default": self.value(added["type"], plain=True)})
        return kept

    def _widened(self, schema: Schema) -> Schema:
        wider = {"int": "long", "long": "double", "float": "double", "string": "bytes", "bytes": "string"}
        if isinstance(schema, str):
            return self.chance.choice([wider.get(schema, schema), self._primitive(0)])
        return schema if isinstance(schema, list) else ["null", schema]

    def value(self, schema: Schema, *, plain: bool = False) -> object:
        """A value that the schema allows; `plain` as JSON has it, for defaults."""
        chance = self.chance
        if isinstance(schema, list):
            return self.value(schema[0] if plain else chance.choice(schema), plain=plain) if schema else None
        if isinstance(schema, str):
            return _simple(schema, chance, plain)
        assert isinstance(schema, dict)
        match schema["type"]:
            case "enum":
                return chance.choice(schema["symbols"])
            case "fixed":
                return "a" * schema["size"] if plain else b"a" * schema["size"]
            case "array":
                return [self.value(schema["items"], plain=plain) for _ in range(chance.randint(0, 2))]
            case "map":
                return {"k": self.value(schema["values"], plain=plain)} if chance.random() < 0.7 else {}
            case _:
                return {f["name"]: self.value(f["type"], plain=plain) for f in schema["fields"]}


def _simple(name: str, chance: random.Random, plain: bool) -> object:
    made: dict[str, object] = {
        "null": None,
        "boolean": chance.random() < 0.5,
        "int": chance.randint(-5, 5),
        "long": chance.randint(-(2**40), 2**40),
        "float": 1.5,
        "double": -2.25,
        "bytes": "xyz" if plain else b"xyz",
        "string": "text",
    }
    return made[name]


def has_empty_union(schema: Schema) -> bool:
    """Nothing can be written with one, and fastavro does not take it."""
    if isinstance(schema, list):
        return not schema or any(map(has_empty_union, schema))
    if isinstance(schema, dict):
        return any(map(has_empty_union, schema.values())) if schema.get("type") != "enum" else False
    return False


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**40))
def test_what_was_said_to_be_read_is_read(seed: int) -> None:
    maker = Maker(seed)
    old = maker.schema()
    new = maker.changed(old)
    if has_empty_union(old) or has_empty_union(new):
        return
    verdict = compare_types(read_avro(old), read_avro(new), Mode.BACKWARD)
    breaking = [finding for finding in verdict.findings if finding.weight is Weight.BREAKS]
    for finding in breaking:
        if finding.has_example and "bytes" not in str(old) and "fixed" not in str(old):
            assert fastavro.validate(finding.example, fastavro.parse_schema(old), raise_errors=False), (old, finding)
    if verdict.compatible:
        for _ in range(5):
            _read(old, new, maker.value(old))


def _read(old: Schema, new: Schema, value: object) -> object:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(old), value)
    data.seek(0)
    return fastavro.schemaless_reader(data, fastavro.parse_schema(old), fastavro.parse_schema(new))


def _is_read(old: Schema, new: Schema, value: object) -> bool:
    try:
        _read(old, new, value)
    except (fastavro.read.SchemaResolutionError, ValueError, TypeError):
        return False
    return True


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**40))
def test_an_example_of_a_change_that_breaks_is_not_read(seed: int) -> None:
    maker = Maker(seed)
    old = maker.schema()
    new = maker.changed(old)
    if has_empty_union(old) or has_empty_union(new) or "bytes" in str(old) or "fixed" in str(old):
        return
    findings = compare_types(read_avro(old), read_avro(new), Mode.BACKWARD).findings
    for finding in findings:
        if finding.weight is Weight.BREAKS and finding.has_example and finding.rule not in FASTAVRO_IS_LOOSER:
            assert not _is_read(old, new, finding.example), (old, new, finding)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**40))
def test_the_checker_of_avro_itself_says_the_same(seed: int) -> None:
    """Karapace asks it."""
    maker = Maker(seed)
    old = maker.schema()
    new = maker.changed(old)
    if has_empty_union(old) or has_empty_union(new):
        return
    reader, writer = (avro.schema.parse(json.dumps(schema)) for schema in (new, old))
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]  # its constructor has no types
    theirs = checker.get_compatibility(reader, writer).compatibility
    ours = compare_types(read_avro(old), read_avro(new), Mode.BACKWARD).compatible
    assert ours is (theirs is SchemaCompatibilityType.compatible), (old, new)


def test_the_pairs_are_of_both_kinds() -> None:
    verdicts = []
    for seed in range(300):
        maker = Maker(seed)
        old = maker.schema()
        verdicts.append(compare_types(read_avro(old), read_avro(maker.changed(old)), Mode.BACKWARD).compatible)
    assert 60 < sum(verdicts) < 270
