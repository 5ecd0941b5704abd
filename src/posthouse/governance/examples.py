"""Examples: messages that a JSON Schema takes, made from the schema. The small ones come first.

They are found by the same search as the counter-examples of a comparison, and checked by a validator: an example that is
wrong would be worse than none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.building import Content, build
from posthouse.governance.evolution.json_schema.document import Document
from posthouse.governance.evolution.json_schema.fields import fields_of
from posthouse.governance.evolution.json_schema.nodes import Pool
from posthouse.governance.evolution.json_schema.proving import NONE, Prover, TooMuchWork
from posthouse.governance.evolution.json_schema.sequent import Nodes
from posthouse.governance.evolution.json_schema.witness import Finder

MOST_STEPS = 20_000
STEPS_PER_SEARCH = 2_000
VALUES_PER_FIELD = 3

SAMPLES = {
    "date-time": ["2026-01-31T23:59:59Z", "2024-02-29T00:00:00.123456+02:00"],
    "date": ["2026-01-31", "2024-02-29"],
    "time": ["23:59:59Z", "00:00:00Z"],
    "duration": ["P1DT2H", "PT0.5S"],
    "uuid": ["0190163d-8694-739b-aea5-966c26f8ad91", "6fa459ea-ee8a-4ca4-894e-db77e160355e"],
    "decimal": ["0", "-12.50"],
    "email": ["ann@example.com"],
    "hostname": ["example.com"],
    "ipv4": ["192.0.2.1"],
    "ipv6": ["2001:db8::1"],
    "uri": ["https://example.com/a?b=c"],
    "base64": ["AAEC"],
}
"""Texts of each format and encoding."""

_DATA = frozenset(("enum", "const", "default", "examples"))
"""Keywords whose values are messages, not schemas."""


def examples(schema: str, most: int = 20) -> list[object]:
    """Different messages: the smallest, one for each field with several values of it, and one with every field.

    May be empty for a schema that takes nothing, or that is too entangled. Raises SchemaError for one that cannot be read.
    """
    document = Document(schema, "the schema")
    pool = Pool()
    root: Nodes = frozenset((build(_with_samples(document, schema), pool, Content.AS_WRITTEN),))
    finder = Finder(Prover(pool), budget=MOST_STEPS)
    fields = {path[0]: nodes for path, nodes in fields_of(pool, next(iter(root))).items() if len(path) == 1}
    found: dict[bytes, object] = {}
    for value in _candidates(finder, pool, root, {name: fields[name] for name in sorted(fields) if name != "*"}):
        if _fits(document, value):
            found.setdefault(msgspec.json.encode(value), value)
        if len(found) >= most:
            break
    return list(found.values())


def smallest(schema: str) -> object:
    """The first of them; msgspec.UNSET where none was found."""
    return next(iter(examples(schema, most=1)), msgspec.UNSET)


def fullest(schema: str) -> object:
    """The one with the most fields; msgspec.UNSET where none was found."""
    found = examples(schema)
    return max(found, key=lambda value: len(value) if isinstance(value, dict) else 0, default=msgspec.UNSET)


def _with_samples(document: Document, schema: str) -> Document:
    """The same with a few texts in place of each format: the search knows what a format forbids, not how to write it."""
    made = json.dumps(_sampled(json.loads(schema)))
    return Document(made, "the schema")


def _sampled(node: object) -> object:
    if isinstance(node, list):
        return [_sampled(part) for part in node]
    if not isinstance(node, dict):
        return node
    inner = {name: part if name in _DATA else _sampled(part) for name, part in node.items()}
    form = inner.get("format", inner.get("contentEncoding"))
    samples = SAMPLES.get(form) if isinstance(form, str) else None
    if samples is None or "enum" in inner or "const" in inner:
        return inner
    kinds = inner.get("type", "string")
    others = [None] if "null" in (kinds if isinstance(kinds, list) else [kinds]) else []
    plain = {name: part for name, part in inner.items() if name not in ("format", "contentEncoding")}
    return {**plain, "enum": [*samples, *others]}


def _candidates(finder: Finder, pool: Pool, root: Nodes, fields: Mapping[str, Nodes]) -> Iterator[object]:
    """The smallest, the one with everything, and then each field with some of its values."""
    yield from _within_reason(finder, finder.values(root, NONE), VALUES_PER_FIELD)
    every = frozenset(pool.of(n.Required(name)) for name in fields)
    yield from _within_reason(finder, finder.values(root | every, NONE), 1)
    for name, nodes in fields.items():
        for value in list(_within_reason(finder, finder.values(nodes, NONE), VALUES_PER_FIELD)):
            yield from _within_reason(finder, finder.holding(root, name, value), 1)


def _within_reason(finder: Finder, values: Iterator[object], number: int) -> Iterator[object]:
    finder.allow(STEPS_PER_SEARCH)
    try:
        yield from islice(values, number)
    except TooMuchWork:
        return


def _fits(document: Document, value: object) -> bool:
    try:
        return document.validator.is_valid(value)
    except ValueError:
        return False
