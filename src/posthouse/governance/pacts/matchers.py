"""Matchers: what a pact of another maker asks for, as a JSON Schema.

A value without a matcher is taken for an example of its type. Pact itself would compare it letter by letter, in a state that
the provider is put into; a schema knows no states. That the producer may send the very value is checked beside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean

Path = tuple[str, ...]
Rules = Mapping[Path, Mapping[str, object]]
"""One matcher by place; an item of a list is `*`."""

_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(?:'([^']*)'|\"([^\"]*)\"|(\d+|\*))\]|\.(\*)")
_SCHEMAS: Mapping[str, Mapping[str, object]] = {
    "integer": {"type": "integer"},
    "decimal": {"type": "number"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "date": {"type": "string"},
    "time": {"type": "string"},
    "timestamp": {"type": "string"},
    "datetime": {"type": "string"},
}
_BY_VALUE = ("type", "regex", "equality", "include")


def rules_in(body: Mapping[str, object]) -> Rules:
    """The matchers of a pact's `matchingRules.body`. Raises ConfigurationError for what is not understood: guessing would
    let a breach pass."""
    return {_path(place): _matcher(place, said) for place, said in body.items()}


def schema_of(value: object, rules: Rules, at: Path = ()) -> dict[str, object]:
    """What is asked of a value like this one."""
    rule = rules.get(at, {})
    kind = rule.get("match", "type")
    if isinstance(kind, str) and kind in _SCHEMAS:
        return dict(_SCHEMAS[kind])
    if kind == "equality":
        return {"const": value}
    if kind == "regex":
        return {"type": "string", "pattern": str(rule.get("regex", ""))}
    if kind == "include":
        return {"type": "string", "pattern": re.escape(str(rule.get("value", "")))}
    return _by_type(value, rules, at)


def literal(value: object, rules: Rules, at: Path = ()) -> object:
    """The part of a value that is meant as it stands: what has no matcher, at its own place or around it. UNSET where that is
    nothing."""
    if at in rules:
        return value if rules[at].get("match") == "equality" else msgspec.UNSET
    if isinstance(value, dict):
        parts = {name: literal(part, rules, (*at, name)) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part is not msgspec.UNSET}
    if any(place[: len(at)] == at for place in rules):
        return msgspec.UNSET
    return value


def _by_type(value: object, rules: Rules, at: Path) -> dict[str, object]:
    if isinstance(value, dict):
        properties = {name: schema_of(part, rules, (*at, name)) for name, part in value.items()}
        return {"type": "object", "properties": properties, "required": sorted(properties)}
    if isinstance(value, list):
        items = {"items": schema_of(value[0], rules, (*at, "*"))} if value else {}
        limits = {
            name: rules[at][word] for word, name in (("min", "minItems"), ("max", "maxItems")) if _has(rules, at, word)
        }
        return {"type": "array", **items, **limits}
    if value is None:
        return {"type": "null"}
    return {"type": "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"}


def _has(rules: Rules, at: Path, word: str) -> bool:
    return isinstance(rules.get(at, {}).get(word), int)


def _matcher(place: str, said: object) -> Mapping[str, object]:
    matchers = said.get("matchers") if isinstance(said, dict) else None
    if not isinstance(matchers, list) or len(matchers) != 1 or not isinstance(matchers[0], dict):
        raise ConfigurationError(f"{place}: one matcher is understood at each place, not {said!r}")
    matcher: dict[str, object] = matchers[0]
    kind = str(matcher.get("match", "type"))
    if kind not in _SCHEMAS and kind not in _BY_VALUE:
        raise ConfigurationError(
            f"{place}: the matcher {kind!r} is not known.{did_you_mean(kind, (*_SCHEMAS, *_BY_VALUE))}"
        )
    return matcher


def _path(text: str) -> Path:
    """`$.items[*].price` as its steps."""
    steps: list[str] = []
    position = 1
    while text.startswith("$") and position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            break
        name = next(part for part in found.groups() if part is not None)
        steps.append("*" if found[4] or found[5] else name)
        position = found.end()
    if not text.startswith("$") or position < len(text):
        raise ConfigurationError(f"{text!r} is not a place in a message, as in $.items[*].price")
    return tuple(steps)
