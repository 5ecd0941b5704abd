"""Resolution: all pairs of types that a reader meets in what a writer writes, and which of them fail.

A pair fails when the rules say so or when a part of it fails; of a union one branch must not fail. Types may contain
themselves, so this is the largest set of pairs that can all succeed together: every pair is thought good until it is shown
to be bad, and whatever rests on a bad one is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from posthouse.governance.evolution.avro_rules import Rules, Trouble, same_name, written_as
from posthouse.governance.evolution.avro_sample import sample
from posthouse.governance.evolution.avro_types import (
    Array,
    AvroType,
    Field,
    Map,
    Named,
    Primitive,
    Record,
    Union,
    described,
)
from posthouse.governance.evolution.finding import Weight

MOST_PAIRS = 100_000
"""Pairs that one comparison looks at; a schema that has more cannot be judged in good time."""

Pair = tuple[AvroType, AvroType]


class TooManyPairs(Exception):
    """The schemas are too large to compare."""


def _same(value: object) -> object:
    return value


@dataclass(frozen=True)
class Place:
    """Where in the message we are, and how a value there becomes a whole message of the writer."""

    path: str = ""
    whole: Callable[[object], object] = _same

    def at(self, step: str, around: Callable[[object], object]) -> Place:
        """A place inside this one."""
        return Place(f"{self.path}/{step}", lambda value: self.whole(around(value)))


class Resolution:
    """One reader against one writer. Raises TooManyPairs."""

    def __init__(self, rules: Rules, reader: AvroType, writer: AvroType) -> None:
        self._rules = rules
        self._root: Pair = (reader, writer)
        self._bad: set[Pair] = set()
        self._settle(self._reachable())

    def troubles(self) -> Iterator[tuple[Place, Trouble]]:
        """What is wrong and where. A pair that is met in several places is reported at the first."""
        seen: set[Pair] = set()
        waiting: list[tuple[Pair, Place]] = [(self._root, Place())]
        while waiting:
            pair, place = waiting.pop()
            if pair in seen:
                continue
            seen.add(pair)
            chosen = self._chosen(pair)
            if chosen is None:
                yield place, _lacks(*pair)
                continue
            yield from ((place, trouble) for trouble in self._own(pair))
            waiting += [(inner, step(place)) for inner, step in reversed(chosen)]

    def _own(self, pair: Pair) -> list[Trouble]:
        reader, writer = pair
        if isinstance(reader, Union) or isinstance(writer, Union):
            return []
        return list(self._rules.troubles(reader, writer))

    def _chosen(self, pair: Pair) -> list[tuple[Pair, Callable[[Place], Place]]] | None:
        """Where to look on: all parts, but of a reader's union only the branch that reads, or the one that was meant to.
        None: no branch was."""
        reader, writer = pair
        if isinstance(writer, Union) or not isinstance(reader, Union):
            return list(_parts(reader, writer))
        options = [(branch, writer) for branch in reader.branches]
        good = [option for option in options if option not in self._bad]
        exact = [option for option in good if _is_meant(*option)]
        meant = [option for option in options if _is_meant(*option)]
        found = exact or good or meant
        return [(found[0], _same_place)] if found else None

    def _reachable(self) -> dict[Pair, list[Pair]]:
        """Every pair below the root, with those that rest on it."""
        rest_on: dict[Pair, list[Pair]] = {self._root: []}
        waiting = [self._root]
        while waiting:
            pair = waiting.pop()
            for inner in _inner(*pair):
                if inner not in rest_on:
                    if len(rest_on) >= MOST_PAIRS:
                        raise TooManyPairs
                    rest_on[inner] = []
                    waiting.append(inner)
                rest_on[inner].append(pair)
        return rest_on

    def _settle(self, rest_on: dict[Pair, list[Pair]]) -> None:
        own = {pair: any(t.weight is Weight.BREAKS for t in self._own(pair)) for pair in rest_on}
        waiting = list(rest_on)
        while waiting:
            pair = waiting.pop()
            if pair not in self._bad and (own[pair] or self._fails(*pair)):
                self._bad.add(pair)
                waiting += rest_on[pair]

    def _fails(self, reader: AvroType, writer: AvroType) -> bool:
        inner = list(_inner(reader, writer))
        if isinstance(reader, Union) and not isinstance(writer, Union):
            return all(pair in self._bad for pair in inner)
        return any(pair in self._bad for pair in inner)


def _inner(reader: AvroType, writer: AvroType) -> Iterator[Pair]:
    """The pairs that a pair rests on: all of them, or, where the reader alone is a union, one of them."""
    if isinstance(reader, Union) and not isinstance(writer, Union):
        yield from ((branch, writer) for branch in reader.branches)
    else:
        yield from (pair for pair, _ in _parts(reader, writer))


def _parts(reader: AvroType, writer: AvroType) -> Iterator[tuple[Pair, Callable[[Place], Place]]]:
    match reader, writer:
        case _, Union(branches=branches):
            yield from (((reader, branch), _same_place) for branch in branches)
        case Array(items=mine), Array(items=theirs):
            yield (mine, theirs), lambda place: place.at("*", lambda value: [value])
        case Map(values=mine), Map(values=theirs):
            yield (mine, theirs), lambda place: place.at("*", lambda value: {"key": value})
        case Record(fields=fields), Record() if same_name(reader, writer):
            for field in fields:
                theirs_field = written_as(field, writer)
                if theirs_field is not None:
                    yield (field.type, theirs_field.type), _into(writer, theirs_field)


def _same_place(place: Place) -> Place:
    return place


def _into(record: Record, chosen: Field) -> Callable[[Place], Place]:
    def around(value: object) -> object:
        return {f.name: value if f is chosen else sample(f.type) for f in record.fields}

    return lambda place: place.at(chosen.name, around)


def _is_meant(branch: AvroType, writer: AvroType) -> bool:
    """Whether a union's branch is the one that the writer's type belongs to."""
    if isinstance(branch, Named) and isinstance(writer, Named):
        return type(branch) is type(writer) and same_name(branch, writer)
    if isinstance(branch, Primitive) and isinstance(writer, Primitive):
        return branch.name == writer.name
    return type(branch) is type(writer) and not isinstance(branch, Named)


def _lacks(reader: AvroType, writer: AvroType) -> Trouble:
    return Trouble(
        "union-lacks-type",
        f"{described(writer)} may be written, and the reader has only the {described(reader)}",
        f"keep {described(writer)} in the reader's union",
        lambda: sample(writer),
    )
