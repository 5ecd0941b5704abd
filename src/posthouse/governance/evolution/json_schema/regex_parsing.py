"""Reads the regular expressions of JSON Schema (ECMA-262), as far as they are regular in earnest.

Look-around, back references, word boundaries, Unicode properties and anchors in the middle are refused: a pattern that holds one
is compared by its text alone.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from posthouse.governance.evolution.json_schema import regex_terms as terms
from posthouse.governance.evolution.json_schema.regex_terms import Range, Term

LONGEST = 2_000
MOST_REPEATS = 1_000

DIGIT: list[Range] = [(48, 57)]
WORD: list[Range] = [(48, 57), (65, 90), (95, 95), (97, 122)]
CONTROL = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
LINE_ENDS: list[Range] = [(10, 10), (13, 13), (0x2028, 0x2029)]
SPACE: list[Range] = [
    (9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
]  # fmt: skip


class Dialect(Enum):
    """Engines differ in what `.` means; what is proven must hold in either reading."""

    ECMA = "ecma"
    UNICODE = "unicode"


class Irregular(ValueError):
    """A pattern that is not, or not provably, a regular language."""


class _Start:
    """`^`"""


class _End:
    """`$`"""


Piece = Term | _Start | _End


def is_ambiguous(pattern: str) -> bool:
    """Whether the dialects may differ on it."""
    return "." in pattern


@lru_cache(maxsize=2_000)
def parse(pattern: str, dialect: Dialect) -> Term:
    """The texts in which the pattern is found somewhere, as JSON Schema matches. Raises Irregular."""
    if len(pattern) > LONGEST:
        raise Irregular(f"longer than {LONGEST} characters")
    reader = _Reader(pattern, dialect)
    branches = reader.alternatives()
    if reader.rest():
        raise Irregular("a closing bracket without an opening one")
    return terms.choice(*(_searched(branch) for branch in branches))


def _searched(branch: list[Piece]) -> Term:
    """One alternative with its anchors; without them anything may stand around it."""
    before: Term = terms.EVERYTHING
    after: Term = terms.EVERYTHING
    while branch and isinstance(branch[0], _Start):
        branch, before = branch[1:], terms.EMPTY
    while branch and isinstance(branch[-1], _End):
        branch, after = branch[:-1], terms.EMPTY
    return terms.sequence(before, terms.sequence(_plain(branch), after))


def _plain(branch: list[Piece]) -> Term:
    term: Term = terms.EMPTY
    for piece in reversed(branch):
        if isinstance(piece, (_Start, _End)):
            raise Irregular("an anchor in the middle")
        term = terms.sequence(piece, term)
    return term


def _is_count(digits: str) -> bool:
    return digits.isascii() and digits.isdecimal() and len(digits) < 8


class _Reader:
    """A recursive descent over the text of a pattern."""

    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self._text, self._at, self._dialect = pattern, 0, dialect
        self._depth = 0

    def rest(self) -> str:
        """What has not been read."""
        return self._text[self._at :]

    def alternatives(self) -> list[list[Piece]]:
        """Everything up to a closing bracket or the end."""
        branches = [self._branch()]
        while self._take("|"):
            branches.append(self._branch())
        return branches

    def _branch(self) -> list[Piece]:
        pieces: list[Piece] = []
        while self.rest() and self._text[self._at] not in "|)":
            pieces.append(self._quantified())
        return pieces

    def _quantified(self) -> Piece:
        piece = self._piece()
        bounds = self._quantifier()
        if bounds is None:
            return piece
        if isinstance(piece, (_Start, _End)):
            raise Irregular("a repeated anchor")
        self._take("?")  # lazy or greedy: the same texts match
        if self.rest()[:1] and self.rest()[0] in "*+{?":
            raise Irregular("a quantifier of a quantifier")
        return terms.repeat(piece, *bounds)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(sign):
                return least, most
        if not self._take("{"):
            return None
        inside, closed, after = self.rest().partition("}")
        first, comma, last = inside.partition(",")
        if not closed or not _is_count(first) or (last and not _is_count(last)):
            raise Irregular("a brace that is no quantifier")
        self._at = len(self._text) - len(after)
        low = int(first)
        high = (int(last) if last else None) if comma else low
        if max(low, high or 0) > MOST_REPEATS or (high is not None and high < low):
            raise Irregular("a quantifier out of range")
        return low, high

    def _piece(self) -> Piece:
        char = self._next()
        match char:
            case "^":
                return _Start()
            case "$":
                return _End()
            case "(":
                return self._group()
            case "[":
                return terms.chars(self._set())
            case ".":
                return terms.chars(terms.complement(LINE_ENDS if self._dialect is Dialect.ECMA else [(10, 10)]))
            case "\\":
                return terms.chars(self._escape())
            case "*" | "+" | "?" | "{":
                raise Irregular("a quantifier of nothing")
            case _:
                return terms.chars([(ord(char), ord(char))])

    def _group(self) -> Term:
        if self.rest().startswith("?") and not self._take("?:"):
            raise Irregular("look-around, a named group or flags")
        self._depth += 1
        if self._depth > 50:
            raise Irregular("groups nested too deep")
        branches = self.alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise Irregular("a bracket that is not closed")
        return terms.choice(*(_plain(branch) for branch in branches))

    def _set(self) -> list[Range]:
        negated = self._take("^")
        found: list[Range] = []
        while not self._take("]"):
            low = self._member()
            if (
                len(low) == 1
                and low[0][0] == low[0][1]
                and self.rest().startswith("-")
                and self.rest()[1:2] not in ("", "]")
            ):
                self._at += 1
                high = self._member()
                if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                    raise Irregular("a range that is none")
                low = [(low[0][0], high[0][0])]
            found += low
        return terms.complement(found) if negated else found

    def _member(self) -> list[Range]:
        char = self._next()
        if char == "\\":
            return [(8, 8)] if self._take("b") else self._escape()
        if char == "[" or (char in "&~" and self.rest().startswith(char)):
            raise Irregular("set arithmetic, which engines read differently")
        return [(ord(char), ord(char))]

    def _escape(self) -> list[Range]:
        char = self._next()
        classes = {"d": DIGIT, "w": WORD, "s": SPACE}
        if char.lower() in classes:
            ranges = classes[char.lower()]
            return ranges if char.islower() else terms.complement(ranges)
        if char in CONTROL and not (char == "0" and self.rest()[:1].isdigit()):
            return [(CONTROL[char], CONTROL[char])]
        if char in "xu":
            digits = self.rest()[: 2 if char == "x" else 4]
            if len(digits) < (2 if char == "x" else 4) or any(
                digit not in "0123456789abcdefABCDEF" for digit in digits
            ):
                raise Irregular("an escape that is not complete")
            self._at += len(digits)
            return [(int(digits, 16), int(digits, 16))]
        if char.isalnum():
            raise Irregular(f"\\{char}")
        return [(ord(char), ord(char))]

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise Irregular("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True
