"""What a JSON Schema says, as a formula: atoms, each about one thing, joined by and, or, not.

An atom holds for every value that it does not speak of, as the keywords of JSON Schema do: `minLength` holds for a number. Nodes are
interned in a `Pool`, so that two parts of two documents that say the same are one object, and sets of nodes are cheap to compare.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import ClassVar, TypeVar

from posthouse.governance.evolution.json_schema.texts import Effort

Kind = str
Scalar = tuple[Kind, bool | Fraction | str | None]
"""A value that is no container, with its kind."""

INTEGER, FRACTION, STRING, BOOLEAN, NULL, ARRAY, OBJECT = (
    "integer", "fraction", "string", "boolean", "null", "array", "object",
)  # fmt: skip
KINDS = frozenset((INTEGER, FRACTION, STRING, BOOLEAN, NULL, ARRAY, OBJECT))
"""Every value is of one kind. JSON Schema's `number` is integer or fraction; 1.0 is an integer."""
NUMBERS = frozenset((INTEGER, FRACTION))


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """Equal when identical: see Pool."""


@dataclass(frozen=True, eq=False, slots=True)
class All(Node):
    """Every part holds; none at all is true."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Some(Node):
    """At least one part holds; none at all is false."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Exactly(Node):
    """One part holds and the others do not."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Not(Node):
    """The part does not hold."""

    part: Node


@dataclass(frozen=True, eq=False, slots=True)
class Link(Node):
    """A schema that is being read: recursion. `Pool.follow` has what it stands for."""

    document: str
    pointer: str


@dataclass(frozen=True, eq=False, slots=True)
class Atom(Node):
    """Speaks of values of the kinds in `speaks_of`, and holds for all others."""

    speaks_of: ClassVar[frozenset[Kind]] = KINDS


@dataclass(frozen=True, eq=False, slots=True)
class Kinds(Atom):
    """`type`"""

    kinds: frozenset[Kind]


@dataclass(frozen=True, eq=False, slots=True)
class Values(Atom):
    """`enum`, `const`; containers among them are spelled out as formulas instead."""

    scalars: frozenset[Scalar]


@dataclass(frozen=True, eq=False, slots=True)
class Opaque(Atom):
    """A keyword that is only known to be the same or not."""

    keyword: str
    text: str


@dataclass(frozen=True, eq=False, slots=True)
class _OfNumbers(Atom):
    speaks_of: ClassVar[frozenset[Kind]] = NUMBERS


@dataclass(frozen=True, eq=False, slots=True)
class AtLeast(_OfNumbers):
    """`minimum`, `exclusiveMinimum`"""

    bound: Fraction
    open: bool


@dataclass(frozen=True, eq=False, slots=True)
class AtMost(_OfNumbers):
    """`maximum`, `exclusiveMaximum`"""

    bound: Fraction
    open: bool


@dataclass(frozen=True, eq=False, slots=True)
class MultipleOf(_OfNumbers):
    """`multipleOf`"""

    step: Fraction


@dataclass(frozen=True, eq=False, slots=True)
class _OfStrings(Atom):
    speaks_of: ClassVar[frozenset[Kind]] = frozenset((STRING,))


@dataclass(frozen=True, eq=False, slots=True)
class MinLength(_OfStrings):
    """`minLength`"""

    length: int


@dataclass(frozen=True, eq=False, slots=True)
class MaxLength(_OfStrings):
    """`maxLength`"""

    length: int


@dataclass(frozen=True, eq=False, slots=True)
class Pattern(_OfStrings):
    """`pattern`"""

    pattern: str


@dataclass(frozen=True, eq=False, slots=True)
class Format(_OfStrings):
    """`format`, as a reader that asserts it. Where formats are annotations it says nothing on both sides."""

    format: str


@dataclass(frozen=True, eq=False, slots=True)
class _OfObjects(Atom):
    speaks_of: ClassVar[frozenset[Kind]] = frozenset((OBJECT,))


@dataclass(frozen=True, eq=False, slots=True)
class Required(_OfObjects):
    """One name of `required`"""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Property(_OfObjects):
    """One entry of `properties`"""

    name: str
    value: Node


@dataclass(frozen=True, eq=False, slots=True)
class PatternProperty(_OfObjects):
    """One entry of `patternProperties`"""

    pattern: str
    value: Node


@dataclass(frozen=True, slots=True)
class Named:
    """A set of property names: those listed, and those that match a pattern."""

    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()

    def __or__(self, other: Named) -> Named:
        return Named(self.names | other.names, self.patterns | other.patterns)


@dataclass(frozen=True, eq=False, slots=True)
class Others(_OfObjects):
    """`additionalProperties`, `unevaluatedProperties`: the values of all names but some.

    Which names are exempt may depend on the value. `sure` are so always, `maybe` at times: None is any name.
    """

    sure: Named
    maybe: Named | None
    value: Node


@dataclass(frozen=True, eq=False, slots=True)
class Names(_OfObjects):
    """`propertyNames`"""

    name: Node


@dataclass(frozen=True, eq=False, slots=True)
class MinProperties(_OfObjects):
    """`minProperties`"""

    count: int


@dataclass(frozen=True, eq=False, slots=True)
class MaxProperties(_OfObjects):
    """`maxProperties`"""

    count: int


@dataclass(frozen=True, eq=False, slots=True)
class _OfArrays(Atom):
    speaks_of: ClassVar[frozenset[Kind]] = frozenset((ARRAY,))


@dataclass(frozen=True, eq=False, slots=True)
class Item(_OfArrays):
    """One entry of `prefixItems`"""

    index: int
    value: Node


@dataclass(frozen=True, eq=False, slots=True)
class Rest(_OfArrays):
    """`items`, `additionalItems`, `unevaluatedItems`: all items from an index on.

    How many are exempt may depend on the value: `sure` are so always, and never more than `maybe`: None is any number.
    """

    sure: int
    maybe: int | None
    value: Node


@dataclass(frozen=True, eq=False, slots=True)
class MinItems(_OfArrays):
    """`minItems`"""

    count: int


@dataclass(frozen=True, eq=False, slots=True)
class MaxItems(_OfArrays):
    """`maxItems`"""

    count: int


@dataclass(frozen=True, eq=False, slots=True)
class Unique(_OfArrays):
    """`uniqueItems`"""


@dataclass(frozen=True, eq=False, slots=True)
class ContainsAtLeast(_OfArrays):
    """`contains` with `minContains`"""

    item: Node
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class ContainsAtMost(_OfArrays):
    """`contains` with `maxContains`"""

    item: Node
    count: int


N = TypeVar("N", bound=Node)

_FIELDS: dict[type[Node], tuple[str, ...]] = {}


class Pool:
    """Interns nodes and remembers what links stand for."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Node] = {}
        self._targets: dict[Link, Node] = {}
        self._kinds: dict[Node, frozenset[Kind]] = {}
        self._exclusive: dict[tuple[Node, ...], tuple[Node, ...]] = {}
        self.built: dict[tuple[object, object], Node] = {}
        """Whole documents that are formulas already."""
        self.effort = Effort()
        self.shared: dict[str, Node] = {}
        """Schemas without references in them, by their text."""
        self.true = self.of(All(()))
        self.false = self.of(Some(()))

    def of(self, node: N) -> N:
        """The one node of this content."""
        kind = type(node)
        names = _FIELDS.get(kind)
        if names is None:
            names = _FIELDS[kind] = tuple(field.name for field in fields(node))
        key = (kind, *[getattr(node, name) for name in names])
        known = self._known.setdefault(key, node)
        assert isinstance(known, kind)
        return known

    def all(self, parts: list[Node]) -> Node:
        """And, flattened."""
        flat: dict[Node, None] = {}
        for part in parts:
            flat |= dict.fromkeys(part.parts if isinstance(part, All) else (part,))
        if self.false in flat:
            return self.false
        return next(iter(flat)) if len(flat) == 1 else self.of(All(tuple(flat)))

    def some(self, parts: list[Node]) -> Node:
        """Or, flattened."""
        flat: dict[Node, None] = {}
        for part in parts:
            flat |= dict.fromkeys(part.parts if isinstance(part, Some) else (part,))
        if self.true in flat:
            return self.true
        return next(iter(flat)) if len(flat) == 1 else self.of(Some(tuple(flat)))

    def negation(self, part: Node) -> Node:
        """Not, without pairs of them."""
        if isinstance(part, Not):
            return part.part
        if isinstance(part, Kinds):
            return self.of(Kinds(KINDS - part.kinds))
        return self.false if part is self.true else self.true if part is self.false else self.of(Not(part))

    def exclusive(self, parts: tuple[Node, ...]) -> tuple[Node, ...]:
        """What `Exactly` means: at least one, and no two. There are as many pairs as the square of the parts, so they are kept."""
        known = self._exclusive.get(parts)
        if known is None:
            pairs = [
                self.negation(self.all([one, other]))
                for at, one in enumerate(parts)
                for other in parts[at + 1 :]
                if self.kinds_of(one) & self.kinds_of(other)
            ]
            known = self._exclusive[parts] = (self.some(list(parts)), *pairs)
        return known

    def link(self, link: Link, target: Node) -> None:
        """What a link stands for."""
        self._targets[link] = target

    def follow(self, link: Link) -> Node:
        """The schema behind a link."""
        return self._targets[link]

    def kinds_of(self, node: Node) -> frozenset[Kind]:
        """Kinds that values of the node may have; never too few."""
        known = self._kinds.get(node)
        if known is None:
            known = self._kinds[node] = self._kinds_of(node)
        return known

    def _kinds_of(self, node: Node) -> frozenset[Kind]:
        match node:
            case Kinds():
                return node.kinds
            case Values():
                return frozenset(kind for kind, _ in node.scalars)
            case All():
                return KINDS.intersection(*map(self.kinds_of, node.parts))
            case Some() | Exactly():
                return frozenset().union(*map(self.kinds_of, node.parts))
            case Link():
                return self.kinds_of(self.follow(node))
            case _:
                return KINDS
