"""The fields that a schema declares, by their path."""

from __future__ import annotations

from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.nodes import Node, Pool

Path = tuple[str, ...]
Fields = dict[Path, frozenset[Node]]
"""What is declared for each path; an item of an array is `*`."""

DEEPEST = 20
MOST_FIELDS = 20_000


def fields_of(pool: Pool, node: Node) -> Fields:
    """All fields, through unions and references; a recursive schema is walked once round."""
    found: Fields = {}
    waiting: list[tuple[Path, frozenset[Node], frozenset[Node]]] = [((), frozenset((node,)), frozenset())]
    while waiting and len(found) < MOST_FIELDS:
        path, nodes, above = waiting.pop()
        below: dict[str, set[Node]] = {}
        for part in _in_place(pool, nodes - above):
            if isinstance(part, n.Property):
                below.setdefault(part.name, set()).add(part.value)
            elif isinstance(part, (n.Item, n.Rest)):
                below.setdefault("*", set()).add(part.value)
        for name, values in below.items():
            inner = (*path, name)
            found[inner] = frozenset(values)
            if len(inner) < DEEPEST:
                waiting.append((inner, frozenset(values), above | nodes))
    return found


def _in_place(pool: Pool, nodes: frozenset[Node]) -> set[Node]:
    """Every atom that speaks of the value itself, whether or not it always applies."""
    seen: set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        match node:
            case n.All() | n.Some() | n.Exactly():
                waiting += node.parts
            case n.Link():
                waiting.append(pool.follow(node))
    return seen
