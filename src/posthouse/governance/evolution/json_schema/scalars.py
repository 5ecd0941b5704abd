"""Texts, numbers, booleans and null: is there one for which some atoms hold and others do not?

Each question has three answers: such a value, None when there is provably none, and Undecided.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

import jsonschema_rs

from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.document import validator_of
from posthouse.governance.evolution.json_schema.nodes import Atom, Kind, Scalar
from posthouse.governance.evolution.json_schema.numbers import Undecided, find_number, plain_number
from posthouse.governance.evolution.json_schema.regex_parsing import Irregular
from posthouse.governance.evolution.json_schema.texts import Effort, TooMany, Wanted, find_text

Atoms = Iterable[Atom]

SAMPLES = {
    "date-time": ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000001Z", "2026-01-31T12:00:00+01:00"],
    "date": ["2026-01-31"],
    "time": ["12:00:00Z", "12:00:00.5Z"],
    "duration": ["P1D", "PT1H"],
    "email": ["a@example.org", "someone.else@example.org"],
    "idn-email": ["a@example.org"],
    "hostname": ["example.org", "a"],
    "idn-hostname": ["example.org"],
    "ipv4": ["192.0.2.1"],
    "ipv6": ["2001:db8::1"],
    "uri": ["https://example.org/", "urn:a:b", "http://example.org/a"],
    "uri-reference": ["/a", "https://example.org/"],
    "iri": ["https://example.org/"],
    "iri-reference": ["/a"],
    "uuid": ["00000000-0000-4000-8000-000000000000", "123e4567-e89b-12d3-a456-426614174000"],
    "uri-template": ["/a/{b}"],
    "json-pointer": ["/a", ""],
    "relative-json-pointer": ["0", "1/a"],
    "regex": ["a", "^a$"],
}
"""Texts of each format that validators know."""

IMPLIED = {
    "email": {"idn-email"},
    "hostname": {"idn-hostname"},
    "uri": {"uri-reference", "iri", "iri-reference"},
    "uri-reference": {"iri-reference"},
    "iri": {"iri-reference"},
}
"""Every text of the one format is also one of the others."""

GUESSES = (
    "a",
    "",
    "A",
    "0",
    "1",
    "ab",
    "a1",
    "A-1",
    "abc",
    "ABC",
    "a b",
    "é",
    "2026-01-31",
    "{",
    "a@example.org",
    "x" * 40,
    "%",
)


def find_scalar(kind: Kind, holding: Atoms, failing: Atoms, effort: Effort) -> Scalar | None:
    """A value of the kind for which all of `holding` hold and all of `failing` fail. Raises Undecided."""
    holding, failing = list(holding), list(failing)
    listed = _listed(kind, holding)
    if listed is not None:
        return _pick(listed, holding, failing)
    if any(isinstance(atom, n.Opaque) for atom in failing):
        raise Undecided
    if kind == n.STRING:
        text = _find_string(holding, failing, effort)
        return None if text is None else (kind, text)
    excluded = {value for atom in failing if isinstance(atom, n.Values) for _, value in atom.scalars}
    number = find_number(kind, holding, failing, {value for value in excluded if type(value) is Fraction})
    return None if number is None else (kind, number)


def is_none_left(kind: Kind, holding: Atoms, failing: Atoms, effort: Effort) -> bool:
    """Whether there is provably no such value, also for readers that take formats for remarks. Raises Undecided."""
    holding, failing = list(holding), list(failing)
    if find_scalar(kind, holding, failing, effort) is not None:
        return False
    if kind != n.STRING or any(isinstance(atom, n.Format) for atom in failing):
        return True
    unasserted = [atom for atom in holding if not isinstance(atom, n.Format)]
    return len(unasserted) == len(holding) or find_scalar(kind, unasserted, failing, effort) is None


def plain(scalar: Scalar) -> object:
    """The value as JSON libraries have it."""
    kind, value = scalar
    return plain_number(value) if isinstance(value, Fraction) and kind in n.NUMBERS else value


def truth(atom: Atom, scalar: Scalar) -> bool | None:
    """Whether the atom holds for a value; None where it cannot be told."""
    kind, value = scalar
    if kind not in atom.speaks_of:
        return True
    match atom:
        case n.Kinds():
            return kind in atom.kinds
        case n.Values():
            return scalar in atom.scalars
        case n.AtLeast():
            assert isinstance(value, Fraction)
            return value > atom.bound or (value == atom.bound and not atom.open)
        case n.AtMost():
            assert isinstance(value, Fraction)
            return value < atom.bound or (value == atom.bound and not atom.open)
        case n.MultipleOf():
            assert isinstance(value, Fraction)
            return (value / atom.step).denominator == 1
    if isinstance(value, str):
        return _truth_of_text(atom, value)
    return None


def _truth_of_text(atom: Atom, text: str) -> bool | None:
    match atom:
        case n.MinLength():
            return len(text) >= atom.length
        case n.MaxLength():
            return len(text) <= atom.length
        case n.Pattern():
            return matches(atom.pattern, text)
        case n.Format():
            return _checker("format", atom.format).is_valid(text) if atom.format in SAMPLES else None
    return None


@lru_cache(maxsize=20_000)
def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text."""
    return _checker("pattern", pattern).is_valid(text)


@lru_cache(maxsize=2_000)
def _checker(keyword: str, value: str) -> jsonschema_rs.Validator:
    return validator_of({keyword: value}, jsonschema_rs.Draft202012Validator)


def _listed(kind: Kind, holding: list[Atom]) -> list[Scalar] | None:
    """All values there are, where they can be listed."""
    if kind == n.NULL:
        return [(n.NULL, None)]
    if kind == n.BOOLEAN:
        return [(n.BOOLEAN, False), (n.BOOLEAN, True)]
    lists = [atom.scalars for atom in holding if isinstance(atom, n.Values)]
    if not lists:
        return None
    return sorted((scalar for scalar in min(lists, key=len) if scalar[0] == kind), key=str)


def _pick(listed: list[Scalar], holding: list[Atom], failing: list[Atom]) -> Scalar | None:
    undecided = False
    for scalar in listed:
        held = {truth(atom, scalar) for atom in holding}
        failed = {truth(atom, scalar) for atom in failing}
        if False in held or True in failed:
            continue
        if None not in held | failed:
            return scalar
        undecided = True
    if undecided:
        raise Undecided
    return None


def _find_string(holding: list[Atom], failing: list[Atom], effort: Effort) -> str | None:
    wanted = _wanted(holding, failing)
    formats = {atom.format for atom in holding if isinstance(atom, n.Format)}
    barred = {atom.format for atom in failing if isinstance(atom, n.Format)}
    if (
        any(name in barred or IMPLIED.get(name, set()) & barred for name in formats)
        or wanted.matching & wanted.avoiding
    ):
        return None
    found: str | None = None
    try:
        found = find_text(wanted, effort)
        if found is None:
            return None
    except (Irregular, TooMany):
        pass
    samples = [text for name in sorted(formats) for text in SAMPLES.get(name, [])]
    known = [text for atom in holding + failing if isinstance(atom, n.Values) for text in _texts(atom)]
    for text in ([] if found is None else [found], samples, GUESSES, known):
        picked = _first([(n.STRING, each) for each in text], holding, failing)
        if picked is not None:
            return picked
    raise Undecided


def _first(listed: list[Scalar], holding: list[Atom], failing: list[Atom]) -> str | None:
    for scalar in listed:
        if all(truth(atom, scalar) for atom in holding) and all(truth(atom, scalar) is False for atom in failing):
            return str(scalar[1])
    return None


def _texts(atom: n.Values) -> list[str]:
    return sorted(value for _, value in atom.scalars if isinstance(value, str))


def _wanted(holding: list[Atom], failing: list[Atom]) -> Wanted:
    least, most = 0, None
    for atom, held in [(atom, True) for atom in holding] + [(atom, False) for atom in failing]:
        low, high = _length(atom, held)
        least = max(least, low)
        most = high if most is None else most if high is None else min(most, high)
    return Wanted(
        matching=frozenset(atom.pattern for atom in holding if isinstance(atom, n.Pattern)),
        avoiding=frozenset(atom.pattern for atom in failing if isinstance(atom, n.Pattern)),
        excluded=frozenset(text for atom in failing if isinstance(atom, n.Values) for text in _texts(atom)),
        least=least,
        most=most,
    )


def _length(atom: Atom, held: bool) -> tuple[int, int | None]:
    if isinstance(atom, n.MinLength):
        return (atom.length, None) if held else (0, atom.length - 1)
    if isinstance(atom, n.MaxLength):
        return (0, atom.length) if held else (atom.length + 1, None)
    return 0, None
