"""A JSON Schema in its normal form: other spellings of the same meaning come out the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_PROSE = frozenset(("title", "description", "examples", "$comment"))


def normalised(document: Mapping[str, object] | bool) -> object:
    return _without_prose(document)


def fields_of(document: Mapping[str, object]) -> Sequence[str]:
    """The names of the properties that an object schema declares, in their order."""
    node: object = document
    definitions = document.get("$defs")
    while isinstance(node, Mapping) and isinstance(reference := node.get("$ref"), str):
        node = definitions.get(reference.rpartition("/")[2]) if isinstance(definitions, Mapping) else None
    properties = node.get("properties") if isinstance(node, Mapping) else None
    return tuple(properties) if isinstance(properties, Mapping) else ()


def _without_prose(node: object, *, names: bool = False) -> object:
    """`names` is True where keys are the user's own names, such as a property that is called title."""
    if isinstance(node, dict):
        kept = ((k, v) for k, v in node.items() if names or k not in _PROSE)
        return {k: _without_prose(v, names=not names and k in ("properties", "$defs")) for k, v in kept}
    if isinstance(node, list):
        return [_without_prose(item) for item in node]
    return node
