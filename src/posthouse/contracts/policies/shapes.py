"""Shapes: the fields of a payload, read from its schema, whatever its format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from posthouse.contracts.document import EventEntry
from posthouse.contracts.policies.words import one_of

MOST_FIELDS = 2_000
"""No more are looked at in one payload: a schema may be larger than anything worth a rule."""

_PROTO_FIELD = re.compile(r"^\s*(repeated\s+)?(?:optional\s+)?([\w.]+|map<[^>]*>)\s+(\w+)\s*=\s*\d+", re.MULTILINE)
_PROTO_WORDS = one_of("option package syntax message enum reserved return")
_PROTO_KINDS = {"string": "string", "bytes": "bytes", "double": "number", "float": "number", "bool": "boolean"}
_AVRO_KINDS = {
    "double": "number",
    "float": "number",
    "int": "integer",
    "long": "integer",
    "array": "array",
    "map": "map",
}

Node = Mapping[str, object]


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field. `path` reaches inside with dots, `*` being any item. `kinds` are those of JSON Schema, and `map` for an
    object with any keys, `bytes` for text that stands for them, `any` where nothing is said. `most` bounds the length of
    a text or list, None where nothing does."""

    path: str
    name: str
    kinds: frozenset[str]
    format: str = ""
    most: int | None = None


def fields_of(entry: EventEntry) -> tuple[Field, ...]:
    """Every field, also those inside others; a type that holds itself is entered once."""
    match entry.format:
        case "json":
            document = msgspec.json.decode(entry.schema)
            return tuple(_bounded(_json(document, document, "", ())))
        case "avro":
            return tuple(_bounded(_avro(msgspec.json.decode(entry.schema), "")))
        case "protobuf":
            return tuple(_bounded(_protobuf(entry.schema)))


def largest_json(entry: EventEntry) -> int:
    """How many bytes the bounded parts of a payload may take at most; what has no bound is not counted."""
    if entry.format != "json":
        return 0
    document = msgspec.json.decode(entry.schema)
    return _size(document, document, ())


def _bounded(fields: Iterator[Field]) -> Iterator[Field]:
    for _, field in zip(range(MOST_FIELDS), fields, strict=False):
        yield field


def _json(node: object, root: Node, path: str, inside: tuple[str, ...]) -> Iterator[Field]:
    node, inside = _resolved(node, root, inside)
    for name, below in _mapping(node.get("properties")).items():
        yield from _json_field(below, root, f"{path}{name}", inside)
    for branch in _branches(node):
        yield from _json(branch, root, path, inside)


def _json_field(node: object, root: Node, path: str, inside: tuple[str, ...]) -> Iterator[Field]:
    said, deeper = _resolved(node, root, inside)
    most = said.get("maxLength", said.get("maxItems", said.get("maxProperties")))
    yield Field(
        path=path,
        name=path.rpartition(".")[2],
        kinds=_kinds(said, root, deeper),
        format=str(said.get("format", "")),
        most=most if isinstance(most, int) else None,
    )
    yield from _json(said, root, f"{path}.", deeper)
    for items in (said.get("items"), said.get("additionalProperties")):
        if isinstance(items, Mapping):
            yield from _json(items, root, f"{path}.*.", deeper)


def _kinds(node: Node, root: Node, inside: tuple[str, ...]) -> frozenset[str]:
    said = node.get("type")
    kinds = {said} if isinstance(said, str) else set(cast("list[str]", said or []))
    if "object" in kinds and "properties" not in node and not _branches(node):
        kinds.add("map")
    if _holds_anything(kinds, node):
        kinds.add("any")
    if "contentEncoding" in node:
        kinds.add("bytes")
    for branch in _branches(node):
        below, deeper = _resolved(branch, root, inside)
        kinds |= _kinds(below, root, deeper) if below else set()
    if not kinds and not {"enum", "const"}.intersection(node) and inside[-1:] != ("…",):
        kinds.add("any")
    return frozenset(kinds)


def _holds_anything(kinds: set[str], node: Node) -> bool:
    """A list or map whose items nobody describes."""
    items = node.get("items") or node.get("prefixItems") if "array" in kinds else node.get("additionalProperties")
    return bool({"array", "map"} & kinds) and (not items or items is True)


def _size(node: object, root: Node, inside: tuple[str, ...]) -> int:
    node, inside = _resolved(node, root, inside)
    total = sum(len(name) + 4 + _size(below, root, inside) for name, below in _mapping(node.get("properties")).items())
    if isinstance(length := node.get("maxLength"), int):
        total += length
    if isinstance(items := node.get("maxItems"), int):
        total += items * max(1, _size(node.get("items", {}), root, inside))
    return total + max((_size(branch, root, inside) for branch in _branches(node)), default=0)


def _resolved(node: object, root: Node, inside: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
    """The node behind references, and those that led here; an empty node when it is inside itself, marked by `…`."""
    for _ in range(50):
        found = _mapping(node)
        target = found.get("$ref")
        if not isinstance(target, str):
            return found, inside
        if target in inside:
            return {}, (*inside, "…")
        inside = (*inside, target)
        node = _at(root, target)
    return {}, inside


def _at(root: Node, pointer: str) -> object:
    node: object = root
    for part in pointer.removeprefix("#").split("/")[1:]:
        node = _mapping(node).get(part.replace("~1", "/").replace("~0", "~"))
    return node


def _branches(node: Node) -> list[object]:
    return [b for word in ("anyOf", "oneOf", "allOf") for b in cast("list[object]", node.get(word) or [])]


def _mapping(node: object) -> Node:
    return cast("Node", node) if isinstance(node, Mapping) else {}


def _avro(node: object, path: str) -> Iterator[Field]:
    for option in node if isinstance(node, list) else [node]:
        record = _mapping(option)
        for field in cast("list[Node]", record.get("fields") or []):
            place = f"{path}{field.get('name')}"
            inner = field.get("type")
            yield Field(path=place, name=place.rpartition(".")[2], kinds=frozenset(_avro_kinds(inner)))
            yield from _avro(inner, f"{place}.")
        if "items" in record or "values" in record:
            yield from _avro(record.get("items", record.get("values")), f"{path}*.")


def _avro_kinds(node: object) -> Iterator[str]:
    for option in node if isinstance(node, list) else [node]:
        said = _mapping(option)
        kind = str(said.get("type", option)) if said else str(option)
        decimal = said.get("logicalType") == "decimal"
        yield "string" if decimal else _AVRO_KINDS.get(kind, "object" if kind == "record" else kind)


def _protobuf(text: str) -> Iterator[Field]:
    """Names and kinds of all messages of the file, without their nesting."""
    for repeated, kind, name in _PROTO_FIELD.findall(text):
        if kind not in _PROTO_WORDS:
            found = "array" if repeated else "map" if kind.startswith("map<") else _PROTO_KINDS.get(kind)
            whole = "integer" if re.fullmatch(r"[us]?(?:int|fixed)(?:32|64)|sfixed(?:32|64)", kind) else "object"
            yield Field(path=name, name=name, kinds=frozenset({found or whole}))
