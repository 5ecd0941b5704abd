"""Values that are written down, as formulas: nothing but this value holds."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.nodes import Node, Pool


def scalar(value: object) -> n.Scalar:
    """A value that is no container, with its kind; numbers are exact."""
    if value is None:
        return n.NULL, None
    if isinstance(value, bool):
        return n.BOOLEAN, value
    if isinstance(value, (int, float, Decimal)):
        number = exact(value)
        return (n.INTEGER if number.denominator == 1 else n.FRACTION), number
    return n.STRING, str(value)


def exact(value: object) -> Fraction:
    """A number as it is written."""
    if isinstance(value, (int, Decimal)):
        return Fraction(value)
    return Fraction(repr(value))


def exactly(pool: Pool, value: object) -> Node:
    """The formula that holds for this value alone."""
    if isinstance(value, dict):
        return _object(pool, value)
    if isinstance(value, list):
        return _array(pool, value)
    return pool.of(n.Values(frozenset((scalar(value),))))


def _object(pool: Pool, value: dict[str, object]) -> Node:
    names = n.Named(frozenset(value))
    parts: list[Node] = [pool.of(n.Kinds(frozenset((n.OBJECT,)))), pool.of(n.Others(names, names, pool.false))]
    for name, inner in value.items():
        parts += [pool.of(n.Required(name)), pool.of(n.Property(name, exactly(pool, inner)))]
    return pool.all(parts)


def _array(pool: Pool, value: list[object]) -> Node:
    count = len(value)
    parts: list[Node] = [
        pool.of(n.Kinds(frozenset((n.ARRAY,)))), pool.of(n.MinItems(count)), pool.of(n.MaxItems(count)),
    ]  # fmt: skip
    parts += [pool.of(n.Item(index, exactly(pool, inner))) for index, inner in enumerate(value)]
    return pool.all(parts)
