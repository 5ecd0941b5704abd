"""Which properties and items a schema has an opinion on, through `$ref`, `allOf` and the like: what `unevaluated…` leaves out.

Some of it depends on the value (`anyOf`, `if`): then there is what is looked at always, and what may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from posthouse.errors import SchemaError
from posthouse.governance.evolution.json_schema.document import Document, Json, Place, escaped
from posthouse.governance.evolution.json_schema.nodes import Named

ALWAYS = ("allOf",)
AT_TIMES = ("anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")

_APPLICATORS = frozenset(("$ref", *ALWAYS, *AT_TIMES))


@dataclass
class Reach:
    """`whole`: everything is looked at. `maybe` None: it cannot be told what may be."""

    sure: Named
    maybe: Named | None
    whole: bool = False


@dataclass
class ItemReach:
    """The same for items: the first so many."""

    sure: int
    maybe: int | None
    whole: bool = False


def names_reached(document: Document, place: Place, besides: str = "", *, open_counts: bool = True) -> Reach:
    """The property names of an object that a schema looks at.

    `besides` is a keyword at the top that does not count; without `open_counts` neither does `additionalProperties: true`.
    """
    reach = Reach(Named(), Named())
    for schema, always, top in _in_place(document, place):
        if not isinstance(schema, dict):
            continue
        own = Named(
            frozenset(cast(dict[str, Json], schema.get("properties", {}))),
            frozenset(cast(dict[str, Json], schema.get("patternProperties", {}))),
        )
        reach.maybe = None if reach.maybe is None else reach.maybe | own
        reach.sure = reach.sure | own if always else reach.sure
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            counts = keyword in schema and (open_counts or not isinstance(schema[keyword], bool))
            if counts and not (top and keyword == besides):
                reach.maybe = None
                reach.whole |= always
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            reach.maybe = None
    return reach


def items_reached(document: Document, place: Place, besides: str = "") -> ItemReach:
    """The items of an array that a schema looks at."""
    reach = ItemReach(0, 0)
    for schema, always, top in _in_place(document, place):
        if not isinstance(schema, dict):
            continue
        prefix = schema.get("prefixItems" if document.draft >= 20 else "items")
        own = len(prefix) if isinstance(prefix, list) else 0
        reach.maybe = None if reach.maybe is None else max(reach.maybe, own)
        reach.sure = max(reach.sure, own) if always else reach.sure
        rest: list[str] = [keyword for keyword in ("items", "unevaluatedItems") if keyword in schema]
        if isinstance(schema.get("items"), list):
            rest.remove("items")
            rest += ["additionalItems"] if "additionalItems" in schema else []
        if any(not (top and keyword == besides) for keyword in rest):
            reach.maybe = None
            reach.whole |= always
        if "contains" in schema or "$dynamicRef" in schema or "$recursiveRef" in schema:
            reach.maybe = None
    return reach


def check_progress(document: Document) -> None:
    """Raises SchemaError when references lead in a circle that never reaches a value."""
    done: set[str] = set()
    for start in document.places():
        if not isinstance(start.schema, dict) or "$ref" not in start.schema:
            continue  # every circle goes through a reference
        trail: list[tuple[Place, list[Place]]] = [(start, _next(document, start))] if start.pointer not in done else []
        open_now = {start.pointer}
        while trail:
            place, following = trail[-1]
            if not following:
                trail.pop()
                open_now.discard(place.pointer)
                done.add(place.pointer)
                continue
            inner = following.pop()
            if inner.pointer in open_now:
                raise SchemaError(
                    f"{document.name}: {inner.pointer or '/'} refers to itself, and no value is ever reached in between"
                )
            if inner.pointer not in done:
                open_now.add(inner.pointer)
                trail.append((inner, _next(document, inner)))


def _next(document: Document, place: Place) -> list[Place]:
    if not isinstance(place.schema, dict):
        return []
    found = [inner for inner, _ in _applied(document, place, place.schema)]
    if isinstance(place.schema.get("not"), dict) and not (document.draft <= 7 and "$ref" in place.schema):
        found.append(document.place(f"{place.pointer}/not"))
    return found


def _in_place(document: Document, start: Place) -> list[tuple[Json, bool, bool]]:
    """The schemas that speak of the same value: the schema, whether it always applies, and whether it is the first."""
    found: list[tuple[Json, bool, bool]] = []
    waiting = [(start, True)]
    seen: set[tuple[str, bool]] = set()
    while waiting:
        place, always = waiting.pop()
        if (place.pointer, always) in seen:
            continue
        seen.add((place.pointer, always))
        found.append((place.schema, always, place.pointer == start.pointer))
        if isinstance(place.schema, dict):
            waiting += [(inner, always and sure) for inner, sure in _applied(document, place, place.schema)]
    return found


def _applied(document: Document, place: Place, schema: dict[str, Json]) -> list[tuple[Place, bool]]:
    found: list[tuple[Place, bool]] = []
    if _APPLICATORS.isdisjoint(schema):
        return found
    if isinstance(schema.get("$ref"), str):
        found.append((document.resolve(cast(str, schema["$ref"]), place), True))
        if document.draft <= 7:
            return found
    for keyword in (*ALWAYS, *AT_TIMES):
        value = schema.get(keyword)
        steps: list[str] = []
        if isinstance(value, list):
            steps = [f"{keyword}/{index}" for index in range(len(value))]
        elif isinstance(value, dict) and keyword in ("dependentSchemas", "dependencies"):
            steps = [f"{keyword}/{escaped(name)}" for name, part in value.items() if isinstance(part, (dict, bool))]
        elif isinstance(value, dict):
            steps = [keyword]
        for step in steps:
            found.append((document.place(f"{place.pointer}/{step}"), keyword in ALWAYS))
    return found
