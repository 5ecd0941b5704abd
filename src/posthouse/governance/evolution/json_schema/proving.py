"""The proof that one formula follows from another, by the rules of the sequent calculus.

Sound, not complete: False means that no proof was found. Recursion is judged by induction on the size of the value: a question that
comes up again while it is open is asked of a smaller value, and may be taken for granted.
"""

from __future__ import annotations

from posthouse.governance.evolution.json_schema import arrays, objects
from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.arrays import ArrayFacts
from posthouse.governance.evolution.json_schema.nodes import Atom, Kind, Pool
from posthouse.governance.evolution.json_schema.numbers import Undecided
from posthouse.governance.evolution.json_schema.objects import ObjectFacts
from posthouse.governance.evolution.json_schema.scalars import is_none_left
from posthouse.governance.evolution.json_schema.sequent import Nodes, Sequent, reduce

MOST_QUESTIONS = 20_000
MOST_WORK = 1_000_000
"""Steps of all questions together: one question about a large union is many steps."""
DEEPEST = 60
MOST_COMBINATIONS = 64
MOST_EXCLUSIVE = 8
"""Of a `oneOf` with more branches it is not used that the others fail."""

Question = tuple[Nodes, Nodes]
NONE: Nodes = frozenset()


class TooMuchWork(Exception):
    """The budget is spent."""


class Prover:
    """Answers questions, and remembers the answers."""

    def __init__(self, pool: Pool, questions: int = MOST_QUESTIONS) -> None:
        self.pool = pool
        self._left = questions
        self._work_left = MOST_WORK
        self._known: dict[Question, bool] = {}
        self._open: dict[Question, int] = {}
        self._taken_for_granted = DEEPEST + 1

    def prove(self, left: Nodes, right: Nodes) -> bool:
        """Whether all values of `left`, taken together, are values of one of `right`. Raises TooMuchWork."""
        question = (left, right)
        known = self._known.get(question)
        if known is not None:
            return known
        depth = self._open.get(question)
        if depth is not None:
            self._taken_for_granted = min(self._taken_for_granted, depth)
            return True
        return self._work(question)

    def sequent(self, left: Nodes, right: Nodes) -> Sequent | None:
        """The question, reduced."""
        return reduce(self.pool, left, right, self._spend)

    def _spend(self, work: int) -> None:
        self._work_left -= work
        if self._work_left < 0:
            raise TooMuchWork

    def _work(self, question: Question) -> bool:
        self._left -= 1
        depth = len(self._open)
        if self._left < 0 or depth > DEEPEST:
            raise TooMuchWork
        outer, self._taken_for_granted = self._taken_for_granted, DEEPEST + 1
        self._open[question] = depth
        try:
            answer = self._answer(*question)
        finally:
            del self._open[question]
            used, self._taken_for_granted = self._taken_for_granted, outer
        if not answer or used >= depth:
            self._known[question] = answer  # a yes that leans on an open question is not kept
        if answer and used < depth:
            self._taken_for_granted = min(outer, used)
        return answer

    def _answer(self, left: Nodes, right: Nodes) -> bool:
        sequent = self.sequent(left, right)
        if sequent is None:
            return True
        if len(sequent.bundles) == 1:
            goals = frozenset(sequent.goals)
            known = frozenset(sequent.left())
            return all(self.prove(known, goals | {part}) for part in sequent.bundles[0])
        if not sequent.bundles and all(self.kind_shown(sequent, kind) for kind in sequent.kinds):
            return True
        if sequent.choices:
            right = self.failing(sequent)
            return all(
                self.prove(known, right) or (bool(others) and self.prove(known, right | others))
                for known, others in self.branches(sequent)
            )
        return bool(sequent.bundles) and self._one_of_several(sequent)

    def branches(self, sequent: Sequent) -> list[tuple[Nodes, Nodes]]:
        """The left side for each part of the smallest choice; where only one part may hold, also those that then do not."""
        at = min(range(len(sequent.choices)), key=lambda index: len(sequent.choices[index].parts))
        choice = sequent.choices[at]
        known = sequent.left(without=at)
        exclusive = isinstance(choice, n.Exactly) and len(choice.parts) <= MOST_EXCLUSIVE
        return [
            (frozenset(known | {part}), frozenset(choice.parts) - {part} if exclusive else NONE)
            for part in choice.parts
        ]

    def failing(self, sequent: Sequent) -> Nodes:
        """The right side again."""
        return frozenset((*sequent.goals, *(self.pool.of(n.All(parts)) for parts in sequent.bundles)))

    def _one_of_several(self, sequent: Sequent) -> bool:
        """One branch alone, or all combinations of a part of each."""
        known = frozenset(sequent.left())
        goals = frozenset(sequent.goals)
        bundles = sorted(sequent.bundles, key=len)
        if any(self.prove(known, goals | {self.pool.of(n.All(parts))}) for parts in bundles):
            return True
        combinations = 1
        for parts in bundles:
            combinations *= len(parts)
        if combinations > MOST_COMBINATIONS:
            return False
        others = frozenset(self.pool.of(n.All(parts)) for parts in bundles[1:])
        return all(self.prove(known, goals | others | {part}) for part in bundles[0])

    def kind_shown(self, sequent: Sequent, kind: Kind) -> bool:
        """Whether no value of this kind is a counterexample."""
        if any(kind not in goal.speaks_of for goal in sequent.goals):
            return True
        facts = tuple(atom for atom in sequent.facts if kind in atom.speaks_of)
        if kind == n.OBJECT:
            return self._object_shown(facts, sequent.goals)
        if kind == n.ARRAY:
            return self._array_shown(facts, sequent.goals)
        try:
            return is_none_left(kind, facts, sequent.goals, self.pool.effort)
        except Undecided:
            return False

    def _object_shown(self, atoms: tuple[Atom, ...], goals: tuple[Atom, ...]) -> bool:
        if any(isinstance(atom, n.Values) for atom in atoms):
            return True
        facts = ObjectFacts(self.pool, atoms, goals)
        return (
            facts.contradictory()
            or any(self.members_shown(goal, goals, facts) for goal in goals)
            or facts.unsatisfiable(self.prove)
        )

    def members_shown(self, goal: Atom, goals: tuple[Atom, ...], facts: ObjectFacts) -> bool:
        """Whether a goal about members, or their names, holds."""
        if isinstance(goal, n.Names):
            return self._names_shown(goal, facts)
        if not isinstance(goal, (n.Property, n.PatternProperty, n.Others)):
            return False
        return all(
            self.prove(member.known, self.alternatives(goal, goals)) or facts.excluded(member, self.prove)
            for member in objects.covered(goal, facts)
        )

    def alternatives(self, goal: Atom, goals: tuple[Atom, ...]) -> Nodes:
        """What the value may be instead: goals about the same member or item count together."""
        if isinstance(goal, n.Property):
            return frozenset(each.value for each in goals if isinstance(each, n.Property) and each.name == goal.name)
        if isinstance(goal, n.Item):
            return frozenset(each.value for each in goals if isinstance(each, n.Item) and each.index == goal.index)
        assert isinstance(goal, (n.PatternProperty, n.Others, n.Rest))
        return frozenset((goal.value,))

    def _names_shown(self, goal: n.Names, facts: ObjectFacts) -> bool:
        wanted = frozenset((goal.name,))
        for name in sorted(facts.explicit):
            this = self.pool.of(n.Values(frozenset(((n.STRING, name),))))
            if not self.prove(frozenset((this, *facts.names)), wanted) and not facts.impossible(name, self.prove):
                return False
        for member in facts.unnamed(NONE_NAMED):
            naming = member.naming
            if naming is None or not (
                self.prove(member.known, NONE) or self.prove(naming.holding, naming.failing | wanted)
            ):
                return False
        return True

    def _array_shown(self, atoms: tuple[Atom, ...], goals: tuple[Atom, ...]) -> bool:
        if any(isinstance(atom, n.Values) for atom in atoms):
            return True
        facts = ArrayFacts(atoms, goals)
        return (
            facts.contradictory()
            or any(self.items_shown(goal, goals, facts) for goal in goals)
            or facts.unsatisfiable(self.prove)
        )

    def items_shown(self, goal: Atom, goals: tuple[Atom, ...], facts: ArrayFacts) -> bool:
        """Whether a goal about items holds."""
        if not isinstance(goal, (n.Item, n.Rest)):
            return arrays.shown(goal, facts, self.prove)
        return all(
            self.prove(position.known, self.alternatives(goal, goals)) for position in arrays.covered(goal, facts)
        )


NONE_NAMED: frozenset[str] = frozenset()
