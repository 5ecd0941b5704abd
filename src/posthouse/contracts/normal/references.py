"""References inside a JSON Schema: replaced by what they mean, so that the names of definitions do not matter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from posthouse.contracts.normal.keywords import ASSERTING, DIALECT, Node, children, mapped, words

MAX_NODES = 50_000
"""A document that would grow past so many nodes keeps its definitions as they are."""

ROOT = "#"
_CONTAINERS = ("$defs", "definitions")
_HEAD = (*_CONTAINERS, "$id", "$schema")
_STRANGE = words(
    "$id $anchor $dynamicRef $dynamicAnchor $recursiveRef $recursiveAnchor $vocabulary unevaluatedItems "
    "unevaluatedProperties dependencies additionalItems"
)
"""Keywords that look beyond their own schema, or mean something else in other dialects."""


class Expanded(NamedTuple):
    """`root` refers to itself as `#`, and to `definitions`, which are those that contain themselves, by their pointers."""

    root: Node
    definitions: Mapping[str, Node]


class _TooLarge(Exception):
    pass


def expanded(document: Mapping[str, object]) -> Expanded | None:
    """The document with its references replaced by what they refer to.

    None when that cannot be done here: another dialect than 2020-12, references to other places than definitions, by
    anchors or to other documents, keywords that look beyond their own schema, or a result that is too large.
    """
    definitions = _definitions(document)
    root: Node = {name: value for name, value in document.items() if name not in _HEAD}
    if str(document.get("$schema", DIALECT)).rstrip("#") != DIALECT:
        return None
    if not all(_is_plain(node, definitions) for node in (root, *definitions.values())):
        return None
    aliases: set[str] = {ROOT}
    while (name := _alias(root)) is not None:
        if name in aliases:
            return None
        aliases.add(name)
        root = _joined(definitions[name], _without_reference(root))
    try:
        return _Expansion(definitions, aliases).run(root)
    except _TooLarge:
        return None


class _Expansion:
    def __init__(self, definitions: Mapping[str, Node], aliases: Collection[str]) -> None:
        self._definitions = definitions
        self._aliases = aliases
        self._recursive = _on_cycles({name: set(_names_in(node)) for name, node in definitions.items()}, aliases)
        self._used: list[str] = []
        self._nodes = 0

    def run(self, root: Node) -> Expanded:
        made = self._of(root)
        kept: dict[str, Node] = {}
        while self._used:
            name = self._used.pop()
            if name not in kept:
                kept[name] = self._of(self._definitions[name])
        return Expanded(made, kept)

    def _of(self, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _TooLarge
        name = None if isinstance(node, bool) else _reference(node)
        if name is None:
            return mapped(node, self._of)
        rest = mapped(_without_reference(node), self._of)
        if name in self._aliases:
            return _joined({"$ref": ROOT}, rest)
        if name in self._recursive:
            self._used.append(name)
            return _joined({"$ref": name}, rest)
        return _joined(self._of(self._definitions[name]), rest)


def rename(node: Node, names: Mapping[str, str]) -> Node:
    """The schema with its references under other names."""
    if isinstance(node, bool):
        return node
    changed = mapped(node, lambda child: rename(child, names))
    new = names.get(_reference(node) or "")
    return {**changed, "$ref": new} if new and isinstance(changed, dict) else changed


def references_in(node: Node) -> Iterator[str]:
    """Every reference, in the order of sorted names."""
    if isinstance(node, bool):
        return
    if (name := _reference(node)) is not None:
        yield name
    for child in children(dict(sorted(node.items()))):
        yield from references_in(child)


def _definitions(document: Mapping[str, object]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for container in _CONTAINERS:
        inside = document.get(container)
        if isinstance(inside, dict):
            found.update(
                {f"#/{container}/{name}": node for name, node in inside.items() if isinstance(node, bool | dict)}
            )
    return found


def _is_plain(node: Node, definitions: Mapping[str, Node]) -> bool:
    if isinstance(node, bool):
        return True
    name = _reference(node)
    if name is not None and name != ROOT and name not in definitions:
        return False
    if _STRANGE & node.keys() or any(container in node for container in _CONTAINERS):
        return False
    return all(_is_plain(child, definitions) for child in children(node))


def _names_in(node: Node) -> Iterator[str]:
    if isinstance(node, dict):
        if (name := _reference(node)) is not None:
            yield name
        for child in children(node):
            yield from _names_in(child)


def _on_cycles(graph: Mapping[str, set[str]], cut: Collection[str]) -> set[str]:
    """The names that lead back to themselves without passing one of `cut`."""
    reached = {name: targets - set(cut) for name, targets in graph.items() if name not in cut}
    for middle in list(reached):
        for targets in reached.values():
            if middle in targets:
                targets |= reached[middle]
    return {name for name, targets in reached.items() if name in targets}


def _alias(root: Node) -> str | None:
    """What the root stands for when it is a reference and nothing else that can refuse a value."""
    if isinstance(root, bool) or (root.keys() & ASSERTING) != {"$ref"}:
        return None
    return _reference(root)


def _reference(node: Mapping[str, object]) -> str | None:
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return None
    return unquote(reference).replace("~1", "/").replace("~0", "~")


def _without_reference(node: Node) -> Node:
    return node if isinstance(node, bool) else {name: value for name, value in node.items() if name != "$ref"}


def _joined(target: Node, rest: Node) -> Node:
    """Both must hold. Keywords that refuse nothing may stand beside those that do."""
    if isinstance(rest, bool) or not rest:
        return target
    if isinstance(target, dict) and not rest.keys() & ASSERTING:
        return {**target, **rest}
    others = rest.get("allOf")
    return {**rest, "allOf": [target, *(others if isinstance(others, list) else ())]}
