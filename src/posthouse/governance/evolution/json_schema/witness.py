"""Looks for values: some for which all of `left` holds and none of `right` does.

What it finds is a candidate, to be checked by a validator; it takes short cuts. It follows the same steps as the proof, the other way
round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from posthouse.governance.evolution.json_schema import arrays, objects
from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.arrays import ArrayFacts
from posthouse.governance.evolution.json_schema.literals import exactly, scalar
from posthouse.governance.evolution.json_schema.nodes import Atom, Kind, Node
from posthouse.governance.evolution.json_schema.numbers import Undecided
from posthouse.governance.evolution.json_schema.objects import Member, Naming, ObjectFacts
from posthouse.governance.evolution.json_schema.proving import NONE, NONE_NAMED, Prover, TooMuchWork
from posthouse.governance.evolution.json_schema.scalars import find_scalar, plain
from posthouse.governance.evolution.json_schema.sequent import Nodes, Sequent, reduce

MOST_STEPS = 3_000
MOST_WORK = 500_000
"""Of all steps together."""
DEEPEST = 12
DEEPEST_GIVEN = 60
"""Where a value is given it may be deeper than one that would be made up."""
LONGEST = 200
MOST_NAMES = 4
MOST_PLACEMENTS = 12
KIND_ORDER = (n.OBJECT, n.STRING, n.INTEGER, n.BOOLEAN, n.FRACTION, n.ARRAY, n.NULL)


class Finder:
    """A search with a budget: `allow` gives it some of what is left."""

    def __init__(self, prover: Prover, budget: int = MOST_STEPS) -> None:
        self._prover, self._pool = prover, prover.pool
        self._budget = budget
        self._steps = 0
        self._work = MOST_WORK
        self.allow(budget)

    def allow(self, steps: int) -> None:
        """So many steps for what comes next."""
        self._budget += max(0, self._steps)
        self._steps = min(steps, self._budget)
        self._budget -= self._steps

    def _spend(self, work: int) -> None:
        self._work -= work
        if self._work < 0:
            raise TooMuchWork

    def values(self, left: Nodes, right: Nodes, fuel: int = DEEPEST) -> Iterator[object]:
        """Candidates, the plainest first."""
        self._steps -= 1
        if self._steps < 0 or fuel < 0:
            return
        try:
            sequent = reduce(self._pool, left, right, self._spend)
        except TooMuchWork:
            return
        if sequent is None:
            return
        if sequent.bundles:
            yield from self._break_one(sequent, fuel)
        elif sequent.choices:
            for known, others in self._prover.branches(sequent):
                yield from self.values(known, frozenset(sequent.goals) | others, fuel)
        else:
            for kind in KIND_ORDER:
                if kind in sequent.kinds and all(kind in goal.speaks_of for goal in sequent.goals):
                    yield from self._of_kind(kind, sequent, fuel)

    def holding(self, left: Nodes, name: str | int, value: object) -> Iterator[object]:
        """Containers of `left` with a given member or item."""
        inner = exactly(self._pool, value)
        more: list[Node] = [self._pool.of(n.Kinds(frozenset((n.OBJECT if isinstance(name, str) else n.ARRAY,))))]
        if isinstance(name, str):
            more += [self._pool.of(n.Required(name)), self._pool.of(n.Property(name, inner))]
        else:
            more += [self._pool.of(n.MinItems(name + 1)), self._pool.of(n.Item(name, inner))]
        yield from self.values(left | frozenset(more), NONE, DEEPEST_GIVEN)

    def names(self, suggested: str | int | None, naming: Naming | None) -> Iterator[str | int]:
        """Names of a group, or the one that is meant."""
        if suggested is not None:
            yield suggested
        if naming is not None:
            found = islice(self.values(naming.holding, naming.failing), MOST_NAMES)
            yield from (name for name in found if isinstance(name, str) and name != suggested)

    def _break_one(self, sequent: Sequent, fuel: int) -> Iterator[object]:
        """Of every bundle one part must fail."""
        known = frozenset(sequent.left())
        others = frozenset(self._pool.of(n.All(parts)) for parts in sequent.bundles[1:])
        for part in sequent.bundles[0]:
            yield from self.values(known, frozenset(sequent.goals) | others | {part}, fuel)

    def _of_kind(self, kind: Kind, sequent: Sequent, fuel: int) -> Iterator[object]:
        facts = tuple(atom for atom in sequent.facts if kind in atom.speaks_of)
        if kind == n.OBJECT:
            yield from self._objects(facts, sequent.goals, fuel)
        elif kind == n.ARRAY:
            yield from self._arrays(facts, sequent.goals, fuel)
        else:
            yield from self._scalars(kind, facts, sequent.goals)

    def _scalars(self, kind: Kind, facts: tuple[Atom, ...], goals: tuple[Atom, ...]) -> Iterator[object]:
        for _ in range(4):
            try:
                found = find_scalar(kind, facts, goals, self._pool.effort)
            except Undecided:
                return
            if found is None:
                return
            yield plain(found)
            goals = (*goals, n.Values(frozenset((found,))))

    def _objects(self, atoms: tuple[Atom, ...], goals: tuple[Atom, ...], fuel: int) -> Iterator[object]:
        if any(isinstance(atom, n.Values) for atom in atoms):
            return
        facts = ObjectFacts(self._pool, atoms, goals)
        if facts.contradictory():
            return
        for demands in self._demands(goals, facts, {}):
            made = self._object(facts, demands, fuel)
            if made is not None:
                yield made

    def _demands(
        self, goals: tuple[Atom, ...], facts: ObjectFacts, so_far: dict[str, Nodes]
    ) -> Iterator[dict[str, Nodes]]:
        """Members that must be there, with what their values must not be."""
        if not goals:
            yield so_far
            return
        goal, rest = goals[0], goals[1:]
        if isinstance(goal, n.Names):
            for name in islice(self._bad_names(goal, facts), 3):
                yield from self._demands(rest, facts, {name: NONE, **so_far})
        elif isinstance(goal, (n.Property, n.PatternProperty, n.Others)):
            for member in objects.covered(goal, facts):
                if self._shown(member.known, frozenset((goal.value,))):
                    continue
                for name in islice(self._possible_names(facts, member), 2):
                    bad = so_far.get(name, NONE) | {goal.value}
                    yield from self._demands(rest, facts, {**so_far, name: bad})
        else:
            yield from self._demands(rest, facts, so_far)

    def _bad_names(self, goal: n.Names, facts: ObjectFacts) -> Iterator[str]:
        wrong = frozenset((goal.name,))
        for name in sorted(facts.explicit):
            if not self._shown(frozenset((exactly(self._pool, name),)), wrong) and not self._barred(facts, name):
                yield name
        for member in facts.unnamed(NONE_NAMED):
            if member.naming is not None:
                found = self.values(member.naming.holding, member.naming.failing | wrong)
                yield from (str(name) for name in islice(found, 2))

    def _possible_names(self, facts: ObjectFacts, member: Member) -> Iterator[str]:
        for name in self.names(member.name, member.naming):
            if isinstance(name, str) and not self._barred(facts, name):
                yield name

    def _object(self, facts: ObjectFacts, demands: dict[str, Nodes], fuel: int) -> dict[str, object] | None:
        names = dict.fromkeys([*sorted(facts.required), *demands])
        for name in self._more_names(facts):
            if len(names) >= facts.least:
                break
            names[name] = None
        if len(names) < facts.least or (facts.most is not None and len(names) > facts.most):
            return None
        made: dict[str, object] = {}
        for name in names:
            found = list(islice(self.values(facts.value(name), demands.get(name, NONE), fuel - 1), 1))
            if not found:
                return None
            made[name] = found[0]
        return made

    def _more_names(self, facts: ObjectFacts) -> Iterator[str]:
        for name in sorted(facts.explicit):
            if not self._barred(facts, name):
                yield name
        for member in facts.unnamed(NONE_NAMED):
            if self._shown(member.known, NONE):
                continue
            for name in self._possible_names(facts, member):
                yield name
                if not facts.names:
                    yield from (f"{name}{number}" for number in range(LONGEST))

    def _arrays(self, atoms: tuple[Atom, ...], goals: tuple[Atom, ...], fuel: int) -> Iterator[object]:
        if any(isinstance(atom, n.Values) for atom in atoms):
            return
        facts = ArrayFacts(atoms, goals)
        about_items = [goal for goal in goals if isinstance(goal, (n.Item, n.Rest))]
        for wrong in islice(self._misplaced(about_items, facts, ()), MOST_PLACEMENTS):
            length = max([facts.least, *(index + 1 for index, _ in wrong)])
            for size in (length, length + 1):
                if size <= LONGEST and (facts.most is None or size <= facts.most):
                    for late in (False, True) if facts.contained else (False,):
                        made = self._array(facts, goals, wrong, size, fuel, late=late)
                        if made is not None:
                            yield made

    def _misplaced(
        self, goals: Sequence[n.Item | n.Rest], facts: ArrayFacts, so_far: tuple[tuple[int, Node], ...]
    ) -> Iterator[tuple[tuple[int, Node], ...]]:
        """For each goal an index where an item may fail it: each at one of its own before two of them share one."""
        if not goals:
            yield so_far
            return
        goal, rest = goals[0], goals[1:]
        open_at: list[int] = []
        for position in arrays.covered(goal, facts):
            if not self._shown(position.known, frozenset((goal.value,))):
                last = position.index + (len(so_far) if position.rest else 0)
                open_at += [index for index in range(position.index, last + 1) if facts.reaches(index)]
        taken = {index for index, _ in so_far}
        for index in sorted(open_at, key=lambda each: each in taken):
            yield from self._misplaced(rest, facts, (*so_far, (index, goal.value)))

    def _array(
        self,
        facts: ArrayFacts,
        goals: tuple[Atom, ...],
        wrong: tuple[tuple[int, Node], ...],
        size: int,
        fuel: int,
        *,
        late: bool,
    ) -> list[object] | None:
        repeated = any(isinstance(goal, n.Unique) for goal in goals)
        made: list[object] = []
        for index in range(size):
            left, right = self._around(facts, goals, index, size - 1 - index if late else index)
            right |= {node for at, node in wrong if at == index}
            if repeated and index == size - 1 and size > 1:
                left.add(exactly(self._pool, made[-1]))
            if facts.unique:
                used = [scalar(value) for value in made if not isinstance(value, (list, dict))]
                right |= {self._pool.of(n.Values(frozenset(used)))} if used else set()
            found = [
                value
                for value in islice(self.values(frozenset(left), frozenset(right), fuel - 1), 3)
                if not facts.unique or value not in made
            ]
            if not found:
                return None
            made.append(found[0])
        return made

    def _around(self, facts: ArrayFacts, goals: tuple[Atom, ...], index: int, turn: int) -> tuple[set[Node], set[Node]]:
        """What an item must and must not be, also for the sake of `contains`: its items come first, by `turn`."""
        left, right = set(facts.item(index)), set[Node]()
        for atom in facts.contained:
            if turn < atom.count:
                left.add(atom.item)
        for limit in facts.limited:
            if index >= limit.count:
                right.add(limit.item)
        for goal in goals:
            if isinstance(goal, n.ContainsAtLeast) and index >= goal.count - 1:
                right.add(goal.item)
            if isinstance(goal, n.ContainsAtMost) and index <= goal.count:
                left.add(goal.item)
        return left, right

    def _barred(self, facts: ObjectFacts, name: str) -> bool:
        try:
            return facts.impossible(name, self._prover.prove)
        except TooMuchWork:
            return False

    def _shown(self, left: Nodes, right: Nodes) -> bool:
        try:
            return self._prover.prove(left, right)
        except TooMuchWork:
            return False
