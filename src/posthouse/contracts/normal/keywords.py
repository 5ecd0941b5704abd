"""The keywords of JSON Schema 2020-12: which hold schemas, which assert something, and for which type of value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

Node = dict[str, object] | bool
"""A schema: an object, or True for anything and False for nothing."""


def words(text: str) -> frozenset[str]:
    """A set of names, written as text."""
    return frozenset(text.split())


DIALECT = "https://json-schema.org/draft/2020-12/schema"

ONE = words(
    "additionalProperties items contains not if then else propertyNames unevaluatedItems "
    "unevaluatedProperties contentSchema"
)
"""Keywords whose value is a schema."""

MANY = words("allOf anyOf oneOf prefixItems")
"""Keywords whose value is a list of schemas."""

NAMED = words("properties patternProperties dependentSchemas $defs definitions")
"""Keywords whose value maps names, which are the author's own, to schemas."""

HOLDING = ONE | MANY | NAMED
"""Keywords with schemas inside."""

BOUND: Mapping[str, frozenset[str]] = {
    "string": words("minLength maxLength pattern format contentEncoding contentMediaType contentSchema"),
    "number": words("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"),
    "integer": words("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"),
    "object": words(
        "properties patternProperties additionalProperties required minProperties maxProperties propertyNames "
        "dependentRequired dependentSchemas"
    ),
    "array": words("items prefixItems contains minContains maxContains minItems maxItems uniqueItems"),
    "boolean": words(""),
    "null": words(""),
}
"""By type: the keywords that say something about its values and nothing about any other."""

ASSERTING = frozenset().union(*BOUND.values()) | words(
    "$ref type enum const allOf anyOf oneOf not if then else unevaluatedItems unevaluatedProperties "
    "dependencies additionalItems"
)
"""Keywords that can refuse a value, and those that steer others."""

PROSE = words("title description examples $comment deprecated readOnly writeOnly discriminator")
"""Keywords for people and tools, which refuse nothing. `default` is not among them: a reader's value follows from it."""


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """The schema with every schema directly inside it changed."""
    if isinstance(node, bool) or not node.keys() & HOLDING:
        return node
    return {name: _mapped_value(name, value, change) if name in HOLDING else value for name, value in node.items()}


def children(node: Node) -> Iterator[Node]:
    """Every schema directly inside this one."""
    if isinstance(node, bool) or not node.keys() & HOLDING:
        return
    for name, value in node.items():
        if name in ONE:
            inside: Iterable[object] = (value,)
        elif name in MANY:
            inside = value if isinstance(value, list) else ()
        else:
            inside = value.values() if name in NAMED and isinstance(value, dict) else ()
        yield from (child for child in inside if isinstance(child, bool | dict))


def _mapped_value(name: str, value: object, change: Callable[[Node], Node]) -> object:
    if name in ONE and isinstance(value, bool | dict):
        return change(value)
    if name in MANY and isinstance(value, list):
        return [change(child) if isinstance(child, bool | dict) else child for child in value]
    if name in NAMED and isinstance(value, dict):
        return {key: change(child) if isinstance(child, bool | dict) else child for key, child in value.items()}
    return value
