"""Why a proof fails: each place where the reader asks for something that the writer does not promise."""

from __future__ import annotations

from dataclasses import dataclass

from posthouse.governance.evolution.json_schema import arrays, objects
from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.arrays import ArrayFacts
from posthouse.governance.evolution.json_schema.nodes import Atom, Kind, Node
from posthouse.governance.evolution.json_schema.objects import Member, Naming, ObjectFacts
from posthouse.governance.evolution.json_schema.proving import Prover, Question
from posthouse.governance.evolution.json_schema.sequent import Nodes, Sequent

MOST_GAPS = 100


@dataclass(frozen=True)
class Step:
    """From a container to what is in it; `around` holds for the container.

    `name` is None where none could be made up, and a suggestion where `naming` says what the names of a group are.
    """

    around: Nodes
    name: str | int | None
    shown: str
    naming: Naming | None = None


@dataclass(frozen=True)
class Gap:
    """One place. For a value there all of `left` holds, and none of `right`.

    `goal` is what the reader asks for: an atom, or None for the whole schema there. `open_content` says that the writer does not
    declare the property at all.
    """

    steps: tuple[Step, ...]
    goal: Atom | None
    left: Nodes
    right: Nodes
    kinds: frozenset[Kind]
    member: str | None = None
    open_content: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """The names from the message to the value that is meant, also where it is missing."""
        path = tuple(step.shown for step in self.steps)
        return (*path, self.goal.name) if isinstance(self.goal, n.Required) else path


class Explainer:
    """Walks through a question whose answer is no."""

    def __init__(self, prover: Prover) -> None:
        self._prover = prover
        self._gaps: list[Gap] = []
        self._open: set[Question] = set()

    def gaps(self, left: Nodes, right: Nodes) -> list[Gap]:
        """All gaps, up to a sensible number. Raises TooMuchWork."""
        self._explain(left, right, ())
        return self._gaps

    def _explain(self, left: Nodes, right: Nodes, steps: tuple[Step, ...]) -> None:
        question = (left, right)
        if len(self._gaps) >= MOST_GAPS or question in self._open or self._prover.prove(left, right):
            return  # a recursive schema is explained once round
        self._open.add(question)
        self._explain_parts(self._explain_type(left, right, steps), right, steps)
        self._open.remove(question)

    def _explain_parts(self, left: Nodes, right: Nodes, steps: tuple[Step, ...]) -> None:
        sequent = self._prover.sequent(left, right)
        if sequent is None:
            return
        known = frozenset(sequent.left())
        goals = frozenset(sequent.goals)
        if len(sequent.bundles) == 1:
            for part in sequent.bundles[0]:
                self._explain(known, goals | {part}, steps)
        elif sequent.choices:
            failing = self._prover.failing(sequent)
            for branch, others in self._prover.branches(sequent):
                if not others or not self._prover.prove(branch, failing | others):
                    self._explain(branch, failing, steps)
        elif sequent.bundles:
            self._explain_union(sequent, known, steps)
        else:
            self._explain_atoms(sequent, known, steps)

    def _explain_type(self, left: Nodes, right: Nodes, steps: tuple[Step, ...]) -> Nodes:
        """The kinds of value that the reader does not know at all; returns what is left to explain."""
        pool = self._prover.pool
        written = n.KINDS.intersection(*map(pool.kinds_of, left))
        read = frozenset[Kind]().union(*map(pool.kinds_of, right))
        if written <= read or not read:
            return left
        outside = left | {pool.of(n.Kinds(written - read))}
        if not self._prover.prove(outside, right):
            goal = pool.of(n.Kinds(read))
            self._gaps.append(Gap(steps, goal, outside, right, written))
        return left | {pool.of(n.Kinds(written & read))}

    def _explain_union(self, sequent: Sequent, known: Nodes, steps: tuple[Step, ...]) -> None:
        """Several branches of the reader: only one that values of the writer can reach is worth a closer look."""
        goals = frozenset(sequent.goals)
        bundles: list[Node] = [self._prover.pool.of(n.All(parts)) for parts in sequent.bundles]
        near = [node for node in bundles if not self._prover.prove(known | {node}, goals)]
        if len(near) == 1 and len(bundles) > 1:
            self._explain(known, goals | {near[0]}, steps)
        else:
            self._gaps.append(Gap(steps, None, known, self._prover.failing(sequent), sequent.kinds))

    def _explain_atoms(self, sequent: Sequent, known: Nodes, steps: tuple[Step, ...]) -> None:
        for kind in sorted(sequent.kinds):
            if self._prover.kind_shown(sequent, kind):
                continue
            only = known | {self._prover.pool.of(n.Kinds(frozenset((kind,))))}
            if not self._inside(kind, sequent, only, steps):
                goal = sequent.goals[0] if len(sequent.goals) == 1 else None
                self._gaps.append(Gap(steps, goal, only, frozenset(sequent.goals), frozenset((kind,))))

    def _inside(self, kind: Kind, sequent: Sequent, known: Nodes, steps: tuple[Step, ...]) -> bool:
        """Goes into members and items; False where the gap is here."""
        if len(sequent.goals) != 1:
            return False
        goal = sequent.goals[0]
        facts = tuple(atom for atom in sequent.facts if kind in atom.speaks_of)
        before = len(self._gaps)
        if kind == n.OBJECT and isinstance(goal, (n.Property, n.PatternProperty, n.Others)):
            of_object = ObjectFacts(self._prover.pool, facts, sequent.goals)
            for member in objects.covered(goal, of_object):
                self._explain_member(goal, member, of_object, known, steps)
        if kind == n.ARRAY and isinstance(goal, (n.Item, n.Rest)):
            for position in arrays.covered(goal, ArrayFacts(facts, sequent.goals)):
                shown = "*" if position.rest else str(position.index)
                inner = (*steps, Step(known, position.index, shown))
                self._explain(position.known, frozenset((goal.value,)), inner)
        return len(self._gaps) > before

    def _explain_member(
        self,
        goal: n.Property | n.PatternProperty | n.Others,
        member: Member,
        facts: ObjectFacts,
        known: Nodes,
        steps: tuple[Step, ...],
    ) -> None:
        right = frozenset((goal.value,))
        if self._prover.prove(member.known, right):
            return
        if facts.excluded(member, self._prover.prove):
            return
        inner = (*steps, Step(known, member.name, member.shown, member.naming))
        refused = goal.value is self._prover.pool.false
        if refused or (isinstance(goal, n.Property) and not member.known):
            kinds = n.KINDS
            open_content = not refused
            self._gaps.append(Gap(inner, goal, member.known, right, kinds, member.name, open_content))
        else:
            self._explain(member.known, right, inner)
