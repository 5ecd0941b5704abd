"""A JSON Schema in its normal form: other spellings of the same meaning come out the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from posthouse.contracts.normal.keywords import ASSERTING, BOUND, PROSE, Node, mapped, words
from posthouse.contracts.normal.references import ROOT, expanded, references_in, rename
from posthouse.contracts.normal.unions import apart, united
from posthouse.contracts.normal.values import canonical, exactly, plain, type_of

ROUNDS = 10
"""One rule may make room for another: they are applied until nothing changes. Two rounds are the rule."""

_NORMAL_ALREADY = words("type format")
_WITH_NUMBERS = BOUND["number"] | words("default const enum")
_NOTHING_SAID: Mapping[str, Sequence[object]] = {
    "minLength": (0,),
    "minItems": (0,),
    "minProperties": (0,),
    "uniqueItems": (False,),
    "additionalProperties": (True, {}),
    "items": (True, {}),
    "propertyNames": (True, {}),
    "not": (False,),
    "properties": ({},),
    "patternProperties": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "required": ([],),
    "allOf": ([],),
    "default": ([], {}),
}
"""Values that say what holds anyway. An empty default is left out because not every library writes it."""


def normalised(document: Mapping[str, object] | bool) -> Node:
    """The normal form: what it accepts is what the document accepts, and doing it again changes nothing.

    Prose goes, references are followed, and nullable, const, enum, tuples and single unions have one spelling each. A
    document that cannot be followed (see `references.expanded`) only loses its prose.
    """
    before: Node = dict(document) if isinstance(document, Mapping) else document
    for _ in range(ROUNDS):
        after = _once(before)
        if canonical(after) == canonical(before):
            break
        before = after
    return after


def _once(document: Node) -> Node:
    if isinstance(document, bool):
        return {} if document else False
    found = expanded(document)
    if found is None:
        return _without_prose(document)
    root = _normal(found.root)
    definitions = {name: _normal(node) for name, node in found.definitions.items()}
    names = _names(root, definitions)
    if isinstance(root, bool) or not names:
        return root
    kept = {pointer.rpartition("/")[2]: rename(definitions[name], names) for name, pointer in names.items()}
    renamed = rename(root, names)
    return {**renamed, "$defs": kept} if isinstance(renamed, dict) else renamed


def fields_of(document: Mapping[str, object]) -> Sequence[str]:
    """The names of the properties that an object schema declares, in their order."""
    node: object = document
    definitions = document.get("$defs")
    while isinstance(node, Mapping) and isinstance(reference := node.get("$ref"), str):
        node = definitions.get(reference.rpartition("/")[2]) if isinstance(definitions, Mapping) else None
    properties = node.get("properties") if isinstance(node, Mapping) else None
    return tuple(properties) if isinstance(properties, Mapping) else ()


def _names(root: Node, definitions: Mapping[str, Node]) -> dict[str, str]:
    """New names for the definitions that are left, by where they are met first."""
    names: dict[str, str] = {}
    waiting = [root]
    while waiting:
        for name in references_in(waiting.pop(0)):
            if name != ROOT and name not in names:
                names[name] = f"#/$defs/d{len(names) + 1}"
                waiting.append(definitions[name])
    return names


def _normal(node: Node) -> Node:
    if isinstance(node, bool):
        return {} if node else False
    told = {name: value for name, value in node.items() if name not in PROSE}
    if told.keys() <= _NORMAL_ALREADY and isinstance(told.get("type"), str):
        return told  # most nodes of most schemas
    inner = mapped(told, _normal)
    for rule in RULES:
        if isinstance(inner, bool):
            return {} if inner else False
        inner = rule(inner)
    return inner


def _with_plain_numbers(node: dict[str, object]) -> Node:
    if not node.keys() & _WITH_NUMBERS:
        return node
    return {name: plain(value) if name in _WITH_NUMBERS else value for name, value in node.items()}


def _with_one_type(node: dict[str, object]) -> Node:
    kinds = node.get("type")
    if isinstance(kinds, list):
        left = sorted({kind for kind in kinds if isinstance(kind, str)} - ({"integer"} if "number" in kinds else set()))
        return {**node, "type": left[0] if len(left) == 1 else left}
    return node


def _with_values(node: dict[str, object]) -> Node:
    """`const` and `enum` become one sorted `enum`, which makes `type` needless."""
    values = node.get("enum")
    if "const" in node:
        only = node["const"]
        values = [only] if not isinstance(values, list) or canonical(only) in map(canonical, values) else []
    if not isinstance(values, list):
        return node
    allowed = _types(node.get("type"))
    rest = {name: value for name, value in node.items() if name not in ("const", "enum", "type")}
    fit = [value for value in values if allowed is None or _is_of(value, allowed)]
    return {**rest, **exactly(fit)} if fit else False


def _types(kinds: object) -> set[str] | None:
    if isinstance(kinds, str):
        return {kinds}
    return {kind for kind in kinds if isinstance(kind, str)} if isinstance(kinds, list) else None


def _is_of(value: object, allowed: set[str]) -> bool:
    kind = type_of(value)
    return kind in allowed or (kind == "integer" and "number" in allowed)


def _with_closed_tuples(node: dict[str, object]) -> Node:
    """No items after the first n, and at most n items, are the same."""
    first, most = node.get("prefixItems"), node.get("maxItems")
    if not isinstance(first, list) or not first:
        return {name: value for name, value in node.items() if name != "prefixItems"} if first == [] else node
    count = len(first)
    if node.get("items") is False:
        node = {**node, "maxItems": min(count, most) if isinstance(most, int) else count}
    if isinstance(limit := node.get("maxItems"), int) and limit <= count:
        return {name: value for name, value in node.items() if name != "items"}
    return node


def _without_needless(node: dict[str, object]) -> Node:
    kinds = _types(node.get("type"))
    if kinds is not None and node.keys() & (others := _bound_to_others(frozenset(kinds))):
        node = {name: value for name, value in node.items() if name not in others}
    if "if" not in node and node.keys() & {"then", "else"}:
        node = {name: value for name, value in node.items() if name not in ("then", "else")}
    if node.get("not") == {}:
        return False
    kept = {
        name: sorted(set(map(str, value))) if name == "required" and isinstance(value, list) else value
        for name, value in node.items()
    }
    return {name: value for name, value in kept.items() if not _says_nothing(name, value)}


@cache
def _bound_to_others(kinds: frozenset[str]) -> frozenset[str]:
    """Keywords that say something only about other types. A format may be a note for people on any type."""
    own = frozenset().union(*(BOUND[kind] for kind in kinds if kind in BOUND))
    return frozenset().union(*BOUND.values()) - own - {"format"}


def _says_nothing(name: str, value: object) -> bool:
    return any(type(value) is type(nothing) and value == nothing for nothing in _NOTHING_SAID.get(name, ()))


def _with_all(node: dict[str, object]) -> Node:
    """Members of `allOf` once each; a single one is said directly where nothing stands beside it."""
    every = node.get("allOf")
    if not isinstance(every, list):
        return node
    if any(member is False for member in every):
        return False
    members = {canonical(member): member for member in every if member != {}}
    rest = {name: value for name, value in node.items() if name != "allOf"}
    if not members:
        return rest
    if len(members) == 1 and not rest.keys() & ASSERTING:
        (only,) = members.values()
        return {**rest, **only}
    return {**rest, "allOf": [members[text] for text in sorted(members)]}


def _with_exclusive_choice(node: dict[str, object]) -> Node:
    """`oneOf` is `anyOf` where no value fits two of its members."""
    branches = node.get("oneOf")
    if not isinstance(branches, list) or "anyOf" in node:
        return node
    pairs = [(a, b) for number, a in enumerate(branches) for b in branches[number + 1 :]]
    if not all(apart(a, b) for a, b in pairs):
        return {**node, "oneOf": sorted(branches, key=canonical)}
    return {("anyOf" if name == "oneOf" else name): value for name, value in node.items()}


def _with_choice(node: dict[str, object]) -> Node:
    branches = node.get("anyOf")
    if not isinstance(branches, list):
        return node
    rest = {name: value for name, value in node.items() if name != "anyOf"}
    union = united(branches)
    if isinstance(union, bool):
        return rest if union else False
    if not union:
        return rest
    if not rest.keys() & ASSERTING:
        return {**rest, **union}
    if "anyOf" in union and len(union) == 1:
        return {**rest, **union}
    others = rest.get("allOf")
    return _with_all({**rest, "allOf": [union, *(others if isinstance(others, list) else ())]})


RULES: Sequence[Callable[[dict[str, object]], Node]] = (
    _with_plain_numbers,
    _with_one_type,
    _with_values,
    _with_closed_tuples,
    _without_needless,
    _with_exclusive_choice,
    _with_choice,
    _with_all,
)
"""In this order: each counts on what those before it have done."""


def _without_prose(node: Node) -> Node:
    changed = mapped(node, _without_prose)
    return changed if isinstance(changed, bool) else {k: v for k, v in changed.items() if k not in PROSE}
