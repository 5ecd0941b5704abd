"""Regular expressions as values that can be derived: what is left to match after one character (Brzozowski, 1964).

The constructors drop what does not matter, so that the derivatives of an expression are few. How many they are says nothing of
what they cost, because a term may hold thousands of others: whoever derives pays for what is put together, through a `Meter`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Range = tuple[int, int]

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)


Meter = Callable[[int], None]
"""Is told of work before it is done, and raises where it is too much."""


@dataclass(frozen=True, slots=True)
class _Term:
    """Remembers what is asked of it again and again, so that no question walks through all that it holds."""

    mark: int = field(init=False, compare=False, repr=False)
    """Its hash."""
    nullable: bool = field(init=False, compare=False, repr=False)
    """Whether the empty text matches."""

    def __hash__(self) -> int:
        return self.mark

    def _remember(self, content: object, nullable: bool) -> None:
        object.__setattr__(self, "mark", hash((type(self), content)))
        object.__setattr__(self, "nullable", nullable)


@dataclass(frozen=True, slots=True)
class Chars(_Term):
    """One character of a set: sorted ranges of code points that do not touch."""

    ranges: tuple[Range, ...]
    __hash__ = _Term.__hash__

    def __post_init__(self) -> None:
        self._remember(self.ranges, False)


@dataclass(frozen=True, slots=True)
class Sequence(_Term):
    """One after the other."""

    first: Term
    then: Term
    length: int = field(init=False, compare=False, repr=False)
    """How many terms stand one after the other."""
    __hash__ = _Term.__hash__

    def __post_init__(self) -> None:
        self._remember((self.first, self.then), self.first.nullable and self.then.nullable)
        object.__setattr__(self, "length", 1 + length(self.then))


@dataclass(frozen=True, slots=True)
class Choice(_Term):
    """One of several."""

    options: frozenset[Term]
    __hash__ = _Term.__hash__

    def __post_init__(self) -> None:
        self._remember(self.options, any(option.nullable for option in self.options))


@dataclass(frozen=True, slots=True)
class Repeat(_Term):
    """Between `least` and `most` times; None is without end."""

    body: Term
    least: int
    most: int | None
    __hash__ = _Term.__hash__

    def __post_init__(self) -> None:
        self._remember((self.body, self.least, self.most), self.least == 0 or self.body.nullable)


@dataclass(frozen=True, slots=True)
class Empty(_Term):
    """The empty text."""

    __hash__ = _Term.__hash__

    def __post_init__(self) -> None:
        self._remember((), True)


Term = Chars | Sequence | Choice | Repeat | Empty


def length(term: Term) -> int:
    """How many terms stand one after the other in it."""
    return term.length if isinstance(term, Sequence) else 1


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
    return Repeat(body, 0 if body.nullable else least, most)


def literal(text: str) -> Term:
    """Exactly this text."""
    term: Term = EMPTY
    for char in reversed(text):
        term = Sequence(Chars(((ord(char), ord(char)),)), term) if term != EMPTY else Chars(((ord(char), ord(char)),))
    return term


class Derivatives:
    """Derives, and remembers what it derived. Every step is paid for, by what it has to put together."""

    def __init__(self, spend: Meter) -> None:
        self._spend = spend
        self._known: dict[tuple[Term, int], Term] = {}
        self._same: dict[Term, Term] = {}

    def of(self, term: Term, char: int) -> Term:
        """What may follow after `char`."""
        known = self._known.get((term, char))
        if known is None:
            self._spend(1)
            found = self._derived(term, char)
            # equal terms are one object, so that comparing two that hold them ends at once
            known = self._known[term, char] = self._same.setdefault(found, found)
        return known

    def _derived(self, term: Term, char: int) -> Term:
        match term:
            case Empty():
                return NOTHING
            case Chars():
                return EMPTY if any(low <= char <= high for low, high in term.ranges) else NOTHING
            case Sequence():
                left = self._joined(self.of(term.first, char), term.then)
                return self._chosen(left, self.of(term.then, char)) if term.first.nullable else left
            case Choice():
                self._spend(len(term.options))
                return self._chosen(*(self.of(option, char) for option in term.options))
            case Repeat():
                rest = repeat(term.body, max(0, term.least - 1), None if term.most is None else term.most - 1)
                return self._joined(self.of(term.body, char), rest)

    def _joined(self, first: Term, then: Term) -> Term:
        self._spend(length(first))
        return sequence(first, then)

    def _chosen(self, *options: Term) -> Term:
        self._spend(sum(len(option.options) if isinstance(option, Choice) else 1 for option in options))
        return choice(*options)


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
