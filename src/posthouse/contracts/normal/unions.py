"""Unions in a JSON Schema: branches that are split, merged and sorted, so that each union has one spelling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from posthouse.contracts.normal.keywords import BOUND, Node
from posthouse.contracts.normal.values import canonical, exactly, type_of

Branch = dict[str, object]


def united(branches: Sequence[object]) -> Node:
    """The schema that accepts what any of the branches, all in normal form, accepts."""
    if any(branch == {} for branch in branches):
        return True
    single = list(_split(_flat(branches)))
    merged = _with_one_enum(single)
    once = list({canonical(branch): branch for branch in merged}.values())
    combined = _combined(_without_contained(once))
    if not combined:
        return False
    if len(combined) == 1:
        return combined[0]
    return {"anyOf": sorted(combined, key=_place)}


def apart(one: object, other: object) -> bool:
    """Whether no value can fit both: other types, other values, or another value of a property that both require."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one is False or other is False
    if not _kinds(one) & _kinds(other):
        return True
    return any(not mine & theirs for mine, theirs in _listed_in_both(one, other))


def _flat(branches: Iterable[object]) -> Iterator[Branch]:
    for branch in branches:
        if isinstance(branch, dict):
            if branch.keys() == {"anyOf"} and isinstance(inner := branch["anyOf"], list):
                yield from _flat(inner)
            else:
                yield branch


def _split(branches: Iterable[Branch]) -> Iterator[Branch]:
    """One branch per type, where each keyword speaks of one type alone."""
    for branch in branches:
        kinds = branch.get("type")
        if not isinstance(kinds, list) or not _is_bound(branch, kinds):
            yield branch
            continue
        for kind in kinds:
            yield {"type": kind, **{name: branch[name] for name in branch if name in BOUND[kind]}}


def _is_bound(branch: Branch, kinds: Sequence[str]) -> bool:
    allowed = {"type"}.union(*(BOUND.get(kind, ()) for kind in kinds))
    return all(kind in BOUND for kind in kinds) and branch.keys() <= allowed


def _with_one_enum(branches: Sequence[Branch]) -> list[Branch]:
    """Values of all plain enumerations together; null joins them."""
    listed = [branch for branch in branches if branch.keys() == {"enum"}]
    if not listed:
        return list(branches)
    nulls = [branch for branch in branches if branch == {"type": "null"}]
    values = [value for branch in listed for value in _values(branch)] + ([None] if nulls else [])
    return [*(branch for branch in branches if branch not in listed and branch not in nulls), exactly(values)]


def _without_contained(branches: Sequence[Branch]) -> list[Branch]:
    """Whole numbers are numbers."""
    if {"type": "number"} in branches:
        return [b for b in branches if not (b.get("type") == "integer" and _is_bound(b, ["integer"]))]
    return list(branches)


def _combined(branches: Sequence[Branch]) -> list[Branch]:
    """Branches of different types, whose keywords do not touch each other, are one schema with a list of types."""
    simple = [b for b in branches if isinstance(kind := b.get("type"), str) and _is_bound(b, [kind])]
    groups: dict[str, list[Branch]] = {}
    for branch in simple:
        kind = str(branch["type"])
        groups.setdefault("number" if kind == "integer" else kind, []).append(branch)
    alone = [group[0] for group in groups.values() if len(group) == 1]
    if len(alone) < 2:
        return list(branches)
    together: Branch = {}
    for branch in alone:
        together |= branch
    together["type"] = sorted(str(branch["type"]) for branch in alone)
    return [*(branch for branch in branches if branch not in alone), together]


def _place(branch: Branch) -> tuple[str, str]:
    """The order of branches must not depend on the names of definitions."""
    text = canonical(branch)
    return canonical(_masked(branch)), text


def _masked(value: object) -> object:
    if isinstance(value, dict):
        return {name: "" if name == "$ref" else _masked(inner) for name, inner in value.items()}
    return [_masked(inner) for inner in value] if isinstance(value, list) else value


def _values(branch: Branch) -> list[object]:
    values = branch.get("enum")
    return values if isinstance(values, list) else []


def _kinds(branch: Branch) -> set[str]:
    """The types that a branch accepts, as far as it says; integers are numbers."""
    kinds = branch.get("type")
    if "enum" in branch:
        kinds = [type_of(value) for value in _values(branch)]
    elif not isinstance(kinds, list):
        kinds = list(BOUND) if kinds is None else [kinds]
    return {"number" if kind == "integer" else str(kind) for kind in kinds}


def _listed_in_both(one: Branch, other: Branch) -> Iterator[tuple[set[str], set[str]]]:
    """The values that both list, for themselves or for a property that both require."""
    if "enum" in one and "enum" in other:
        yield _texts(one), _texts(other)
    if one.get("type") == "object" == other.get("type"):
        mine, theirs = _required(one), _required(other)
        for name in mine.keys() & theirs.keys():
            yield _texts(mine[name]), _texts(theirs[name])


def _required(branch: Branch) -> dict[str, Branch]:
    """The properties that must be there with one of some values."""
    required, properties = branch.get("required"), branch.get("properties")
    if not isinstance(required, list) or not isinstance(properties, dict):
        return {}
    found = {name: properties.get(name) for name in required}
    return {name: node for name, node in found.items() if isinstance(node, dict) and "enum" in node}


def _texts(branch: Branch) -> set[str]:
    return {canonical(value) for value in _values(branch)}
