"""Avro schemas in one spelling: the Parsing Canonical Form, with what it leaves out and readers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posthouse.contracts.normal import canonical
from posthouse.contracts.schema import Schema
from posthouse.errors import ConfigurationError

PRIMITIVES = frozenset(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
_NAMED = ("record", "enum", "fixed", "error")
_PROSE = frozenset(("doc", "namespace"))


def avro_schema(document: object) -> Schema:
    """The schema that an Avro document means: full names, no prose, sorted attributes.

    Unlike Avro's own Parsing Canonical Form it keeps defaults, aliases and logical types: they decide what a reader
    sees. Raises ConfigurationError when it is no Avro schema.
    """
    try:
        return Schema("avro", canonical(_canonical(document, "", set())))
    except RecursionError:
        raise ConfigurationError("the schema is nested too deeply") from None


def _canonical(node: object, namespace: str, known: set[str]) -> object:
    if isinstance(node, str):
        return _reference(node, namespace, known)
    if isinstance(node, list):
        return [_canonical(branch, namespace, known) for branch in node]
    if not isinstance(node, Mapping) or "type" not in node:
        raise ConfigurationError(f"an Avro schema is a name, a list or an object with a type, not {str(node)[:80]!r}")
    kind = node["type"]
    if kind in _NAMED:
        return _named(node, namespace, known)
    if kind == "array" or kind == "map":
        inner = "items" if kind == "array" else "values"
        return {**_plain(node), inner: _canonical(node.get(inner), namespace, known)}
    if not isinstance(kind, str) or set(node) - {"doc"} == {"type"}:
        return _canonical(kind, namespace, known)
    return {**_plain(node), "type": _canonical(kind, namespace, known)}


def _named(node: Mapping[str, object], namespace: str, known: set[str]) -> dict[str, object]:
    name = node.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"an Avro {node['type']} needs a name")
    full = _full(name, str(node.get("namespace", namespace)))
    inside = full.rpartition(".")[0]
    known.add(full)
    made = {**_plain(node), "name": full}
    if isinstance(aliases := node.get("aliases"), list):
        made["aliases"] = sorted(_full(str(alias), inside) for alias in aliases)
    if isinstance(fields := node.get("fields"), Sequence):
        made["fields"] = [_field(field, inside, known) for field in fields]
    return made


def _field(field: object, namespace: str, known: set[str]) -> dict[str, object]:
    if not isinstance(field, Mapping) or "name" not in field or "type" not in field:
        raise ConfigurationError(f"a field of an Avro record needs a name and a type, not {str(field)[:80]!r}")
    return {**_plain(field), "type": _canonical(field["type"], namespace, known)}


def _plain(node: Mapping[str, object]) -> dict[str, object]:
    """Attributes that count. Those with two underscores are a library's own marks."""
    return {name: value for name, value in node.items() if name not in _PROSE and not name.startswith("__")}


def _reference(name: str, namespace: str, known: set[str]) -> str:
    if name in PRIMITIVES:
        return name
    for full in (_full(name, namespace), name):
        if full in known:
            return full
    raise ConfigurationError(f"the Avro schema names {name!r}, which it does not define")


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
