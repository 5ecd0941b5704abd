"""Random JSON Schemas of all keywords, small changes to them, and random values of the same small world."""

from __future__ import annotations

import copy
from random import Random

Schema = dict[str, object] | bool

NAMES = ("a", "b", "ab", "c1")
PATTERNS = ("^a", "b$", "^[a-c]+$", "^a{1,2}b?$", "[0-9]", "^.*$", "a|b", "^(?!a)")
FORMATS = ("date", "uuid", "email", "uri", "uri-reference", "x-own")
TEXTS = ("", "a", "b", "ab", "aab", "abc", "c1", "1", "2026-01-31", "a@example.org", "https://example.org/", "a\r", "é")
NUMBERS = (-2, -1, -0.5, 0, 0.5, 1, 1.0, 1.5, 2, 3, 4, 5, 6, 10)
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
SCALARS: tuple[object, ...] = (None, True, False, *NUMBERS, *TEXTS)


DRAFTS = {
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    19: "https://json-schema.org/draft/2019-09/schema",
    20: "https://json-schema.org/draft/2020-12/schema",
}


class Chance:
    """A source of schemas and values; the same seed gives the same."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.draft = self._random.choice((6, 7, 7, 19, 19, 20, 20, 20, 20, 20))
        self.defs = "definitions" if self.draft <= 7 else "$defs"

    def pair(self) -> tuple[dict[str, object], dict[str, object]]:
        """A schema and a changed one, or now and then two that have nothing to do with each other."""
        first = self._document()
        second = self._document() if self._random.random() < 0.1 else copy.deepcopy(first)
        for _ in range(self._random.choice((1, 1, 2, 3))):
            self._change(second)
        return first, second

    def value(self, depth: int = 3) -> object:
        """Any value of this world."""
        roll = self._random.random()
        if depth and roll < 0.35:
            return {name: self.value(depth - 1) for name in NAMES if self._random.random() < 0.5}
        if depth and roll < 0.5:
            return [self.value(depth - 1) for _ in range(self._random.randrange(4))]
        return self._random.choice(SCALARS)

    def altered(self, value: object) -> object:
        """The value with something changed somewhere."""
        if isinstance(value, dict) and self._random.random() < 0.8:
            changed = dict(value)
            name = self._random.choice((*NAMES, "new", "other", "", "1"))
            if name in changed and self._random.random() < 0.7:
                changed[name] = self.altered(changed[name])
            elif name in changed:
                del changed[name]
            else:
                changed[name] = self.value(1)
            return changed
        if isinstance(value, list) and self._random.random() < 0.8:
            at = self._random.randrange(len(value) + 1)
            return [*value[:at], self.value(1), *value[at + self._random.randrange(2) :]]
        return self._random.choice(SCALARS) if self._random.random() < 0.7 else self.value(1)

    def _document(self) -> dict[str, object]:
        return {
            "$schema": DRAFTS[self.draft],
            self.defs: {"node": self._object(2), "leaf": self._schema(0), "name": self._name_list()},
            **self._object(3),
        }

    def _object(self, depth: int) -> dict[str, object]:
        """Mostly objects: there is most to get wrong."""
        if self._random.random() < 0.15:
            return self._mapping(depth)
        schema: dict[str, object] = {"type": "object"} if self._random.random() < 0.8 else {}
        schema["properties"] = {name: self._schema(depth - 1) for name in NAMES if self._random.random() < 0.6}
        if self._random.random() < 0.6:
            schema["required"] = [name for name in NAMES if self._random.random() < 0.4]
        for _ in range(self._random.choice((0, 0, 1, 1, 2))):
            schema |= self._object_keyword(depth)
        if self._random.random() < 0.25:
            schema |= self._combination(depth)
        return schema

    def _mapping(self, depth: int) -> dict[str, object]:
        """Names that are limited, and values that are all alike but for a few."""
        schema: dict[str, object] = {"type": "object", "propertyNames": self._names()}
        schema["additionalProperties"] = self._leaf() if self._random.random() < 0.6 else self._schema(depth - 1)
        if self._random.random() < 0.3:
            schema["patternProperties"] = {self._random.choice(PATTERNS): self._leaf()}
        if self._random.random() < 0.3:
            schema["properties"] = {self._random.choice(NAMES): self._leaf()}
        if self._random.random() < 0.3:
            schema |= self._random.choice(({"minProperties": 1}, {"minProperties": 2}, {"maxProperties": 1}))
        return schema

    def _object_keyword(self, depth: int) -> dict[str, object]:
        inner = self._schema(depth - 1)
        choices: list[dict[str, object]] = [
            {"additionalProperties": self._random.choice((True, False, False, inner))},
            {"patternProperties": {self._random.choice(PATTERNS): inner}},
            {"propertyNames": self._names()},
            {"propertyNames": self._names()},
            {"minProperties": self._random.randrange(3)},
            {"maxProperties": self._random.randrange(1, 5)},
        ]
        name, other = self._random.choice(NAMES), self._random.choice(NAMES)
        if self.draft <= 7:
            choices += [
                {"dependencies": {name: [other]}},
                {"dependencies": {name: self._object(depth - 1) if depth else True}},
            ]
        else:
            choices += [
                {"dependentRequired": {name: [other]}},
                {"dependentSchemas": {name: self._object(depth - 1) if depth else True}},
                {"unevaluatedProperties": self._random.choice((True, False, False, inner))},
            ]
        return self._random.choice(choices)

    def _name_list(self) -> dict[str, object]:
        return {"type": "string", "enum": self._random.sample((*NAMES, "other"), self._random.randrange(1, 4))}

    def _names(self) -> Schema:
        """What names may be: listed, by reference, by length, by pattern, or joined."""
        roll = self._random.random()
        if roll < 0.25:
            return {"enum": self._random.sample((*NAMES, "other", ""), self._random.randrange(1, 4))}
        if roll < 0.4:
            return {"$ref": f"#/{self.defs}/name"}
        if roll < 0.55:
            return {"maxLength": self._random.randrange(3)}
        if roll < 0.65:
            return {"minLength": self._random.randrange(1, 7)}
        if roll < 0.8:
            return {"pattern": self._random.choice(PATTERNS)}
        if roll < 0.85:
            only: dict[str, object] = {"const": self._random.choice(NAMES)}
            return self._random.choice((True, False, only))
        if roll < 0.9:
            return {"not": {"enum": self._random.sample((*NAMES, "other"), 2)}}
        return {self._random.choice(("anyOf", "allOf", "oneOf")): [{"maxLength": 1}, self._leaf()]}

    def _combination(self, depth: int) -> dict[str, object]:
        parts = [self._schema(depth - 1) for _ in range(self._random.choice((1, 2, 2, 3)))]
        keyword = self._random.choice(("allOf", "anyOf", "oneOf", "anyOf", "oneOf", "not", "if"))
        if keyword == "not":
            return {"not": parts[0]}
        if keyword == "if":
            return {"if": parts[0], "then": self._schema(depth - 1), "else": parts[-1]}
        return {keyword: parts}

    def _schema(self, depth: int) -> Schema:
        roll = self._random.random()
        if roll < 0.03:
            return self._random.choice((True, False, True, True))
        if roll < 0.1:
            name = self._random.choice(("node", "leaf"))
            return {"$ref": f"#/{self.defs}/{name}"} if depth else True
        if depth <= 0 or roll < 0.5:
            return self._leaf()
        if roll < 0.62:
            return self._combination(depth)
        return self._object(depth) if roll < 0.85 else self._array(depth)

    def _array(self, depth: int) -> dict[str, object]:
        schema: dict[str, object] = {"type": "array"} if self._random.random() < 0.8 else {}
        first: list[object] = [self._schema(depth - 1) for _ in range(self._random.randrange(3))]
        rest = self._random.choice((False, self._schema(depth - 1)))
        if self.draft < 20:
            schema |= {"items": first, "additionalItems": rest} if first else {"items": rest}
        else:
            schema |= {"prefixItems": first} if first else {}
            schema |= self._random.choice(({"items": rest}, {}, {"unevaluatedItems": rest}))
        if self.draft == 19 and self._random.random() < 0.3:
            schema.pop("additionalItems", None)
            schema["unevaluatedItems"] = rest
        choices: list[dict[str, object]] = [
            {"minItems": self._random.randrange(3)},
            {"maxItems": self._random.randrange(4)},
            {"uniqueItems": True},
            {"contains": self._schema(depth - 1)},
            {"contains": self._schema(depth - 1), "minContains": 0, "maxContains": 2},
            {"contains": self._schema(depth - 1), "minContains": 2},
        ]
        for _ in range(self._random.randrange(3)):
            schema |= self._random.choice(choices)
        return schema

    def _leaf(self) -> dict[str, object]:
        roll = self._random.random()
        if roll < 0.2:
            return {"enum": self._random.sample(SCALARS, self._random.randrange(1, 5))}
        if roll < 0.25:
            return {"const": self.value(1)} if roll < 0.23 else {"enum": [self.value(2), self.value(1)]}
        if roll < 0.35:
            return {"type": self._random.sample(TYPES, 2)}
        schema: dict[str, object] = {}
        if roll < 0.65:
            schema["type"] = self._random.choice(("integer", "number"))
            for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
                if self._random.random() < 0.25:
                    schema[keyword] = self._random.choice(NUMBERS)
            if self._random.random() < 0.25:
                schema["multipleOf"] = self._random.choice((0.5, 1, 2, 3, 0.1))
        elif roll < 0.95:
            schema["type"] = "string"
            for keyword, choices in (("minLength", (0, 1, 2)), ("maxLength", (1, 2, 3, 20))):
                if self._random.random() < 0.3:
                    schema[keyword] = self._random.choice(choices)
            if self._random.random() < 0.3:
                schema["pattern"] = self._random.choice(PATTERNS)
            if self._random.random() < 0.2:
                schema["format"] = self._random.choice(FORMATS)
        else:
            schema["type"] = self._random.choice(("null", "boolean"))
        return schema

    def _change(self, root: dict[str, object]) -> None:
        """One change somewhere: loosened, tightened, wrapped, replaced."""
        reached = {key: value for key, value in root.items() if key not in ("$defs", "definitions")}
        places = _schemas(root if self._random.random() < 0.2 else reached)[1:] or [root]
        places = [root] if self._random.random() < 0.15 else places
        place = self._random.choice(places)
        match self._random.randrange(9):
            case 0:
                place.pop(self._random.choice([key for key in place if key not in KEPT] or ["none"]), None)
            case 1:
                properties = place.get("properties")
                if isinstance(properties, dict):
                    properties["new"] = self._leaf()
            case 2:
                required = place.get("required")
                if isinstance(required, list) and required:
                    required.pop()
            case 3:
                place |= self._combination(1)
            case 4 if isinstance(place.get("type"), str):
                place["type"] = [place["type"], "null"] if place["type"] != "null" else ["null", "string"]
            case 5 if isinstance(place.get("enum"), list):
                place["enum"] = [*_list(place["enum"]), "more"]
            case 6:
                self._loosen(place)
            case 7 if "$schema" not in place:
                inner = dict(place)
                place.clear()
                place |= {self._random.choice(("anyOf", "oneOf", "allOf")): [inner, self._schema(1)]}
            case _:
                if "properties" in place:
                    place |= self._object_keyword(1)
                else:
                    place |= self._leaf()

    def _loosen(self, place: dict[str, object]) -> None:
        for keyword, by in LOOSER:
            value = place.get(keyword)
            if isinstance(value, (int, float)):
                place[keyword] = (
                    max(0, value + by)
                    if keyword.endswith(("Length", "Items", "Properties", "Contains"))
                    else value + by
                )


LOOSER = (
    ("minimum", -1), ("maximum", 1), ("minLength", -1), ("maxLength", 2), ("maxItems", 1), ("minItems", -1),
    ("minProperties", -1), ("maxProperties", 1), ("minContains", -1), ("maxContains", 1),
)  # fmt: skip
KEPT = ("$schema", "$defs", "definitions")


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _schemas(node: object) -> list[dict[str, object]]:
    """Every schema object below a node."""
    if not isinstance(node, dict):
        return []
    found = [node]
    for keyword, value in node.items():
        if keyword in (
            "properties",
            "patternProperties",
            "$defs",
            "definitions",
            "dependentSchemas",
            "dependencies",
        ) and (isinstance(value, dict)):
            found += [inner for part in value.values() for inner in _schemas(part)]
        elif keyword in ("allOf", "anyOf", "oneOf", "prefixItems", "items") and isinstance(value, list):
            found += [inner for part in value for inner in _schemas(part)]
        elif keyword in (
            "not",
            "if",
            "then",
            "else",
            "items",
            "additionalProperties",
            "contains",
            "unevaluatedProperties",
            "unevaluatedItems",
            "additionalItems",
            "propertyNames",
        ):
            found += _schemas(value)
    return found
