"""Shapes: the fields of a payload, read from its schema, whatever its format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import cast

import msgspec

from posthouse.errors import SchemaError
from posthouse.events.limits import UNREADABLE
from posthouse.governance.document import EventEntry
from posthouse.governance.policies.words import one_of

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

MOST_NODES = 50_000
BOUNDS = {"array": "maxItems", "map": "maxProperties", "string": "maxLength"}
ITSELF = "…"

Node = Mapping[str, object]
Inside = tuple[str, ...]
"""The references that led to a node; ITSELF at the end where it is inside itself."""


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
    """Every field, also those inside others; a type that holds itself is entered once. Raises SchemaError for a schema that
    cannot be read."""
    match entry.format:
        case "json":
            found = _JsonShape(_decoded(entry)).fields()
        case "avro":
            found = _avro(_decoded(entry), "")
        case "protobuf":
            found = _protobuf(entry.schema)
    try:
        return tuple(islice(found, MOST_FIELDS))
    except RecursionError:
        raise SchemaError(f"the schema of {entry.subject} is nested too deeply") from None


def largest_json(entry: EventEntry) -> int:
    """How many bytes the bounded parts of a payload may take at most; what has no bound is not counted."""
    try:
        return _JsonShape(_decoded(entry)).size() if entry.format == "json" else 0
    except RecursionError:
        raise SchemaError(f"the schema of {entry.subject} is nested too deeply") from None


def _decoded(entry: EventEntry) -> object:
    try:
        return msgspec.json.decode(entry.schema)
    except UNREADABLE as error:
        raise SchemaError(f"the schema of {entry.subject} cannot be read: {error}") from error


class _JsonShape:
    """One JSON Schema, and how much of it may still be looked at: types that hold each other have more ways through them than
    anybody can walk. What is left over is taken for empty."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._left = MOST_NODES

    def fields(self) -> Iterator[Field]:
        return self._fields(self._root, "", ())

    def size(self) -> int:
        return self._size(self._root, ())

    def _fields(self, node: object, path: str, inside: Inside) -> Iterator[Field]:
        node, inside = self._resolved(node, inside)
        for name, below in _mapping(node.get("properties")).items():
            yield from self._field(below, f"{path}{name}", inside)
        for branch in _branches(node):
            yield from self._fields(branch, path, inside)
        for items in (node.get("items"), node.get("additionalProperties")):
            if isinstance(items, Mapping):
                yield from self._fields(items, f"{path}*.", inside)

    def _field(self, node: object, path: str, inside: Inside) -> Iterator[Field]:
        said, deeper = self._resolved(node, inside)
        yield Field(
            path=path,
            name=path.rpartition(".")[2],
            kinds=frozenset(self._kinds(said, deeper)),
            format=str(said.get("format", "")),
            most=self._most(said, deeper),
        )
        yield from self._fields(said, f"{path}.", deeper)

    def _kinds(self, node: Node, inside: Inside) -> set[str]:
        said = node.get("type")
        kinds = {said} if isinstance(said, str) else set(cast("list[str]", said or []))
        if "object" in kinds and "properties" not in node and not _branches(node):
            kinds.add("map")
        if _holds_anything(kinds, node):
            kinds.add("any")
        if "contentEncoding" in node:
            kinds.add("bytes")
        for branch in _branches(node):
            below, deeper = self._resolved(branch, inside)
            kinds |= self._kinds(below, deeper) if below else set()
        if not kinds and not {"enum", "const"}.intersection(node) and inside[-1:] != (ITSELF,):
            kinds.add("any")
        return kinds

    def _most(self, node: Node, inside: Inside) -> int | None:
        """The bound of a text, list or map; of several shapes that are alternatives the largest, None if one has none."""
        kinds = self._kinds({**node, "anyOf": [], "oneOf": [], "allOf": []}, inside)
        bounds = [node.get(BOUNDS[kind]) for kind in ("array", "map") if kind in kinds]
        if not bounds and "string" in kinds:
            bounds.append(node.get(BOUNDS["string"]))
        for branch in _branches(node):
            below, deeper = self._resolved(branch, inside)
            bounds += [self._most(below, deeper)] if BOUNDS.keys() & self._kinds(below, deeper) else []
        known = [bound for bound in bounds if isinstance(bound, int)]
        return max(known) if known and len(known) == len(bounds) else None

    def _size(self, node: object, inside: Inside) -> int:
        node, inside = self._resolved(node, inside)
        properties = _mapping(node.get("properties"))
        total = sum(len(name) + len('"":,') + self._size(below, inside) for name, below in properties.items())
        if isinstance(length := node.get("maxLength"), int):
            total += length
        if isinstance(items := node.get("maxItems"), int):
            total += items * max(1, self._size(node.get("items", {}), inside))
        return total + max((self._size(branch, inside) for branch in _branches(node)), default=0)

    def _resolved(self, node: object, inside: Inside) -> tuple[Node, Inside]:
        """The node behind references, and those that led here; an empty node when it is inside itself, marked so."""
        while self._left > 0:
            self._left -= 1
            found = _mapping(node)
            target = found.get("$ref")
            if not isinstance(target, str):
                return found, inside
            if target in inside:
                break
            inside = (*inside, target)
            node = _at(self._root, target)
        return {}, (*inside, ITSELF)


def _holds_anything(kinds: set[str], node: Node) -> bool:
    """A list or map whose items nobody describes."""
    items = node.get("items") or node.get("prefixItems") if "array" in kinds else node.get("additionalProperties")
    return bool({"array", "map"} & kinds) and (not items or items is True)


def _at(root: object, pointer: str) -> object:
    node = root
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
