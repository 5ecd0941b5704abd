"""Numbers between bounds, on a grid, with exceptions: is there one left?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.nodes import Atom, Kind

MOST_TRIED = 5_000
ONE = Fraction(1)


class Undecided(Exception):
    """Neither a value was found nor the proof that there is none."""


@dataclass
class _Bounds:
    low: Fraction | None = None
    high: Fraction | None = None
    low_open: bool = False
    high_open: bool = False
    step: Fraction | None = None
    off: list[Fraction] = field(default_factory=list)
    """Multiples of these are not wanted."""

    def raise_low(self, bound: Fraction, *, is_open: bool) -> None:
        if self.low is None or bound > self.low or (bound == self.low and is_open):
            self.low, self.low_open = bound, is_open

    def lower_high(self, bound: Fraction, *, is_open: bool) -> None:
        if self.high is None or bound < self.high or (bound == self.high and is_open):
            self.high, self.high_open = bound, is_open

    def empty(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))


def find_number(
    kind: Kind, holding: Iterable[Atom], failing: Iterable[Atom], excluded: set[Fraction]
) -> Fraction | None:
    """A number of the kind, nearest to zero where that is easy; None when there is provably none. Raises Undecided."""
    bounds = _bounds(holding, failing)
    if kind == n.INTEGER:
        bounds.step = ONE if bounds.step is None else _common(bounds.step, ONE)
    if bounds.empty():
        return None
    if bounds.step is not None:
        return _on_grid(kind, bounds, bounds.step, excluded)
    return _anywhere(bounds, excluded)


def plain_number(value: Fraction) -> int | float:
    """A number as JSON libraries have it."""
    return int(value) if value.denominator == 1 else float(value)


def _bounds(holding: Iterable[Atom], failing: Iterable[Atom]) -> _Bounds:
    bounds = _Bounds()
    for atom in holding:
        match atom:
            case n.AtLeast():
                bounds.raise_low(atom.bound, is_open=atom.open)
            case n.AtMost():
                bounds.lower_high(atom.bound, is_open=atom.open)
            case n.MultipleOf():
                bounds.step = atom.step if bounds.step is None else _common(bounds.step, atom.step)
    for atom in failing:
        match atom:
            case n.AtLeast():
                bounds.lower_high(atom.bound, is_open=not atom.open)
            case n.AtMost():
                bounds.raise_low(atom.bound, is_open=not atom.open)
            case n.MultipleOf():
                bounds.off.append(atom.step)
    return bounds


def _common(one: Fraction, other: Fraction) -> Fraction:
    """The least common multiple of two fractions."""
    return Fraction(math.lcm(one.numerator, other.numerator), math.gcd(one.denominator, other.denominator))


def _on_grid(kind: Kind, bounds: _Bounds, step: Fraction, excluded: set[Fraction]) -> Fraction | None:
    for tried, factor in enumerate(_factors(bounds, step)):
        if tried > MOST_TRIED:
            break
        value = factor * step
        if _fits(kind, value, bounds.off, excluded):
            return value
    else:
        return None
    if _period(kind, step, bounds.off) + len(excluded) <= MOST_TRIED // 2:
        return None
    raise Undecided


def _factors(bounds: _Bounds, step: Fraction) -> Iterator[int]:
    """The factors of the step within the bounds, small ones first."""
    low = None if bounds.low is None else math.ceil(bounds.low / step)
    high = None if bounds.high is None else math.floor(bounds.high / step)
    if low is not None and bounds.low_open and low * step == bounds.low:
        low += 1
    if high is not None and bounds.high_open and high * step == bounds.high:
        high -= 1
    if low is not None and high is not None and low > high:
        return
    start = min(max(0, low if low is not None else 0), high) if high is not None else max(0, low or 0)
    up, down = start, start - 1
    while True:
        more = False
        if high is None or up <= high:
            yield up
            up, more = up + 1, True
        if low is None or down >= low:
            yield down
            down, more = down - 1, True
        if not more:
            return


def _fits(kind: Kind, value: Fraction, off: list[Fraction], excluded: set[Fraction]) -> bool:
    if (value.denominator == 1) != (kind == n.INTEGER) or value in excluded:
        return False
    return all((value / step).denominator != 1 for step in off)


def _period(kind: Kind, step: Fraction, off: list[Fraction]) -> int:
    """After so many steps all that was looked at begins again."""
    whole = step
    for other in (*off, ONE):
        whole = _common(whole, other)
    return int(whole / step)


def _anywhere(bounds: _Bounds, excluded: set[Fraction]) -> Fraction | None:
    """A fraction that can be written in decimals."""
    if bounds.low is not None and bounds.low == bounds.high:
        return bounds.low if _fits(n.FRACTION, bounds.low, bounds.off, excluded) else None
    low = bounds.low if bounds.low is not None else (bounds.high - 2 if bounds.high is not None else Fraction(0))
    high = bounds.high if bounds.high is not None else max(low, Fraction(0)) + 2
    for digits in range(1, 16):
        unit = Fraction(1, 10**digits)
        first = math.floor(low / unit) + 1
        for factor in range(first, first + 40):
            value = factor * unit
            if low < value < high and _fits(n.FRACTION, value, bounds.off, excluded):
                return value
    raise Undecided
