"""Regular expressions as values that can be derived: what is left to match after one character (Brzozowski, 1964).

Terms are interned by construction: two that are written alike are equal tuples, and the constructors drop what does not matter,
so that the derivatives of an expression are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

Range = tuple[int, int]

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set: sorted ranges of code points that do not touch."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    first: Term
    then: Term


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    options: frozenset[Term]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Between `least` and `most` times; None is without end."""

    body: Term
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Empty:
    """The empty text."""


Term = Chars | Sequence | Choice | Repeat | Empty

EMPTY = Empty()
NOTHING = Choice(frozenset())
ANY = Chars(((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, LAST)))
EVERYTHING = Repeat(ANY, 0, None)


def chars(ranges: list[Range]) -> Term:
    """The set of these ranges, merged; surrogates are no characters."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    kept = [part for low, high in merged for part in _without_surrogates(low, high)]
    return Chars(tuple(kept)) if kept else NOTHING


def complement(ranges: list[Range]) -> list[Range]:
    """All other characters."""
    found: list[Range] = []
    start = 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return [*found, (start, LAST)] if start <= LAST else found


def sequence(first: Term, then: Term) -> Term:
    """`first` and then `then`."""
    if first == NOTHING or then == NOTHING:
        return NOTHING
    if isinstance(first, Empty):
        return then
    if isinstance(then, Empty):
        return first
    if isinstance(first, Sequence):
        return sequence(first.first, sequence(first.then, then))
    if first == EVERYTHING and (then == EVERYTHING or (isinstance(then, Sequence) and then.first == EVERYTHING)):
        return then
    return Sequence(first, then)


def choice(*terms: Term) -> Term:
    """Any of the terms."""
    flat: set[Term] = set()
    for term in terms:
        flat |= term.options if isinstance(term, Choice) else {term}
    if EVERYTHING in flat:
        return EVERYTHING
    return next(iter(flat)) if len(flat) == 1 else Choice(frozenset(flat))


def repeat(body: Term, least: int, most: int | None) -> Term:
    """`body` between `least` and `most` times."""
    if most == 0 or body == EMPTY or (body == NOTHING and least == 0):
        return EMPTY
    if (least, most) == (1, 1) or body == NOTHING:
        return body
    if isinstance(body, Repeat) and (body.least, body.most) == (0, None):
        return body
    return Repeat(body, 0 if nullable(body) else least, most)


def literal(text: str) -> Term:
    """Exactly this text."""
    term: Term = EMPTY
    for char in reversed(text):
        term = Sequence(Chars(((ord(char), ord(char)),)), term) if term != EMPTY else Chars(((ord(char), ord(char)),))
    return term


@lru_cache(maxsize=20_000)
def nullable(term: Term) -> bool:
    """Whether the empty text matches."""
    match term:
        case Empty():
            return True
        case Chars():
            return False
        case Sequence():
            return nullable(term.first) and nullable(term.then)
        case Choice():
            return any(nullable(option) for option in term.options)
        case Repeat():
            return term.least == 0 or nullable(term.body)


@lru_cache(maxsize=50_000)
def derivative(term: Term, char: int) -> Term:
    """What may follow after `char`."""
    match term:
        case Empty():
            return NOTHING
        case Chars():
            return EMPTY if any(low <= char <= high for low, high in term.ranges) else NOTHING
        case Sequence():
            left = sequence(derivative(term.first, char), term.then)
            return choice(left, derivative(term.then, char)) if nullable(term.first) else left
        case Choice():
            return choice(*(derivative(option, char) for option in term.options))
        case Repeat():
            rest = repeat(term.body, max(0, term.least - 1), None if term.most is None else term.most - 1)
            return sequence(derivative(term.body, char), rest)


def boundaries(term: Term, found: set[int]) -> None:
    """Adds the first code points of all places where a set of the term begins or ends."""
    match term:
        case Chars():
            for low, high in term.ranges:
                found |= {low, high + 1}
        case Sequence():
            boundaries(term.first, found)
            boundaries(term.then, found)
        case Choice():
            for option in term.options:
                boundaries(option, found)
        case Repeat():
            boundaries(term.body, found)
        case Empty():
            pass


def _without_surrogates(low: int, high: int) -> list[Range]:
    parts = [(low, min(high, SURROGATES[0] - 1)), (max(low, SURROGATES[1] + 1), high)]
    return [(first, last) for first, last in dict.fromkeys(parts) if first <= last]
