"""Arrays: what is known of the items of a counterexample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.nodes import Atom, Node
from posthouse.governance.evolution.json_schema.sequent import Nodes

Prove = Callable[[Nodes, Nodes], bool]


@dataclass(frozen=True)
class Position:
    """An index; `rest` stands for that index and all after it."""

    index: int
    known: Nodes
    rest: bool = False


class ArrayFacts:
    """What `facts` say of an array's items, when all of `goals` are false of it."""

    def __init__(self, facts: tuple[Atom, ...], goals: tuple[Atom, ...]) -> None:
        self._items: dict[int, set[Node]] = {}
        for atom in facts:
            if isinstance(atom, n.Item):
                self._items.setdefault(atom.index, set()).add(atom.value)
        self._rest = [(atom.maybe, atom.value) for atom in facts if isinstance(atom, n.Rest) and atom.maybe is not None]
        self.unique = any(isinstance(atom, n.Unique) for atom in facts)
        self.contained = [atom for atom in facts if isinstance(atom, n.ContainsAtLeast)]
        self.limited = [atom for atom in facts if isinstance(atom, n.ContainsAtMost)]
        repeated = any(isinstance(atom, n.Unique) for atom in goals)
        self.least = max(
            [atom.count for atom in facts if isinstance(atom, (n.MinItems, n.ContainsAtLeast))]
            + [atom.count + 1 for atom in goals if isinstance(atom, (n.MaxItems, n.ContainsAtMost))]
            + [2 if repeated else 0]
        )
        self.most = min(
            (
                *(atom.count for atom in facts if isinstance(atom, n.MaxItems)),
                *(atom.count - 1 for atom in goals if isinstance(atom, n.MinItems)),
            ),
            default=None,
        )
        self.tail = max([0, *(index + 1 for index in self._items), *(start for start, _ in self._rest)])
        """From here on all items are known alike."""

    def item(self, index: int) -> Nodes:
        """What is known of one item, if it is there."""
        known = set(self._items.get(index, ()))
        return frozenset(known | {value for start, value in self._rest if index >= start})

    def positions(self, start: int = 0) -> list[Position]:
        """All positions that items may have, from `start` on."""
        found = [Position(index, self.item(index)) for index in range(start, self.tail) if self.reaches(index)]
        tail = max(start, self.tail)
        return [*found, Position(tail, self.item(tail), rest=True)] if self.reaches(tail) else found

    def reaches(self, index: int) -> bool:
        """Whether there may be an item at the index."""
        return self.most is None or index < self.most

    def contradictory(self) -> bool:
        """Whether there is no such array, at a glance."""
        return self.most is not None and self.least > self.most

    def unsatisfiable(self, prove: Prove) -> bool:
        """Whether there is no such array: an item that must be there cannot."""
        for position in self.positions():
            if prove(position.known, frozenset()):
                self.most = position.index
                break
        return self.contradictory() or any(
            all(prove(position.known | {atom.item}, frozenset()) for position in self.positions())
            for atom in self.contained
        )


def covered(atom: Atom, facts: ArrayFacts) -> list[Position]:
    """The positions that the goal is about."""
    if isinstance(atom, n.Item):
        return [Position(atom.index, facts.item(atom.index))] if facts.reaches(atom.index) else []
    return facts.positions(atom.sure) if isinstance(atom, n.Rest) else []


def shown(atom: Atom, facts: ArrayFacts, prove: Prove) -> bool:
    """Whether a goal about how many items are of some sort holds."""
    match atom:
        case n.ContainsAtLeast():
            return _enough(atom, facts, prove)
        case n.ContainsAtMost():
            return _not_too_many(atom, facts, prove)
        case n.Unique():
            return facts.unique
        case _:
            return False


def _enough(atom: n.ContainsAtLeast, facts: ArrayFacts, prove: Prove) -> bool:
    wanted = frozenset((atom.item,))
    for known in facts.contained:
        if known.count >= atom.count and all(
            prove(position.known | {known.item}, wanted) for position in facts.positions()
        ):
            return True
    count = 0
    for position in facts.positions():
        if position.index < facts.least and prove(position.known, wanted):
            count += facts.least - position.index if position.rest else 1
    return count >= atom.count


def _not_too_many(atom: n.ContainsAtMost, facts: ArrayFacts, prove: Prove) -> bool:
    for known in facts.limited:
        if known.count <= atom.count and all(
            prove(position.known | {atom.item}, frozenset((known.item,))) for position in facts.positions()
        ):
            return True
    count = 0
    for position in facts.positions():
        if not prove(position.known | {atom.item}, frozenset()):
            if position.rest:
                return False
            count += 1
    return count <= atom.count
