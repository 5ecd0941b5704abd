"""Objects: what is known of the members of a counterexample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from posthouse.governance.evolution.json_schema import nodes as n
from posthouse.governance.evolution.json_schema.nodes import Atom, Node, Pool
from posthouse.governance.evolution.json_schema.regex_parsing import Irregular
from posthouse.governance.evolution.json_schema.scalars import matches
from posthouse.governance.evolution.json_schema.sequent import Nodes
from posthouse.governance.evolution.json_schema.texts import Effort, TooMany, Wanted, find_text

MOST_PATTERNS = 5
MOST_LISTED = 200
"""Names that are looked at one by one; longer lists are groups."""
OTHER_NAMES = ("other", "another", "more", "extra", "x", "y", "z")

Prove = Callable[[Nodes, Nodes], bool]


@dataclass(frozen=True)
class Naming:
    """The names of a group: all of `holding` hold for each of them and none of `failing` does."""

    holding: Nodes
    failing: Nodes


@dataclass(frozen=True)
class Member:
    """A member, or all that are alike. `known` holds for its value; `shown` is how a path calls it."""

    name: str | None
    known: Nodes
    shown: str
    patterns: frozenset[str] | None = frozenset()
    """Those that the names match, where no single name is meant; None is any."""
    naming: Naming | None = None
    """What the names of a group have in common. `name` is then a suggestion that nobody has checked."""


class ObjectFacts:
    """What `facts` say of an object's members, when all of `goals` are false of it."""

    def __init__(self, pool: Pool, facts: tuple[Atom, ...], goals: tuple[Atom, ...]) -> None:
        self._pool = pool
        self.required = {atom.name for atom in facts if isinstance(atom, n.Required)}
        self.absent = {atom.name for atom in goals if isinstance(atom, n.Required)}
        self.names = frozenset(atom.name for atom in facts if isinstance(atom, n.Names))
        self.least = max(
            [atom.count for atom in facts if isinstance(atom, n.MinProperties)]
            + [atom.count + 1 for atom in goals if isinstance(atom, n.MaxProperties)]
            + [len(self.required)]
        )
        self.most = min(
            (
                *(atom.count for atom in facts if isinstance(atom, n.MaxProperties)),
                *(atom.count - 1 for atom in goals if isinstance(atom, n.MinProperties)),
            ),
            default=None,
        )
        self._properties: dict[str, set[Node]] = {}
        for atom in facts:
            if isinstance(atom, n.Property):
                self._properties.setdefault(atom.name, set()).add(atom.value)
        self._patterned = [atom for atom in facts if isinstance(atom, n.PatternProperty)]
        self._others = [
            (atom.maybe, atom.value) for atom in facts if isinstance(atom, n.Others) and atom.maybe is not None
        ]
        self.explicit = {*self._properties, *self.required, *self._listed_names()}
        for maybe, _ in self._others:
            self.explicit |= maybe.names

    @property
    def full(self) -> bool:
        """Whether there is room for no more than what must be there."""
        return self.most is not None and len(self.required) >= self.most

    def declares(self, name: str) -> bool:
        """Whether a schema of its own is known for the member."""
        return name in self._properties

    def value(self, name: str) -> Nodes:
        """What is known of the member of that name, if it is there."""
        known = set(self._properties.get(name, ()))
        known |= {atom.value for atom in self._patterned if matches(atom.pattern, name)}
        for maybe, value in self._others:
            if name not in maybe.names and not any(matches(pattern, name) for pattern in maybe.patterns):
                known.add(value)
        return frozenset(known)

    def impossible(self, name: str, prove: Prove) -> bool:
        """Whether no member can have that name."""
        if name in self.absent or (self.full and name not in self.required):
            return True
        if self.names:
            this = self._pool.of(n.Values(frozenset(((n.STRING, name),))))
            if prove(frozenset((this, *self.names)), frozenset()):
                return True
        return prove(self.value(name), frozenset())

    def excluded(self, member: Member, prove: Prove) -> bool:
        """Whether the member cannot be there; a group cannot when none of its names can, whatever the suggested one does."""
        if member.naming is not None:
            return prove(member.naming.holding, member.naming.failing)
        return member.name is not None and self.impossible(member.name, prove)

    def contradictory(self) -> bool:
        """Whether there is no such object, at a glance."""
        return self.most is not None and self.least > self.most

    def unsatisfiable(self, prove: Prove) -> bool:
        """Whether there is no such object: a member that must be there cannot, or there are too few that can."""
        if any(self.impossible(name, prove) for name in sorted(self.required)):
            return True
        if self.least <= len(self.required) or not self._others:
            return False
        if any(
            not prove(member.known, frozenset()) and not self.excluded(member, prove)
            for member in self.unnamed(frozenset())
        ):
            return False
        return sum(not self.impossible(name, prove) for name in self.explicit) < self.least

    def unnamed(self, patterns: frozenset[str], besides: frozenset[str] = frozenset()) -> list[Member]:
        """Members of names that no schema lists, in groups that all patterns treat alike."""
        own = frozenset(atom.pattern for atom in self._patterned).union(*(maybe.patterns for maybe, _ in self._others))
        told_apart = sorted(own | patterns)
        listed = frozenset(self.explicit) | besides
        if len(told_apart) > MOST_PATTERNS:
            return [Member(None, frozenset(), "*", None, self._naming((), (), listed))]
        return list(self._groups(told_apart, listed))

    def _groups(self, told_apart: list[str], listed: frozenset[str]) -> Iterator[Member]:
        wanted = self._name_patterns()
        for signs in product((False, True), repeat=len(told_apart)):
            matched = frozenset(pattern for pattern, sign in zip(told_apart, signs, strict=True) if sign)
            avoided = frozenset(told_apart) - matched
            name = _name(Wanted(matching=matched | wanted, avoiding=avoided, excluded=listed), self._pool.effort)
            if name is None:
                continue
            known = {atom.value for atom in self._patterned if atom.pattern in matched}
            known |= {value for maybe, value in self._others if not maybe.patterns & matched}
            yield Member(
                name or None, frozenset(known), "*", matched, self._naming(sorted(matched), sorted(avoided), listed)
            )

    def _naming(self, matched: Iterable[str], avoided: Iterable[str], listed: frozenset[str]) -> Naming:
        pool = self._pool
        text: Node = pool.of(n.Kinds(frozenset((n.STRING,))))
        others: set[Node] = {pool.of(n.Pattern(pattern)) for pattern in avoided}
        if listed:
            others.add(pool.of(n.Values(frozenset((n.STRING, name) for name in listed))))
        return Naming(
            frozenset((text, *self.names, *(pool.of(n.Pattern(pattern)) for pattern in matched))), frozenset(others)
        )

    def _listed_names(self) -> frozenset[str]:
        """All names there can be, where `propertyNames` lists them."""
        lists = [part.scalars for part in self._name_parts() if isinstance(part, n.Values)]
        if not lists or len(min(lists, key=len)) > MOST_LISTED:
            return frozenset()
        return frozenset(str(value) for kind, value in min(lists, key=len) if kind == n.STRING)

    def _name_patterns(self) -> frozenset[str]:
        """Patterns that every name matches by `propertyNames`."""
        return frozenset(part.pattern for part in self._name_parts() if isinstance(part, n.Pattern))

    def _name_parts(self) -> list[Node]:
        """What holds for every name, in parts."""
        return [part for node in self.names for part in (node.parts if isinstance(node, n.All) else (node,))]


def covered(atom: Atom, facts: ObjectFacts) -> list[Member]:
    """The members whose values the goal is about."""
    match atom:
        case n.Property():
            return [Member(atom.name, facts.value(atom.name), atom.name)]
        case n.PatternProperty() | n.Others() if facts.full:
            named = [name for name in facts.required if covers(atom, name)]
            unnamed = []
        case n.PatternProperty():
            named = [name for name in facts.explicit if covers(atom, name)]
            unnamed = [
                member
                for member in facts.unnamed(frozenset((atom.pattern,)))
                if member.patterns is None or atom.pattern in member.patterns
            ]
        case n.Others():
            sure = atom.sure
            named = [name for name in facts.explicit if covers(atom, name)]
            unnamed = [
                member
                for member in facts.unnamed(sure.patterns, sure.names)
                if member.patterns is None or not sure.patterns & member.patterns
            ]
        case _:
            return []
    return [Member(name, facts.value(name), name) for name in sorted(named)] + unnamed


def covers(atom: Atom, name: str) -> bool:
    """Whether the goal is about a member of that name."""
    match atom:
        case n.Property():
            return atom.name == name
        case n.PatternProperty():
            return matches(atom.pattern, name)
        case n.Others():
            return name not in atom.sure.names and not any(matches(pattern, name) for pattern in atom.sure.patterns)
        case _:
            return False


def _name(wanted: Wanted, effort: Effort) -> str | None:
    """A name for an example; "" where there may be one but none was found, None where there is provably none."""
    for name in OTHER_NAMES:
        if name in wanted.excluded or any(matches(pattern, name) for pattern in wanted.avoiding):
            continue
        if all(matches(pattern, name) for pattern in wanted.matching):
            return name
    try:
        return find_text(wanted, effort)
    except (Irregular, TooMany):
        return ""
