"""Formats that msgspec leaves out of its schemas: a time that may come without a zone has none there, but it is one."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import inspect

Node = dict[str, object]
Fielded = inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType
Listed = inspect.ListType | inspect.SetType | inspect.FrozenSetType | inspect.VarTupleType | inspect.CollectionType

_FORMATS: dict[type[inspect.Type], str] = {inspect.DateTimeType: "date-time", inspect.TimeType: "time"}


def with_formats(cls: type, document: Node) -> Node:
    """The document with the formats of `cls` added in place. It must come from `msgspec.json.schema(cls)`."""
    _Walk(document).into(inspect.type_info(cls), document)
    return document


class _Walk:
    """Goes through a type and its schema side by side; each class once."""

    def __init__(self, document: Node) -> None:
        definitions = document.get("$defs")
        self._definitions: Node = definitions if isinstance(definitions, dict) else {}
        self._seen: set[type] = set()

    def into(self, info: inspect.Type, place: object) -> None:
        if isinstance(info, inspect.Metadata):
            info = info.type
        node = self._resolved(place)
        if type(info) in _FORMATS:
            node.setdefault("format", _FORMATS[type(info)])
        elif isinstance(info, inspect.UnionType):
            self._into_union(info, node)
        elif not isinstance(info, Fielded):
            for inner, where in _parts(info, node):
                self.into(inner, where)
        elif info.cls not in self._seen:
            self._seen.add(info.cls)
            for field, where in _fields(info, node):
                self.into(field, where)

    def _into_union(self, info: inspect.UnionType, node: Node) -> None:
        """msgspec lets a union have one member that is written as text, one array and one map: the kind tells which."""
        for branch in self._branches(node):
            for member in info.types:
                if _fits(member, branch):
                    self.into(member, branch)

    def _branches(self, node: Node) -> Iterator[Node]:
        branches = node.get("anyOf")
        if not isinstance(branches, list):
            yield node
            return
        for branch in branches:
            yield from self._branches(self._resolved(branch))

    def _resolved(self, place: object) -> Node:
        while isinstance(place, dict) and isinstance(reference := place.get("$ref"), str):
            place = self._definitions.get(reference.rpartition("/")[2])
        return place if isinstance(place, dict) else {}


def _fields(info: Fielded, node: Node) -> Iterator[tuple[inspect.Type, object]]:
    named, positional = node.get("properties"), node.get("prefixItems")
    for number, field in enumerate(info.fields):
        if isinstance(named, dict):
            yield field.type, named.get(field.encode_name)
        elif isinstance(positional, list):
            yield field.type, positional[-len(info.fields) :][number]


def _parts(info: inspect.Type, node: Node) -> Iterator[tuple[inspect.Type, object]]:
    if isinstance(info, Listed):
        yield info.item_type, node.get("items")
    elif isinstance(info, inspect.TupleType):
        places = node.get("prefixItems")
        yield from zip(info.item_types, places if isinstance(places, list) else (), strict=False)
    elif isinstance(info, inspect.DictType):
        yield info.value_type, node.get("additionalProperties")


def _fits(member: inspect.Type, branch: Node) -> bool:
    plain = member.type if isinstance(member, inspect.Metadata) else member
    if isinstance(plain, Fielded):
        return branch.get("title") == plain.cls.__name__
    if type(plain) in _FORMATS:
        return branch.get("type") == "string"
    if isinstance(plain, inspect.DictType):
        return branch.get("type") == "object" and "title" not in branch
    return isinstance(plain, Listed | inspect.TupleType) and branch.get("type") == "array"
