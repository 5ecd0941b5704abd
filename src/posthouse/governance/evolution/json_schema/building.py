"""From a JSON Schema document to a formula."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from typing import cast

from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.document import Document, Json, Place, escaped
from posthouse.governance.evolution.json_schema.evaluated import check_progress, items_reached, names_reached
from posthouse.governance.evolution.json_schema.literals import exact, exactly, scalar
from posthouse.governance.evolution.json_schema.nodes import Node, Pool

TYPES = {
    "null": frozenset((n.NULL,)),
    "boolean": frozenset((n.BOOLEAN,)),
    "integer": frozenset((n.INTEGER,)),
    "number": n.NUMBERS,
    "string": frozenset((n.STRING,)),
    "array": frozenset((n.ARRAY,)),
    "object": frozenset((n.OBJECT,)),
}


DEEPEST = 40
"""What lies deeper is a link, and read afterwards: references may go on for long."""


class Content(Enum):
    """What objects may hold beside what a schema declares."""

    AS_WRITTEN = "as written"
    DECLARED = "declared"
    """A writer that sends what it declares and nothing else."""
    IGNORED = "ignored"
    """A reader that ignores what it does not know."""


def build(document: Document, pool: Pool, content: Content = Content.AS_WRITTEN) -> Node:
    """The formula of a whole document. Raises SchemaError for references that lead nowhere or in circles."""
    known = pool.built.get((document, content))
    if known is None:
        check_progress(document)
        known = pool.built[document, content] = _Builder(document, pool, content).whole()
    return known


class _Builder:
    def __init__(self, document: Document, pool: Pool, content: Content) -> None:
        self._document, self._pool, self._content = document, pool, content
        self._done: dict[str, Node] = {}
        self._open: set[str] = set()
        self._linked: set[str] = set()
        self._later: list[tuple[n.Link, Place, bool]] = []

    def whole(self) -> Node:
        """The formula of the document, with all that links stand for."""
        root = self.value(self._document.place(""))
        while self._later:
            link, place, closing = self._later.pop()
            self._pool.link(link, self._schema(place, closing=closing))
        return root

    def value(self, place: Place) -> Node:
        """A schema for a value of its own: the message, a property, an item."""
        return self._schema(place, closing=self._content is Content.DECLARED)

    def _schema(self, place: Place, *, closing: bool = False) -> Node:
        """A schema in place: it speaks of the same value as the one around it."""
        text = self._shared_text(place.schema, closing)
        if text is None:
            return self._own(place, closing)
        known = self._pool.shared.get(text)
        if known is None:
            known = self._pool.shared[text] = self._formula(place, closing)
        return known

    def _shared_text(self, schema: Json, closing: bool) -> str | None:
        """Schemas of one text mean the same wherever they stand, unless references or names are in them: None then."""
        text = repr(schema)
        return None if "'$" in text else f"{self._document.draft} {self._content.value} {closing} {text}"

    def _own(self, place: Place, closing: bool) -> Node:
        """A schema that may lead back to itself."""
        key = f"{place.pointer}{' closed' if closing else ''}"
        if key in self._done:
            return self._done[key]
        link = n.Link(f"{self._document.name}, {self._content.value}", key)
        if key in self._open:
            self._linked.add(key)
            return self._pool.of(link)
        if len(self._open) >= DEEPEST:
            self._later.append((self._pool.of(link), place, closing))
            return self._pool.of(link)
        self._open.add(key)
        node = self._done[key] = self._formula(place, closing)
        self._open.remove(key)
        if key in self._linked:
            self._pool.link(self._pool.of(link), node)
        return node

    def _formula(self, place: Place, closing: bool) -> Node:
        schema = place.schema
        if not isinstance(schema, dict):
            return self._pool.true if schema else self._pool.false
        if self._document.draft <= 7 and "$ref" in schema:
            parts = [self._reference(place, schema)]
        else:
            rules = [_KEYWORDS[keyword] for keyword in schema if keyword in _KEYWORDS]
            parts = [part for rule in rules for part in rule(self, place, schema)]
            if not _OF_OBJECTS.isdisjoint(schema):
                parts += self._objects(place, schema)
            if not _OF_ARRAYS.isdisjoint(schema):
                parts += self._arrays(place, schema)
        if closing:
            parts += self._closed(place)
        return self._pool.all(parts)

    def _closed(self, place: Place) -> list[Node]:
        """Nothing but what is declared, unless the schema gives undeclared names a schema of their own."""
        reach = names_reached(self._document, place, open_counts=False)
        if reach.whole or reach.maybe == n.Named():
            return []
        return [self._pool.of(n.Others(reach.sure, reach.maybe, self._pool.false))]

    def _inner(self, place: Place, *steps: str) -> Place:
        """A schema below this one, by keyword and name."""
        return self._document.place("/".join((place.pointer, *map(escaped, steps))))

    # keywords for any value

    def _reference(self, place: Place, schema: dict[str, Json]) -> Node:
        return self._schema(self._document.resolve(cast(str, schema["$ref"]), place))

    def _ref(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        return [self._reference(place, schema)]

    def _type(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        said = schema["type"]
        names = cast(list[str], said if isinstance(said, list) else [said])
        return [self._pool.of(n.Kinds(frozenset().union(*(TYPES[name] for name in names))))]

    def _enum(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        return [self._one_of_values(cast(list[Json], schema["enum"]))]

    def _const(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        return [self._one_of_values([schema["const"]])]

    def _one_of_values(self, values: list[Json]) -> Node:
        scalars = frozenset(scalar(value) for value in values if not isinstance(value, (list, dict)))
        parts = [exactly(self._pool, value) for value in values if isinstance(value, (list, dict))]
        if scalars:
            parts.insert(0, self._pool.of(n.Values(scalars)))
        return self._pool.some(parts)

    def _all_of(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        return self._list(place, schema, "allOf")

    def _any_of(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        return [self._pool.some(self._list(place, schema, "anyOf"))]

    def _one_of(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        parts = self._list(place, schema, "oneOf")
        return parts if len(parts) == 1 else [self._pool.of(n.Exactly(tuple(parts)))]

    def _not(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        return [self._pool.negation(self._schema(self._inner(place, "not")))]

    def _if(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        if self._document.draft < 7:
            return []
        condition = self._schema(self._inner(place, "if"))
        parts = []
        if "then" in schema:
            then = self._schema(self._inner(place, "then"))
            parts.append(self._pool.some([self._pool.negation(condition), then]))
        if "else" in schema:
            parts.append(self._pool.some([condition, self._schema(self._inner(place, "else"))]))
        return parts

    def _list(self, place: Place, schema: dict[str, Json], keyword: str) -> list[Node]:
        count = len(cast(list[Json], schema[keyword]))
        return [self._schema(self._inner(place, keyword, str(index))) for index in range(count)]

    # keywords for scalars

    def _opaque(self, keyword: str, schema: dict[str, Json]) -> list[Node]:
        return [self._pool.of(n.Opaque(keyword, json.dumps(schema[keyword], sort_keys=True, default=str)))]

    # keywords for objects

    def _objects(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        pool = self._pool
        parts: list[Node] = [pool.of(n.Required(name)) for name in cast(list[str], schema.get("required", []))]
        for name, inner in cast(dict[str, Json], schema.get("properties", {})).items():
            text = self._shared_text(inner, self._content is Content.DECLARED)
            value = pool.shared.get(text) if text is not None else None
            if value is None:
                value = self.value(self._inner(place, "properties", name))
            parts.append(pool.of(n.Property(name, value)))
        for pattern in cast(dict[str, Json], schema.get("patternProperties", {})):
            value = self.value(self._inner(place, "patternProperties", pattern))
            parts.append(pool.of(n.PatternProperty(pattern, value)))
        parts += self._others(place, schema)
        parts += self._dependencies(place, schema)
        return [part for part in parts if isinstance(part, n.Property) or getattr(part, "value", None) is not pool.true]

    def _others(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        parts: list[Node] = []
        if self._says(schema, "additionalProperties"):
            named = n.Named(frozenset(_names(schema, "properties")), frozenset(_names(schema, "patternProperties")))
            value = self.value(self._inner(place, "additionalProperties"))
            parts.append(self._pool.of(n.Others(named, named, value)))
        if self._document.draft >= 19 and self._says(schema, "unevaluatedProperties"):
            reach = names_reached(self._document, place, besides="unevaluatedProperties")
            value = self.value(self._inner(place, "unevaluatedProperties"))
            if not reach.whole:
                parts.append(self._pool.of(n.Others(reach.sure, reach.maybe, value)))
        return parts

    def _says(self, schema: dict[str, Json], keyword: str) -> bool:
        """Whether the keyword counts: a reader that ignores unknown names does not refuse them."""
        return keyword in schema and not (self._content is Content.IGNORED and schema[keyword] is False)

    def _dependencies(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        parts: list[Node] = []
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            if keyword == "dependencies" and self._document.draft >= 19:
                continue
            if keyword != "dependencies" and self._document.draft < 19:
                continue
            for name, needs in cast(dict[str, Json], schema.get(keyword, {})).items():
                parts.append(self._if_present(name, self._needed(place, keyword, name, needs)))
        return parts

    def _needed(self, place: Place, keyword: str, name: str, needs: Json) -> Node:
        if isinstance(needs, list):
            return self._pool.all([self._pool.of(n.Required(cast(str, need))) for need in needs])
        return self._schema(self._inner(place, keyword, name))

    def _if_present(self, name: str, then: Node) -> Node:
        no_object = self._pool.of(n.Kinds(n.KINDS - {n.OBJECT}))
        absent = self._pool.negation(self._pool.of(n.Required(name)))
        return self._pool.some([no_object, absent, then])

    def _property_names(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        return [self._pool.of(n.Names(self.value(self._inner(place, "propertyNames"))))]

    # keywords for arrays

    def _arrays(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        prefix, rest = _item_keywords(self._document.draft, schema)
        pool = self._pool
        parts: list[Node] = []
        count = len(cast(list[Json], schema[prefix])) if prefix else 0
        for index in range(count):
            parts.append(pool.of(n.Item(index, self.value(self._inner(place, cast(str, prefix), str(index))))))
        if rest:
            parts.append(pool.of(n.Rest(count, count, self.value(self._inner(place, rest)))))
        if self._document.draft >= 19 and "unevaluatedItems" in schema:
            reach = items_reached(self._document, place, besides="unevaluatedItems")
            value = self.value(self._inner(place, "unevaluatedItems"))
            if not reach.whole:
                parts.append(pool.of(n.Rest(reach.sure, reach.maybe, value)))
        if "contains" in schema:
            parts += self._contains(place, schema)
        if schema.get("uniqueItems") is True:
            parts.append(pool.of(n.Unique()))
        return [part for part in parts if getattr(part, "value", None) is not pool.true]

    def _contains(self, place: Place, schema: dict[str, Json]) -> list[Node]:
        item = self.value(self._inner(place, "contains"))
        counted = self._document.draft >= 19
        least = whole(schema["minContains"]) if counted and "minContains" in schema else 1
        parts: list[Node] = [self._pool.of(n.ContainsAtLeast(item, least))] if least else []
        if counted and "maxContains" in schema:
            parts.append(self._pool.of(n.ContainsAtMost(item, whole(schema["maxContains"]))))
        return parts


def whole(value: Json) -> int:
    """A count, which may be written as 3.0."""
    return int(exact(value))


def _names(schema: dict[str, Json], keyword: str) -> list[str]:
    return list(cast(dict[str, Json], schema.get(keyword, {})))


def _item_keywords(draft: int, schema: dict[str, Json]) -> tuple[str | None, str | None]:
    """The keyword for the first items and the one for the rest, where they are there."""
    if draft >= 20:
        return ("prefixItems" if "prefixItems" in schema else None), ("items" if "items" in schema else None)
    if isinstance(schema.get("items"), list):
        return "items", ("additionalItems" if "additionalItems" in schema else None)
    return None, ("items" if "items" in schema else None)


_Rule = Callable[[_Builder, Place, dict[str, Json]], list[Node]]


def _atom(keyword: str, make: Callable[[Json], Node]) -> _Rule:
    return lambda builder, place, schema: [builder._pool.of(make(schema[keyword]))]


def _unknown(keyword: str) -> _Rule:
    return lambda builder, place, schema: builder._opaque(keyword, schema)


_KEYWORDS: dict[str, _Rule] = {
    "type": _Builder._type,
    "enum": _Builder._enum,
    "const": _Builder._const,
    "minimum": _atom("minimum", lambda value: n.AtLeast(exact(value), open=False)),
    "exclusiveMinimum": _atom("exclusiveMinimum", lambda value: n.AtLeast(exact(value), open=True)),
    "maximum": _atom("maximum", lambda value: n.AtMost(exact(value), open=False)),
    "exclusiveMaximum": _atom("exclusiveMaximum", lambda value: n.AtMost(exact(value), open=True)),
    "multipleOf": _atom("multipleOf", lambda value: n.MultipleOf(exact(value))),
    "minLength": _atom("minLength", lambda value: n.MinLength(whole(value))),
    "maxLength": _atom("maxLength", lambda value: n.MaxLength(whole(value))),
    "pattern": _atom("pattern", lambda value: n.Pattern(cast(str, value))),
    "format": _atom("format", lambda value: n.Format(cast(str, value))),
    "minProperties": _atom("minProperties", lambda value: n.MinProperties(whole(value))),
    "maxProperties": _atom("maxProperties", lambda value: n.MaxProperties(whole(value))),
    "minItems": _atom("minItems", lambda value: n.MinItems(whole(value))),
    "maxItems": _atom("maxItems", lambda value: n.MaxItems(whole(value))),
    "propertyNames": _Builder._property_names,
    "contentEncoding": _unknown("contentEncoding"),
    "contentMediaType": _unknown("contentMediaType"),
    "$dynamicRef": _unknown("$dynamicRef"),
    "$recursiveRef": _unknown("$recursiveRef"),
    "$ref": _Builder._ref,
    "allOf": _Builder._all_of,
    "anyOf": _Builder._any_of,
    "oneOf": _Builder._one_of,
    "not": _Builder._not,
    "if": _Builder._if,
}
_OF_OBJECTS = frozenset(
    (
        "required", "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "dependencies",
        "dependentRequired", "dependentSchemas",
    )
)  # fmt: skip
_OF_ARRAYS = frozenset(("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "uniqueItems"))
