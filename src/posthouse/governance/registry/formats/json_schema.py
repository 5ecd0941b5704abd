"""JsonFormat: JSON Schemas in the registry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode, Verdict
from posthouse.governance.evolution.json_schema import compare
from posthouse.governance.evolution.json_schema.document import Document, Json, check_depth
from posthouse.governance.registry.format import Import, Reading

OLD_DRAFTS = ("draft-06", "draft-07")
"""They keep definitions under `definitions`."""


class JsonFormat:
    """Compiled: the schema with its imports among its definitions, each under the name by which it is referred to."""

    name = "JSON"

    def read(self, text: str, imports: Sequence[Import]) -> Reading:
        root = _loaded(text, "the schema")
        bundle = _written(_bundled(root, imports))
        Document(bundle, "the schema")
        normal = _written(root, in_order=True)
        return Reading(
            text=text, canonical=_written(root), normal_text=normal, normal=normal, compiled=bundle.encode("utf-8")
        )

    def compare(self, old: bytes, new: bytes, mode: Mode) -> Verdict:
        return compare(old, new, mode)

    def shown(self, text: str, compiled: bytes, style: str) -> str:
        return text


def _loaded(text: str, name: str) -> Json:
    try:
        text.encode()
        found: Json = json.loads(text, parse_float=Decimal, object_pairs_hook=_unique)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise SchemaError(f"{name}: not JSON: {error}") from error
    check_depth(found, name)
    return found


def _unique(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _bundled(root: Json, imports: Sequence[Import]) -> Json:
    if not imports:
        return root
    if not isinstance(root, dict):
        raise SchemaError("the schema is true or false, and yet it has references")
    keyword = "definitions" if any(draft in str(root.get("$schema")) for draft in OLD_DRAFTS) else "$defs"
    kept = root.get(keyword, {})
    if not isinstance(kept, dict):
        raise SchemaError(f"the schema: {keyword} is an object")
    added: dict[str, Json] = {}
    for item in imports:
        part = _loaded(item.text, f"the reference {item.name!r}")
        if isinstance(part, dict):
            part = {"$id": item.name, **{name: value for name, value in part.items() if name not in ("$id", "$schema")}}
        if item.name in kept:
            raise SchemaError(f"the schema: {keyword} has {item.name!r}, which is also the name of a reference")
        added[item.name] = part
    return {**root, keyword: {**kept, **added}}


def _written(value: Json, *, in_order: bool = False) -> str:
    """Compact JSON that keeps every digit."""
    match value:
        case Decimal():
            return str(value)
        case dict():
            names = sorted(value) if in_order else list(value)
            return f"{{{','.join(f'{_quoted(name)}:{_written(value[name], in_order=in_order)}' for name in names)}}}"
        case list():
            return f"[{','.join(_written(item, in_order=in_order) for item in value)}]"
        case _:
            return _quoted(value)


def _quoted(value: bool | int | str | None) -> str:
    return json.dumps(value, ensure_ascii=False)
