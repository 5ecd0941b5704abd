"""Is there a text that matches some patterns and not others? The first such text, or the proof that there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from posthouse.governance.evolution.json_schema import regex_terms as terms
from posthouse.governance.evolution.json_schema.regex_parsing import Dialect, Irregular, is_ambiguous, parse
from posthouse.governance.evolution.json_schema.regex_terms import Term

MOST_STATES = 1_500
MOST_WORK = 500_000
MOST_WORK_IN_ALL = 2_500_000
"""Terms that are put together, for one question and for all of a comparison: about a second and a few of them."""
LONGEST_COUNTED = 1_000
"""Lengths up to here are counted exactly; beyond, only patterns decide."""
SOON_COUNTED = 200
"""With longer ones it is first asked whether the patterns alone decide: they have fewer states."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Matches all of `matching`, none of `avoiding`, is none of `excluded`, and has a length in the range."""

    matching: frozenset[str] = frozenset()
    avoiding: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    least: int = 0
    most: int | None = None


class TooMany(ValueError):
    """The patterns have more states, or larger ones, than are looked at."""


class Effort:
    """How much work patterns may be for one comparison; beyond that, they are given up at once."""

    def __init__(self, work: int = MOST_WORK_IN_ALL) -> None:
        self._left = work

    def spend(self, work: int) -> None:
        """Raises TooMany when nothing was left."""
        if self._left <= 0:
            raise TooMany("the patterns of these schemas are too much work in all")
        self._left -= work


def find_text(wanted: Wanted, effort: Effort) -> str | None:
    """A shortest text, or None when there is provably none. Raises Irregular or TooMany where that cannot be told."""
    if wanted.most is not None and wanted.most < wanted.least:
        return None
    if not wanted.matching and not wanted.avoiding:
        return _of_length(wanted)
    effort.spend(0)
    answer = _answer(wanted)
    effort.spend(answer.work)
    if answer.error is not None:
        raise answer.error
    return answer.text


class _Answer(NamedTuple):
    text: str | None
    error: Irregular | TooMany | None
    work: int


@lru_cache(maxsize=5_000)
def _answer(wanted: Wanted) -> _Answer:
    """The search in each dialect that counts."""
    ambiguous = any(is_ambiguous(pattern) for pattern in wanted.matching | wanted.avoiding)
    work = _Work()
    for dialect in Dialect if ambiguous else (Dialect.UNICODE,):
        try:
            found = _search(wanted, dialect, work)
        except (Irregular, TooMany) as error:
            return _Answer(None, error.with_traceback(None), work.done)
        if found is not None:
            return _Answer(found, None, work.done)
    return _Answer(None, None, work.done)


class _Work:
    """What one question costs."""

    def __init__(self) -> None:
        self.done = 0

    def spend(self, work: int) -> None:
        self.done += work
        if self.done > MOST_WORK:
            raise TooMany("the patterns are too much work together")


def _of_length(wanted: Wanted) -> str | None:
    """No patterns: any letters will do."""
    if len(wanted.excluded) > 10_000 or wanted.least > 1_000_000:
        raise TooMany("a text of that length is not written down")
    if wanted.most == 0:
        return None if "" in wanted.excluded else ""
    length = max(wanted.least, 1)
    candidates = ("a" * (length - len(str(number))) + str(number) for number in range(len(wanted.excluded) + 1))
    return next(text for text in ("a" * length, *candidates) if text not in wanted.excluded)


def _search(wanted: Wanted, dialect: Dialect, work: _Work) -> str | None:
    if max(wanted.least, wanted.most or 0) > SOON_COUNTED:
        text = _search_counting(wanted, dialect, work, SOON_COUNTED)
        if text is None or wanted.least <= len(text) <= (wanted.most if wanted.most is not None else len(text)):
            return text
    return _search_counting(wanted, dialect, work, LONGEST_COUNTED)


def _search_counting(wanted: Wanted, dialect: Dialect, work: _Work, longest: int) -> str | None:
    """The shortest text where lengths beyond the `longest` are let be: if there is none, there is none at all."""
    inside = [parse(pattern, dialect) for pattern in sorted(wanted.matching)]
    least = min(wanted.least, longest)
    most = wanted.most if wanted.most is not None and wanted.most <= longest else None
    if least or most is not None:
        inside.append(terms.repeat(terms.ANY, least, most))
    outside = [parse(pattern, dialect) for pattern in sorted(wanted.avoiding)]
    if wanted.excluded:
        outside.append(terms.choice(*(terms.literal(text) for text in sorted(wanted.excluded))))
    return _shortest(inside, outside, work)


def _shortest(inside: Sequence[Term], outside: Sequence[Term], work: _Work) -> str | None:
    """Breadth first over the derivatives of all terms side by side."""
    letters = _alphabet([*inside, *outside])
    derived = terms.Derivatives(work.spend)
    start = tuple(inside), tuple(outside)
    seen = {start}
    queue: deque[tuple[tuple[tuple[Term, ...], tuple[Term, ...]], str]] = deque([(start, "")])
    while queue:
        (left, right), text = queue.popleft()
        if all(term.nullable for term in left) and not any(term.nullable for term in right):
            return text
        for letter in letters:
            work.spend(len(left) + len(right))
            state = (
                tuple(derived.of(term, letter) for term in left),
                tuple(derived.of(term, letter) for term in right),
            )
            if state in seen or terms.NOTHING in state[0] or terms.EVERYTHING in state[1]:
                continue
            seen.add(state)
            if len(seen) > MOST_STATES:
                raise TooMany(f"the patterns have more than {MOST_STATES} states together")
            queue.append((state, text + chr(letter)))
    return None


def _alphabet(all_terms: Iterable[Term]) -> list[int]:
    """One character of each set of characters that no term tells apart, letters before signs."""
    starts: set[int] = {0, *(edge for low, high in terms.ANY.ranges for edge in (low, high + 1))}
    for term in all_terms:
        terms.boundaries(term, starts)
    ordered = sorted(starts)
    groups = [
        (low, high - 1)
        for low, high in zip(ordered, [*ordered[1:], terms.LAST + 1], strict=True)
        if low <= terms.LAST and not terms.SURROGATES[0] <= low <= terms.SURROGATES[1]
    ]
    return sorted(
        (_pleasant(low, high) for low, high in groups), key=lambda letter: (not chr(letter).isalnum(), letter)
    )


def _pleasant(low: int, high: int) -> int:
    """A character of the range that can be read."""
    return next((ord(char) for char in "axA0_- ." if low <= ord(char) <= high), low if low > 32 else min(high, 33))
