"""Avro schemas written down in one way: names in full, attributes in one order, simple types as words."""

from __future__ import annotations

import json

from posthouse.governance.evolution.avro_types import PRIMITIVES

ORDER = ("type", "name", "doc", "aliases", "fields", "symbols", "items", "values", "size", "default", "order")
"""Avro's own attributes; others follow in their order."""


class AvroText:
    """Writes valid schemas. Names that were defined before may be used after; `in_order` sorts the other attributes too."""

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._names: set[str] = set()

    def written(self, schema: object) -> str:
        """The schema as compact JSON."""
        return json.dumps(self._rewritten(schema, ""), ensure_ascii=False, separators=(",", ":"))

    def _rewritten(self, schema: object, space: str) -> object:
        if isinstance(schema, list):
            return [self._rewritten(branch, space) for branch in schema]
        if isinstance(schema, dict):
            return self._object(schema, space)
        return self._full(str(schema), space)

    def _full(self, name: str, space: str) -> str:
        full = f"{space}.{name}" if space and "." not in name else name
        return full if name not in PRIMITIVES and full in self._names else name

    def _object(self, schema: dict[str, object], space: str) -> object:
        kind = schema["type"]
        if isinstance(kind, dict | list) or (isinstance(kind, str) and kind not in KINDS):
            return self._rewritten(kind, space)
        parts = dict(schema)
        if kind in NAMED:
            space = self._name(parts, space)
        for part in ("items", "values"):
            if part in parts and kind in ("array", "map"):
                parts[part] = self._rewritten(parts[part], space)
        if kind in ("record", "error") and isinstance(parts["fields"], list):
            parts["fields"] = [self._field(field, space) for field in parts["fields"]]
        return kind if parts.keys() == {"type"} else self._ordered(parts)

    def _name(self, parts: dict[str, object], space: str) -> str:
        """Put the full name in; the namespace for what is inside."""
        name, own = str(parts["name"]), parts.pop("namespace", space)
        full = name if "." in name or not own else f"{own}.{name}"
        self._names.add(full)
        inner = full.rpartition(".")[0]
        parts["name"] = full
        if isinstance(parts.get("aliases"), list):
            aliases = [str(alias) for alias in _list(parts["aliases"])]
            parts["aliases"] = [alias if "." in alias or not inner else f"{inner}.{alias}" for alias in aliases]
        return inner

    def _field(self, field: object, space: str) -> object:
        parts = dict(field) if isinstance(field, dict) else {}
        parts["type"] = self._rewritten(parts.get("type"), space)
        return self._ordered(parts)

    def _ordered(self, parts: dict[str, object]) -> dict[str, object]:
        known = [name for name in ORDER if name in parts]
        others = [name for name in parts if name not in ORDER]
        return {name: parts[name] for name in known + (sorted(others) if self._in_order else others)}


NAMED = ("record", "error", "enum", "fixed")
KINDS = (*PRIMITIVES, *NAMED, "array", "map")


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
