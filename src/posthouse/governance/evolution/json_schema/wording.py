"""Gaps in words: the name of the rule, what happened, and the way out."""

from __future__ import annotations

import json
from dataclasses import dataclass

from posthouse.governance.evolution.finding import Reader
from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.explaining import Gap
from posthouse.governance.evolution.json_schema.nodes import Atom, Kind
from posthouse.governance.evolution.json_schema.scalars import plain

MOST_VALUES = 6


@dataclass(frozen=True)
class Words:
    """What is said of a gap."""

    rule: str
    sentence: str
    way_out: str


def words_for(gap: Gap, reader: Reader) -> Words:
    """The words for one reader. A new reader asks for more than before; an old one for what is no longer promised."""
    new = reader is Reader.NEW
    goal = gap.goal
    if gap.open_content:
        return _open_content(gap, new)
    match goal:
        case n.Required():
            return _required(goal.name, new)
        case n.Others() | n.PatternProperty() | n.Property():
            return _refused(gap, new)
        case n.Kinds():
            return _type(gap, goal, new)
        case None:
            return _whole(gap, new)
        case n.Values():
            return _listed(gap, goal, new)
        case n.Opaque():
            return Words(
                "keyword-unknown",
                f"`{goal.keyword}` is there on one side only, or says something else; what it means is not known here.",
                "Leave it as it was.",
            )
        case _:
            return _constraint(goal, new)


def _required(name: str, new: bool) -> Words:
    if new:
        return Words(
            "required-added",
            f"{_quoted(name)} is required now; old data may lack it.",
            "Leave it optional with a default, or publish a new version of the event.",
        )
    return Words(
        "required-removed",
        f"{_quoted(name)} is no longer required; old readers cannot do without it.",
        "Keep it required, and send a neutral value; or publish a new version of the event.",
    )


def _open_content(gap: Gap, new: bool) -> Words:
    name = _quoted(gap.member or "a property")
    if new:
        return Words(
            "property-added-to-open-content",
            f"{name} has a schema now. The old one took any value under this name, as it takes unknown properties.",
            "Close the object (`additionalProperties: false`) a version earlier, or judge by ADDITIVE if producers send only "
            "what they declare.",
        )
    return Words(
        "property-removed-from-open-content",
        f"{name} is no longer declared, and unknown properties are taken: new data may hold anything under this name.",
        "Keep the declaration, or publish a new version of the event.",
    )


def _refused(gap: Gap, new: bool) -> Words:
    if gap.member is None or gap.steps[-1].shown == "*":
        if new:
            return Words(
                "content-closed",
                "Unknown properties are refused now; old data may hold some.",
                "Keep the object open, or publish a new version of the event.",
            )
        return Words(
            "content-opened",
            "Unknown properties are taken now; old readers refuse them.",
            "Keep `additionalProperties: false`, or let old readers ignore what they do not know first.",
        )
    name = _quoted(gap.member)
    if new:
        return Words(
            "property-removed",
            f"{name} is refused now; old data may hold it.",
            "Keep it as optional and deprecated, or publish a new version of the event.",
        )
    return Words(
        "property-added",
        f"{name} is new, and old readers refuse properties that they do not know.",
        "Let readers ignore unknown properties first (no `additionalProperties: false`), or publish a new version of the event.",
    )


def _type(gap: Gap, goal: n.Kinds, new: bool) -> Words:
    before, now = (gap.kinds, goal.kinds) if new else (goal.kinds, gap.kinds)
    change = "changed" if not gap.kinds & goal.kinds else "narrowed" if new else "widened"
    who = "old data may be other" if new else "old readers take only what was"
    return Words(
        f"type-{change}",
        f"The type was {_kinds(before)} and is {_kinds(now)}; {who}.",
        "Add a field of the new type beside it, or publish a new version of the event.",
    )


def _whole(gap: Gap, new: bool) -> Words:
    if not gap.right:
        return Words(
            "value-refused",
            f"No value is taken here {'any more' if new else 'by old readers'}.",
            "Keep the old schema, or publish a new version of the event.",
        )
    if new:
        return Words(
            "union-narrowed",
            "No branch of the new schema takes all that the old one took.",
            "Keep a branch for every old shape, or publish a new version of the event.",
        )
    return Words(
        "union-widened",
        "No branch of the old schema takes all that the new one allows.",
        "Keep to the old shapes, or publish a new version of the event.",
    )


def _listed(gap: Gap, goal: n.Values, new: bool) -> Words:
    """Whether there was a list before, and is one now, makes a difference."""
    listed = any(isinstance(node, n.Values) for node in gap.left)
    if new:
        rule = "values-narrowed" if listed else "values-added"
        sentence = f"It must now be one of {_values(goal)}; old data may hold another value."
        way_out = "Keep the old values, or publish a new version of the event."
    else:
        rule = "values-widened" if listed else "values-removed"
        sentence = f"It may now be another value than {_values(goal)}; old readers know only these."
        way_out = "Send new values only when every reader knows them, or publish a new version of the event."
    return Words(rule, sentence, way_out)


def _constraint(goal: Atom, new: bool) -> Words:
    subject, meaning = _meaning(goal)
    if new:
        sentence = f"It must now be {meaning}; old data need not be."
        way_out = "Keep the old limit, or publish a new version of the event."
    else:
        sentence = f"It need no longer be {meaning}; old readers still ask for that."
        way_out = "Keep the old limit until every reader takes more, or publish a new version of the event."
    return Words(f"{subject}-{'narrowed' if new else 'widened'}", sentence, way_out)


def _meaning(goal: Atom) -> tuple[str, str]:
    match goal:
        case n.AtLeast():
            return "range", f"{'more than' if goal.open else 'at least'} {plain((n.INTEGER, goal.bound))}"
        case n.AtMost():
            return "range", f"{'less than' if goal.open else 'at most'} {plain((n.INTEGER, goal.bound))}"
        case n.MultipleOf():
            return "step", f"a multiple of {plain((n.INTEGER, goal.step))}"
        case n.MinLength():
            return "length", f"{goal.length} or more characters long"
        case n.MaxLength():
            return "length", f"{goal.length} or fewer characters long"
        case n.Pattern():
            return "pattern", f"a text that matches {goal.pattern}"
        case n.Format():
            return "format", f"of the format {goal.format}"
        case n.MinItems():
            return "count", f"an array of {goal.count} or more items"
        case n.MaxItems():
            return "count", f"an array of {goal.count} or fewer items"
        case n.MinProperties():
            return "count", f"an object of {goal.count} or more properties"
        case n.MaxProperties():
            return "count", f"an object of {goal.count} or fewer properties"
        case n.Unique():
            return "unique", "an array without repeated items"
        case n.ContainsAtLeast():
            return "contains", f"an array with {goal.count} or more items of the sort that `contains` says"
        case n.ContainsAtMost():
            return "contains", f"an array with {goal.count} or fewer items of the sort that `contains` says"
        case n.Names():
            return "names", "an object whose property names fit `propertyNames`"
        case _:
            return "schema", "what the schema says"


def _values(goal: n.Values) -> str:
    shown = sorted(json.dumps(plain(value), ensure_ascii=False) for value in goal.scalars)
    more = f" and {len(shown) - MOST_VALUES} more" if len(shown) > MOST_VALUES else ""
    return ", ".join(shown[:MOST_VALUES]) + more


def _kinds(kinds: frozenset[Kind]) -> str:
    if kinds == n.KINDS:
        return "anything"
    names = {"number" if kind == n.FRACTION else kind for kind in kinds}
    return " or ".join(sorted(names - ({n.INTEGER} if "number" in names else set())))


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
