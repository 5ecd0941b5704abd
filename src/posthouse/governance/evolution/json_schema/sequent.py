"""A question: do all values for which `left` holds satisfy one of `right`? And what is left of it after the obvious steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.nodes import Atom, Kind, Node, Pool

Nodes = frozenset[Node]
Choice = n.Some | n.Exactly


@dataclass(frozen=True)
class Sequent:
    """`facts` hold and one of each of `choices` does; to show: one of `goals`, or all parts of one of `bundles`.

    A goal that is not to be shown may be taken as false: what is right of the question is a list of things that all fail in a
    counterexample. `kinds` are those that a counterexample may have.
    """

    facts: tuple[Atom, ...]
    choices: tuple[Choice, ...]
    goals: tuple[Atom, ...]
    bundles: tuple[tuple[Node, ...], ...]
    kinds: frozenset[Kind]

    def left(self, *, without: int | None = None) -> set[Node]:
        """The left side again, without one of the choices."""
        return {*self.facts, *(choice for at, choice in enumerate(self.choices) if at != without)}


Meter = Callable[[int], None]
"""Is told of work before it is done, and raises where it is too much."""


class _Shown(Exception):
    """The answer is yes."""


def reduce(pool: Pool, left: Nodes, right: Nodes, spend: Meter) -> Sequent | None:
    """The question after every step that needs no guess; None when the answer is yes. `spend` is told of each step."""
    try:
        return _Reduction(pool, left, right, spend).result()
    except _Shown:
        return None


class _Reduction:
    def __init__(self, pool: Pool, left: Nodes, right: Nodes, spend: Meter) -> None:
        self._pool = pool
        self._spend = spend
        self._true: dict[Node, None] = {}
        self._false: dict[Node, None] = {}
        self._choices: list[Choice] = []
        self._bundles: list[tuple[Node, ...]] = []
        self._kinds = n.KINDS
        for node in left:
            self._hold(node)
        for node in right:
            self._fail(node)

    def result(self) -> Sequent:
        while self._narrow():
            pass
        facts = tuple(node for node in self._true if isinstance(node, Atom) and not isinstance(node, n.Kinds))
        goals = tuple(node for node in self._false if isinstance(node, Atom) and not isinstance(node, n.Kinds))
        return Sequent(
            (*facts, self._pool.of(n.Kinds(self._kinds))),
            tuple(self._choices),
            goals,
            tuple(self._bundles),
            self._kinds,
        )

    def _hold(self, node: Node) -> None:
        """It is true of a counterexample."""
        self._spend(1)
        if node in self._true:
            return
        if node in self._false:
            raise _Shown
        self._true[node] = None
        match node:
            case n.All():
                for part in node.parts:
                    self._hold(part)
            case n.Not():
                self._fail(node.part)
            case n.Link():
                self._hold(self._pool.follow(node))
            case n.Some() | n.Exactly():
                self._choices.append(node)
            case n.Kinds() | n.Values():
                self._narrow_kinds(self._pool.kinds_of(node))

    def _fail(self, node: Node) -> None:
        """It is false of a counterexample."""
        self._spend(1)
        if node in self._false:
            return
        if node in self._true:
            raise _Shown
        self._false[node] = None
        match node:
            case n.Some():
                for part in node.parts:
                    self._fail(part)
            case n.Not():
                self._hold(node.part)
            case n.Link():
                self._fail(self._pool.follow(node))
            case n.All():
                self._bundles.append(node.parts)
            case n.Exactly():
                self._spend(4 * len(node.parts) ** 2)  # a pair is a new node, of all parts of two
                self._bundles.append(self._pool.exclusive(node.parts))
            case n.Kinds():
                self._narrow_kinds(n.KINDS - node.kinds)

    def _narrow_kinds(self, kinds: frozenset[Kind]) -> None:
        self._kinds &= kinds
        if not self._kinds:
            raise _Shown

    def _narrow(self) -> bool:
        """Drop what is decided by what is known; True when something new became known."""
        known = len(self._true) + len(self._false)
        choices, self._choices = self._choices, []
        for choice in choices:
            self._choose(choice)
        bundles, self._bundles = self._bundles, []
        for parts in bundles:
            self._bundle(parts)
        return len(self._true) + len(self._false) > known

    def _choose(self, choice: Choice) -> None:
        parts = choice.parts
        self._spend(len(parts))
        holding = sum(part in self._true for part in parts)
        if holding > 1 and isinstance(choice, n.Exactly):
            raise _Shown
        if holding:
            return
        open_parts = tuple(
            part for part in parts if part not in self._false and self._pool.kinds_of(part) & self._kinds
        )
        if not open_parts:
            raise _Shown
        if len(open_parts) == 1:
            self._hold(open_parts[0])
        elif isinstance(choice, n.Some):
            self._choices.append(self._pool.of(n.Some(open_parts)))
        else:
            self._choices.append(self._pool.of(n.Exactly(open_parts)))

    def _bundle(self, parts: tuple[Node, ...]) -> None:
        self._spend(len(parts))
        kinds_of, kinds = self._pool.kinds_of, self._kinds
        open_parts: list[Node] = []
        for part in parts:  # a large union spends most of its time here
            if part in self._false or kinds.isdisjoint(kinds_of(part)):
                return
            if part not in self._true and not self._settled(part):
                open_parts.append(part)
        if not open_parts:
            raise _Shown
        if len(open_parts) == 1:
            self._fail(open_parts[0])
        else:
            self._bundles.append(tuple(open_parts))

    def _settled(self, part: Node) -> bool:
        """Whether the part holds for all kinds that are left."""
        if isinstance(part, n.Kinds):
            return self._kinds <= part.kinds
        return isinstance(part, Atom) and part.speaks_of.isdisjoint(self._kinds)
