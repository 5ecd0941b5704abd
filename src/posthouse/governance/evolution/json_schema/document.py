"""A JSON Schema document that is safe to work on: not too large, not too deep, of a known draft, valid, and closed in itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema_rs

from posthouse.errors import SchemaError, did_you_mean

Json = None | bool | int | Decimal | str | list["Json"] | dict[str, "Json"]

MOST_BYTES = 1_000_000
DEEPEST = 100
LARGEST_EXPONENT = 300

DRAFTS = {
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 19,
    "https://json-schema.org/draft/2020-12/schema": 20,
}
VALIDATORS: dict[int, type[jsonschema_rs.Validator]] = {
    6: jsonschema_rs.Draft6Validator,
    7: jsonschema_rs.Draft7Validator,
    19: jsonschema_rs.Draft201909Validator,
    20: jsonschema_rs.Draft202012Validator,
}

MAPS_OF_SCHEMAS = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)
LISTS_OF_SCHEMAS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems", "items"))
SCHEMAS = frozenset(
    (
        "not", "if", "then", "else", "items", "additionalItems", "additionalProperties", "unevaluatedProperties",
        "unevaluatedItems", "propertyNames", "contains", "contentSchema",
    )
)  # fmt: skip

NESTING = MAPS_OF_SCHEMAS | LISTS_OF_SCHEMAS | SCHEMAS | {"$ref"}
"""A schema without any of these is a leaf."""
_NAMING = frozenset(("$id", "$anchor", "$dynamicAnchor"))
_WORTH_A_PLACE = NESTING | _NAMING


class Place(NamedTuple):
    """A schema inside a document. `base` is the URI that references in it are relative to."""

    pointer: str
    schema: Json
    base: str


class Document:
    """One schema text, read and checked. Raises SchemaError with what is wrong; `name` stands in the message."""

    def __init__(self, text: str | bytes, name: str) -> None:
        self.name = name
        self.root = _read(text, name)
        self.draft = _draft(self.root, name)
        self.validator = _validator(text, self.draft, name)
        self._places: dict[str, Place] = {}
        self._anchors: dict[str, Place] = {}
        self._resolved: dict[tuple[str, str], Place] = {}
        self._collect(Place("", self.root, ""))

    def places(self) -> list[Place]:
        """Every schema that has schemas in it, or a name."""
        return list(self._places.values())

    def place(self, pointer: str) -> Place:
        """The schema at a pointer of the document."""
        found = self._places.get(pointer) or self._within(self._places[""], pointer)
        if found is None:
            raise SchemaError(f"{self.name}: there is no schema at {pointer}")
        return found

    def resolve(self, reference: str, place: Place) -> Place:
        """The schema that a `$ref` means."""
        known = self._resolved.get((place.base, reference))
        if known is None:
            known = self._resolved[place.base, reference] = self._resolve(reference, place)
        return known

    def _resolve(self, reference: str, place: Place) -> Place:
        target = place.base + reference if reference.startswith("#") else urljoin(place.base, reference)
        whole, fragment = urldefrag(target)
        fragment = unquote(fragment)
        found = self._anchors.get(f"{whole}#{fragment}")
        if found is None and (fragment == "" or fragment.startswith("/")):
            start = self._anchors.get(f"{whole}#")
            found = self._within(start, fragment) if start is not None else None
        if found is None:
            raise SchemaError(
                f"{self.name}: {place.pointer or '/'} refers to {reference!r}, which is not in this document. "
                "References to other documents are not followed: bundle them under $defs first."
            )
        return found

    def _within(self, start: Place, fragment: str) -> Place | None:
        pointer = start.pointer + fragment
        if pointer in self._places:
            return self._places[pointer]
        node: Json = start.schema
        for part in fragment.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
        return Place(pointer, node, start.base) if isinstance(node, (dict, bool)) else None

    def _collect(self, root: Place) -> None:
        """Schemas with schemas in them by their pointer, and those with an `$id` or an anchor by that."""
        waiting = [root]
        while waiting:
            place = waiting.pop()
            schema = place.schema
            if isinstance(schema, dict):
                place = self._named(place, schema)
                waiting += [
                    Place(f"{place.pointer}/{step}", part, place.base)
                    for step, part in _schemas_inside(schema)
                    if isinstance(part, dict) and not _WORTH_A_PLACE.isdisjoint(part)
                ]
            self._places[place.pointer] = place
        self._anchors["#"] = self._places[""]

    def _named(self, place: Place, schema: dict[str, Json]) -> Place:
        if _NAMING.isdisjoint(schema):
            return place
        own = schema.get("$id")
        if isinstance(own, str) and not ("$ref" in schema and self.draft <= 7):
            whole, fragment = urldefrag(urljoin(place.base, own))
            if fragment and self.draft <= 7:
                self._anchors[f"{urldefrag(place.base)[0]}#{fragment}"] = place
            if whole and not own.startswith("#"):
                place = Place(place.pointer, schema, whole)
                self._anchors[f"{whole}#"] = place
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str) and self.draft >= 19:
                self._anchors[f"{place.base}#{anchor}"] = place
        return place


def _schemas_inside(schema: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    for keyword, value in schema.items():
        if keyword in MAPS_OF_SCHEMAS and isinstance(value, dict):
            for name, part in value.items():
                if isinstance(part, (dict, bool)):
                    yield f"{keyword}/{escaped(name)}", part
        elif keyword in LISTS_OF_SCHEMAS and isinstance(value, list):
            for index, part in enumerate(value):
                yield f"{keyword}/{index}", part
        elif keyword in SCHEMAS and isinstance(value, (dict, bool)):
            yield keyword, value


def escaped(name: str) -> str:
    """A name as a step of a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _read(text: str | bytes, name: str) -> Json:
    if len(text) > MOST_BYTES:
        raise SchemaError(f"{name}: {len(text):,} bytes; schemas of more than {MOST_BYTES:,} are not compared")
    try:
        root: Json = json.loads(text, parse_float=_number, parse_constant=_no_constant)
    except RecursionError:
        raise _too_deep(name) from None
    except (ValueError, InvalidOperation) as error:
        raise SchemaError(f"{name}: not JSON: {error}") from error
    check_depth(root, name)
    if not isinstance(root, (dict, bool)):
        raise SchemaError(f"{name}: a schema is an object, true or false, not {json.dumps(root, default=str)[:40]}")
    return root


def _number(text: str) -> Decimal:
    number = Decimal(text)
    if number and abs(number.adjusted()) > LARGEST_EXPONENT:
        raise ValueError(f"{text[:40]} is beyond what numbers of JSON can be relied on for")
    return number


def _no_constant(word: str) -> Json:
    raise ValueError(f"{word} is not a number of JSON")


def check_depth(root: Json, name: str) -> None:
    """Raises SchemaError for what nests too deep; whoever walks through a document may then call itself."""
    level: list[Json] = [root]
    for _ in range(DEEPEST):
        level = [part for node in level for part in _parts(node)]
        if not level:
            return
    raise _too_deep(name)


def _parts(node: Json) -> list[Json]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _too_deep(name: str) -> SchemaError:
    return SchemaError(f"{name}: nested deeper than {DEEPEST} levels; move the inner parts to $defs and refer to them")


def _draft(root: Json, name: str) -> int:
    said = root.get("$schema") if isinstance(root, dict) else None
    if said is None:
        return 20
    draft = DRAFTS.get(said.removesuffix("#")) if isinstance(said, str) else None
    if draft is None:
        raise SchemaError(
            f"{name}: $schema {said!r} is not a draft that is known here.{did_you_mean(str(said), DRAFTS)}"
        )
    return draft


def validator_of(schema: dict[str, object] | bool, kind: type[jsonschema_rs.Validator]) -> jsonschema_rs.Validator:
    """A validator that asserts formats and fetches nothing. Raises what its maker raises.

    It uses the engine without backtracking where the patterns allow it: the other one takes too much for a match at times
    (`(?:ab)+a?(?:ab)+` in `ab`, with 0.60.3).
    """
    try:
        return kind(schema, validate_formats=True, offline=True, pattern_options=jsonschema_rs.RegexOptions())
    except jsonschema_rs.ValidationError:
        return kind(schema, validate_formats=True, offline=True)


def _validator(text: str | bytes, draft: int, name: str) -> jsonschema_rs.Validator:
    """The document as a validator that asserts formats; this also checks it against the draft's own schema."""
    plain = json.loads(text)
    try:
        return validator_of(plain, VALIDATORS[draft])
    except jsonschema_rs.ValidationError as error:
        where = "/" + "/".join(str(step) for step in error.instance_path)
        raise SchemaError(f"{name}: not a valid schema at {where}: {error.message}") from error
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaError(f"{name}: not a schema that can be used: {error}") from error
