"""Schemas as AsyncAPI takes them: draft 7 of JSON Schema, with references to the document's own components."""

from __future__ import annotations

import json
from typing import cast

from posthouse.contracts.normal import Node
from posthouse.contracts.normal.keywords import mapped
from posthouse.governance.document import EventEntry
from posthouse.governance.exports.names import safe

PLACE = "#/components/schemas/"

_DEFINITIONS = "#/$defs/"


def components(entry: EventEntry) -> dict[str, Node]:
    """The schema of a payload, and those of its definitions that contain themselves, by their names in the document."""
    document: Node = json.loads(entry.schema)
    if isinstance(document, bool):
        return {name_of(entry): document}
    definitions = cast("dict[str, Node]", document.get("$defs", {}))
    root: Node = {name: value for name, value in document.items() if name not in ("$defs", "$id", "$schema")}
    made = {name_of(entry): _draft_7(root, entry)}
    return made | {_defined(entry, name): _draft_7(node, entry) for name, node in sorted(definitions.items())}


def name_of(entry: EventEntry) -> str:
    return safe(entry.subject)


def _defined(entry: EventEntry, name: str) -> str:
    return safe(f"{entry.subject}.{name}")


def _draft_7(node: Node, entry: EventEntry) -> Node:
    """What 2020-12 spells differently. Of what draft 7 cannot say (`minContains`, `unevaluatedProperties`) the words stay:
    its readers pass over them."""
    changed = mapped(node, lambda inner: _draft_7(inner, entry))
    if isinstance(changed, bool):
        return changed
    made = dict(changed)
    if "prefixItems" in made:
        rest = made.pop("items", None)
        made["items"] = made.pop("prefixItems")
        made |= {} if rest is None else {"additionalItems": rest}
    dependencies = {
        **cast("dict[str, object]", made.pop("dependentRequired", {})),
        **cast("dict[str, object]", made.pop("dependentSchemas", {})),
    }
    made |= {"dependencies": dependencies} if dependencies else {}
    return _with_reference(made, entry)


def _with_reference(node: dict[str, object], entry: EventEntry) -> Node:
    """In draft 7 a reference hides what stands beside it."""
    target = node.get("$ref")
    if not isinstance(target, str):
        return node
    name = _defined(entry, target.removeprefix(_DEFINITIONS)) if target.startswith(_DEFINITIONS) else name_of(entry)
    reference: Node = {"$ref": f"{PLACE}{name}"}
    beside = {name: value for name, value in node.items() if name != "$ref"}
    return {"allOf": [reference, beside]} if beside else reference
