"""The rules that Confluent's and Karapace's own tests lay down for BACKWARD, each as a case in our own words.

The shape of each case, and so the verdict of the registry, is that of their tests; names and numbers are ours. Schemas are of draft 7,
the default of both. DIFFERENT lists where we judge otherwise, and why; docs/schema-evolution.md tells it to users.
"""

from __future__ import annotations

from typing import NamedTuple

Schema = dict[str, object] | bool


class Case(NamedTuple):
    """Whether the registry lets `new` follow `old`."""

    title: str
    old: Schema
    new: Schema
    passes: bool


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
NULL: Schema = {"type": "null"}
FLAG: Schema = {"type": "boolean"}


def thing(additional: Schema | None = None, required: tuple[str, ...] = (), **fields: Schema) -> dict[str, object]:
    """An object schema."""
    schema: dict[str, object] = {"type": "object", "properties": fields}
    if additional is not None:
        schema["additionalProperties"] = additional
    return schema | ({"required": list(required)} if required else {})


def row(*first: Schema, rest: Schema | None = None) -> dict[str, object]:
    """An array with a schema per place."""
    return {"type": "array", "items": list(first)} | ({} if rest is None else {"additionalItems": rest})


def guest(*parts: Schema, by: str) -> dict[str, object]:
    """A property that is a combination."""
    return thing(guest={by: list(parts)})


CONFLUENT = [
    Case("all limits dropped", thing(), {}, True),
    Case("another id", {"$id": "https://example.org/a"}, {"$id": "https://example.org/b"}, True),
    Case("another title", {"title": "Stay"}, {"title": "Visit"}, True),
    Case("another description", {"description": "a stay"}, {"description": "a visit"}, True),
    Case("object to array", {"type": "object"}, {"type": "array"}, False),
    Case("longer texts demanded", {"type": "string", "minLength": 3}, {"type": "string", "minLength": 4}, False),
    Case("shorter texts taken", {"type": "string", "minLength": 4}, {"type": "string", "minLength": 3}, True),
    Case("longer texts taken", {"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 5}, True),
    Case("shorter texts demanded", {"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 3}, False),
    Case("pattern dropped", {"type": "string", "pattern": "^R-"}, TEXT, True),
    Case("pattern added", TEXT, {"type": "string", "pattern": "^R-"}, False),
    Case("another pattern", {"type": "string", "pattern": "^R-"}, {"type": "string", "pattern": "^B-"}, False),
    Case("the same pattern", {"type": "string", "pattern": "^R-"}, {"type": "string", "pattern": "^R-"}, True),
    Case("maximum dropped", {"type": "number", "maximum": 8}, NUMBER, True),
    Case("maximum raised", {"type": "number", "maximum": 8}, {"type": "number", "maximum": 9}, True),
    Case("maximum lowered", {"type": "number", "maximum": 9}, {"type": "number", "maximum": 8}, False),
    Case("maximum added", NUMBER, {"type": "number", "maximum": 8}, False),
    Case("minimum dropped", {"type": "number", "minimum": 8}, NUMBER, True),
    Case("minimum raised", {"type": "number", "minimum": 8}, {"type": "number", "minimum": 9}, False),
    Case("minimum lowered", {"type": "number", "minimum": 9}, {"type": "number", "minimum": 8}, True),
    Case("step dropped", {"type": "number", "multipleOf": 6}, NUMBER, True),
    Case("a finer step", {"type": "number", "multipleOf": 6}, {"type": "number", "multipleOf": 3}, True),
    Case("another step", {"type": "number", "multipleOf": 6}, {"type": "number", "multipleOf": 5}, False),
    Case("a coarser step", {"type": "number", "multipleOf": 0.5}, {"type": "number", "multipleOf": 10}, False),
    Case("number to integer", NUMBER, WHOLE, False),
    Case("integer to number", WHOLE, NUMBER, True),
    Case("not: less is barred", {"not": NUMBER}, {"not": WHOLE}, True),
    Case("not: more is barred", {"not": WHOLE}, {"not": NUMBER}, False),
    Case("enum dropped", {"type": "string", "enum": ["single"]}, TEXT, True),
    Case("another const", thing(room={"const": "single"}), thing(room={"const": "double"}), False),
    Case("another enum", {"allOf": [TEXT, {"enum": ["single"]}]}, {"allOf": [TEXT, {"enum": ["double"]}]}, False),
    Case("a longer enum", {"allOf": [TEXT, {"enum": ["a"]}]}, {"allOf": [{"enum": ["a", "b"]}, TEXT]}, True),
    Case("a longer list of types", {"type": ["object"]}, {"type": ["object", "array"]}, True),
    Case("oneOf: another branch", {"oneOf": [TEXT]}, {"oneOf": [NUMBER]}, False),
    Case("oneOf: one more branch", {"oneOf": [TEXT]}, {"oneOf": [NUMBER, TEXT]}, True),
    Case("open: renamed", thing(name=TEXT), thing(surname=TEXT), False),
    Case("a property of another type", thing(name=TEXT), thing(name=NUMBER), False),
    Case("closed: optional property added", thing(False, name=TEXT), thing(False, name=TEXT, age=NUMBER), True),
    Case(
        "patterns: property added that a pattern had",
        thing(False, name=TEXT) | {"patternProperties": {"^n_": WHOLE}},
        thing(False, name=TEXT, n_1=NUMBER) | {"patternProperties": {"^n_": WHOLE}},
        True,
    ),
    Case("map: property of the map's type added", thing(TEXT, name=TEXT), thing(TEXT, name=TEXT, town=TEXT), True),
    Case("map: property of another type added", thing(TEXT, name=TEXT), thing(TEXT, name=TEXT, age=NUMBER), False),
    Case(
        "map: required property added", thing(TEXT, name=TEXT), thing(TEXT, required=("town",), name=TEXT, town=TEXT), False
    ),
    Case(
        "closed: property left to a pattern",
        thing(False, name=TEXT, n_1=WHOLE),
        thing(False, name=TEXT) | {"patternProperties": {"^s_": TEXT, "^n_": NUMBER}},
        True,
    ),
    Case("closed: property left to a map", thing(False, name=TEXT, town=TEXT), thing(TEXT, name=TEXT), True),
    Case("closed: property left to a map of another type", thing(False, name=TEXT, age=NUMBER), thing(TEXT, name=TEXT), False),
    Case(
        "closed: optional property left to a map of nullables",
        thing(False, name=TEXT, town={"oneOf": [NULL, TEXT]}),
        thing({"oneOf": [NULL, TEXT]}, name=TEXT),
        True,
    ),
    Case(
        "closed: property left to a wider map", thing(False, name=TEXT, town=TEXT), thing({"oneOf": [NULL, TEXT]}, name=TEXT), True
    ),
    Case("open: property added", thing(name=TEXT), thing(name=TEXT, age=NUMBER), False),
    Case("open: property removed", thing(name=TEXT, age=NUMBER), thing(name=TEXT), True),
    Case("closed: property removed", thing(False, name=TEXT, age=NUMBER), thing(False, name=TEXT), False),
    Case("a change inside a union", {"oneOf": [thing(name=TEXT)]}, {"oneOf": [thing(name=NUMBER)]}, False),
    Case("oneOf of one is allOf of one", {"oneOf": [TEXT]}, {"allOf": [TEXT]}, True),
    Case("oneOf of two to allOf of one", {"oneOf": [TEXT, WHOLE]}, {"allOf": [TEXT]}, False),
    Case(
        "dependencies the other way round",
        thing(name=TEXT, town=TEXT) | {"dependencies": {"name": ["town"]}},
        thing(name=TEXT, town=TEXT) | {"dependencies": {"town": ["name"]}},
        False,
    ),
    Case("a dependency dropped", {"dependencies": {"name": thing(town=TEXT), "town": TEXT}}, {"dependencies": {"town": TEXT}}, True),
    Case("all dependencies dropped", {"dependencies": {"name": TEXT}}, {"dependencies": {}}, True),
    Case("a dependency that no object meets changed", {"dependencies": {"name": TEXT}}, {"dependencies": {"name": NUMBER}}, False),
    Case("a dependency of another property", {"dependencies": {"name": TEXT}}, {"dependencies": {"town": TEXT}}, False),
    Case("required dropped", thing(required=("name",), name=TEXT), thing(name=TEXT), True),
    Case("required added", thing(name=TEXT), thing(required=("name",), name=TEXT), False),
    Case("required of one that is not declared", thing(required=("name",), name=TEXT), thing(required=("town",), name=TEXT), True),
    Case("maxProperties dropped", {"maxProperties": 3}, {}, True),
    Case("maxProperties raised", {"maxProperties": 3}, {"maxProperties": 4}, True),
    Case("maxProperties lowered", {"maxProperties": 4}, {"maxProperties": 3}, False),
    Case("minProperties dropped", {"minProperties": 3}, {}, True),
    Case("minProperties raised", {"minProperties": 3}, {"minProperties": 4}, False),
    Case("minProperties lowered", {"minProperties": 4}, {"minProperties": 3}, True),
    Case("items given a schema", {"type": "array"}, {"type": "array", "items": TEXT}, False),
    Case("items freed", {"type": "array", "items": TEXT}, {"type": "array"}, True),
    Case("places freed", row(TEXT, NUMBER), {"type": "array"}, True),
    Case("a place of the rest's type added", row(TEXT, rest=NUMBER), row(TEXT, NUMBER, rest=NUMBER), True),
    Case("a place of another type added", row(TEXT, rest=NUMBER), row(TEXT, FLAG, rest=NUMBER), False),
    Case("a place left to the rest", row(TEXT, NUMBER, rest=NUMBER), row(TEXT, rest=NUMBER), True),
    Case("a place left to a rest of another type", row(TEXT, FLAG, rest=NUMBER), row(TEXT, rest=NUMBER), False),
    Case("a place of another type", row(TEXT), row(NUMBER), False),
    Case("maxItems lowered", {"type": "array", "maxItems": 3}, {"type": "array", "maxItems": 2}, False),
    Case("maxItems raised", {"type": "array", "maxItems": 2}, {"type": "array", "maxItems": 3}, True),
    Case("minItems dropped", {"type": "array", "minItems": 2}, {"type": "array"}, True),
    Case("minItems raised", {"type": "array", "minItems": 2}, {"type": "array", "minItems": 3}, False),
    Case("minItems lowered", {"type": "array", "minItems": 3}, {"type": "array", "minItems": 2}, True),
    Case("repeats allowed", {"type": "array", "uniqueItems": True}, {"type": "array"}, True),
    Case("repeats barred", {"type": "array"}, {"type": "array", "uniqueItems": True}, False),
    Case(
        "what a reference means changed",
        {"type": "array", "items": {"$ref": "#/definitions/room"}, "definitions": {"room": TEXT}},
        {"type": "array", "items": {"$ref": "#/definitions/room"}, "definitions": {"room": NUMBER}},
        False,
    ),
    Case("moved to a definition", TEXT, {"$ref": "#/definitions/name", "definitions": {"name": TEXT}}, True),
    Case("moved from a definition", {"$ref": "#/definitions/name", "definitions": {"name": TEXT}}, TEXT, True),
    Case("opened", thing(False), thing(), True),
    Case("closed", {"additionalProperties": True}, {"additionalProperties": False}, False),
    Case("open to a map", {"additionalProperties": True}, {"additionalProperties": NUMBER}, False),
    Case("a map of another type", {"additionalProperties": TEXT}, {"additionalProperties": NUMBER}, False),
    Case("open: a property of any type added", thing(True), thing(True, note=True), True),
    Case("open: a property of any type removed", thing(True, note=True), thing(True), True),
    Case("closed: a barred property added", thing(False), thing(False, note=False), True),
    Case("closed: a barred property removed", thing(False, note=False), thing(False), True),
    Case("additionalItems closed where there are no places", {"additionalItems": True}, {"additionalItems": False}, False),
    Case("additionalItems changed where there are no places", {"additionalItems": TEXT}, {"additionalItems": NUMBER}, False),
    Case("open row: any place added", row(NUMBER, rest=True), row(NUMBER, True, rest=True), True),
    Case("closed row: a barred place added", row(NUMBER, rest=False), row(NUMBER, False, rest=False), True),
    Case("closed row: longer and open", row(TEXT, NUMBER, rest=False), row(TEXT, NUMBER, FLAG, rest=True), True),
    Case("closed row: shorter and open", row(TEXT, NUMBER, FLAG, rest=False), row(TEXT, NUMBER, rest=True), True),
    Case("open row: shorter", row(TEXT, NUMBER, rest=True), row(TEXT, rest=True), True),
    Case("closed row: longer", row(TEXT, rest=False), row(TEXT, NUMBER, rest=False), True),
    Case("closed row: the last place becomes the rest", row(TEXT, NUMBER, rest=False), row(TEXT, rest=NUMBER), True),
    Case("a type to a union with it", TEXT, {"oneOf": [NUMBER, TEXT]}, True),
    Case("null to a union with it", NULL, {"oneOf": [NUMBER, NULL]}, True),
    Case("short texts to a union with texts", {"type": "string", "maxLength": 3}, {"oneOf": [NUMBER, TEXT]}, True),
    Case("allOf in another order", guest({"enum": ["a"]}, TEXT, by="allOf"), guest(TEXT, {"enum": ["a"]}, by="allOf"), True),
    Case("allOf: a part of another type", guest({"enum": ["a"]}, TEXT, by="allOf"), guest({"enum": ["a"]}, NUMBER, by="allOf"), False),
    Case("allOf: said twice", guest(TEXT, by="allOf"), guest(TEXT, TEXT, by="allOf"), True),
    Case("allOf: one part less", guest({"enum": ["a"]}, TEXT, by="allOf"), guest(TEXT, by="allOf"), True),
    Case("allOf: one part more", guest(TEXT, by="allOf"), guest({"enum": ["a"]}, TEXT, by="allOf"), False),
    Case("oneOf: two branches more", guest(TEXT, by="oneOf"), guest(FLAG, NUMBER, TEXT, by="oneOf"), True),
    Case(
        "oneOf: a wider branch", guest({"type": "string", "maxLength": 5}, by="oneOf"),
        guest(FLAG, {"type": "string", "maxLength": 8}, by="oneOf"), True,
    ),
    Case("oneOf: one branch less", guest(NUMBER, TEXT, by="oneOf"), guest(TEXT, by="oneOf"), False),
    Case("oneOf to anyOf", guest(TEXT, by="oneOf"), guest(NUMBER, TEXT, by="anyOf"), True),
    Case("oneOf to a smaller anyOf", guest(NUMBER, TEXT, by="oneOf"), guest(TEXT, by="anyOf"), False),
    Case("allOf to anyOf", guest(TEXT, by="allOf"), guest(NUMBER, TEXT, by="anyOf"), True),
    Case("an allOf that nothing meets to anyOf", guest(NUMBER, TEXT, by="allOf"), guest(TEXT, by="anyOf"), True),
    Case("anyOf to oneOf", guest(TEXT, by="anyOf"), guest(NUMBER, TEXT, by="oneOf"), True),
    Case("anyOf to a smaller oneOf", guest(NUMBER, TEXT, by="anyOf"), guest(TEXT, by="oneOf"), False),
    Case("anyOf to an allOf that nothing meets", guest(TEXT, by="anyOf"), guest(NUMBER, TEXT, by="allOf"), False),
    Case("anyOf of one is allOf of one", guest(TEXT, by="anyOf"), guest(TEXT, by="allOf"), True),
    Case("a plain type to anyOf", thing(guest=TEXT), guest(NUMBER, TEXT, by="anyOf"), True),
    Case("a plain type to allOf", thing(guest=TEXT), guest(NUMBER, TEXT, by="allOf"), False),
]  # fmt: skip

KARAPACE = [
    Case("anything to true", thing(name=WHOLE), True, True),
    Case("true to an object", True, thing(name=WHOLE), False),
    Case("an object to false", thing(name=WHOLE), False, False),
    Case("true to false", True, False, True),
    Case("false to an object", False, thing(False, name=WHOLE), False),
    Case("not anything to false", {"not": {}}, False, False),
    Case("a flag to true", FLAG, True, False),
    Case("a text to true", TEXT, True, False),
    Case("an array to true", {"type": "array", "items": WHOLE}, True, False),
    Case("array to row of the same type", {"type": "array", "items": WHOLE}, row(WHOLE), False),
    Case("row to array of the same type", row(WHOLE), {"type": "array", "items": WHOLE}, False),
    Case("a pattern that every text matches added", TEXT, {"type": "string", "pattern": "a*"}, False),
    Case("a pattern tightened", {"type": "string", "pattern": "a*"}, {"type": "string", "pattern": "a+"}, False),
    Case("exclusive maximum lowered", {"type": "integer", "exclusiveMaximum": 9}, {"type": "integer", "exclusiveMaximum": 7}, False),
    Case("exclusive minimum raised", {"type": "number", "exclusiveMinimum": 7}, {"type": "number", "exclusiveMinimum": 9}, False),
    Case("exclusive minimum lowered", {"type": "number", "exclusiveMinimum": 9}, {"type": "number", "exclusiveMinimum": 7}, True),
    Case("maxProperties added, and large", {"type": "object"}, {"type": "object", "maxProperties": 43}, False),
    Case("minItems raised, and large", {"type": "array", "minItems": 67}, {"type": "array", "minItems": 71}, False),
    Case("an enum with one value less", {"enum": ["A", "B", "C"]}, {"enum": ["A", "B"]}, False),
    Case("an enum with one value more", {"enum": ["A", "B"]}, {"enum": ["A", "B", "C"]}, True),
    Case("an enum to another", {"enum": ["A", "B"]}, {"enum": ["B", "C"]}, False),
    Case("types: one more", {"type": ["string", "null"]}, {"type": ["string", "null", "boolean"]}, True),
    Case("types: one less", {"type": ["string", "null"]}, {"type": ["string"]}, False),
    Case("a field gets one more type", thing(name=TEXT), thing(name={"type": ["string", "null"]}), True),
    Case("a field loses a type", thing(name={"type": ["string", "null"]}), thing(name=TEXT), False),
    Case("a required field with a default", thing(False, name=WHOLE), thing(
        False, required=("age",), name=WHOLE, age={"type": "integer", "default": 0}), False),
    Case("a closed field freed from its declaration", thing(False, a=WHOLE), {"type": "object", "patternProperties": {"^a*": {}}}, True),
    Case("a pattern of any value, and another name", thing(False, b=WHOLE), {
        "type": "object", "patternProperties": {"^a*": {}}}, False),
    Case("open: a field of any value declared", {"type": "object"}, thing(a={}), False),
    Case("named by a pattern: a field of any value declared", {
        "type": "object", "propertyNames": {"pattern": "a*"}}, thing(a={}), False),
    Case("names restricted", {"type": "object"}, {"type": "object", "propertyNames": {"pattern": "^a"}}, False),
    Case("a closed field that fits restricted names", thing(False, a=WHOLE), {"type": "object", "propertyNames": {"pattern": "^a"}}, True),
    Case("a closed field that does not fit", thing(False, b=WHOLE), {"type": "object", "propertyNames": {"pattern": "^a"}}, False),
    Case("a union in an array: wider branch", {"oneOf": [{"type": "array", "items": thing(False, b=WHOLE)}]}, {
        "oneOf": [{"type": "array", "items": thing(b=NUMBER)}]}, True),
    Case("texts or numbers to texts", {"oneOf": [TEXT, WHOLE]}, {"oneOf": [TEXT]}, False),
]  # fmt: skip

WRONG_CONSTANT = "Karapace reads a schema of true as one for objects, and false as one that differs from `not: {}`; by the specification true takes every value and nothing is ever sent under false"
DIFFERENT = {
    "a dependency that no object meets changed": "an object is neither a text nor a number: both schemas bar the property, and mean the same",
    "required of one that is not declared": "old data may lack the property; Confluent looks only at properties that are declared",
    "additionalItems closed where there are no places": "without a list of `items` the keyword says nothing",
    "additionalItems changed where there are no places": "without a list of `items` the keyword says nothing",
    "true to false": "Karapace lets it pass; every old message would be refused",
    "false to an object": WRONG_CONSTANT,
    "not anything to false": WRONG_CONSTANT,
    "a flag to true": WRONG_CONSTANT,
    "a text to true": WRONG_CONSTANT,
    "an array to true": WRONG_CONSTANT,
    "array to row of the same type": "every array of integers has an integer in its first place, if it has one",
    "a pattern that every text matches added": "`a*` is found in every text, also in the empty one",
    "a pattern of any value, and another name": "a pattern property that takes any value refuses nothing",
    "open: a field of any value declared": "a property that takes any value refuses nothing",
    "named by a pattern: a field of any value declared": "a property that takes any value refuses nothing",
}
