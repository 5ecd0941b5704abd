"""Graph: who says what to whom, as far as handlers declare it, and walks through that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from posthouse.governance.document import Document, HandlerEntry

Edges = Mapping[str, set[str]]

MOST_STEPS = 20_000
"""A search for the longest way takes no more, over all of its starts; there may be more ways than anybody can walk."""


def flow(document: Document) -> Edges:
    """From each subject to those that some handler publishes when it comes. Nothing is followed through a saga: it sees the
    whole of its process, and ends."""
    edges: dict[str, set[str]] = defaultdict(set)
    for handler in _without_sagas(document):
        for reading in handler.reads:
            edges[reading.subject].update(handler.publishes)
    return edges


def awaits(document: Document) -> Edges:
    """From each service to those whose answers it reads: they publish, on a fact of its own, a fact that it has a handler for."""
    owner = {entry.subject: entry.service for entry in document.events}
    heard: dict[str, set[str]] = defaultdict(set)
    for handler in document.handlers:
        heard[handler.service].update(reading.subject for reading in handler.reads)
    edges: dict[str, set[str]] = defaultdict(set)
    for handler in _without_sagas(document):
        for reading in handler.reads:
            asker = owner.get(reading.subject)
            if asker is not None and asker != handler.service and heard[asker].intersection(handler.publishes):
                edges[asker].add(handler.service)
    return edges


def _without_sagas(document: Document) -> list[HandlerEntry]:
    sagas = {saga.consumer for saga in document.sagas}
    return [handler for handler in document.handlers if handler.consumer not in sagas]


def cycles(edges: Edges) -> list[tuple[str, ...]]:
    """Groups of two or more that lead to each other, each shown as one way round that begins with its first."""
    return sorted(_way_round(min(group), group, edges) for group in _components(edges) if len(group) > 1)


def longest_paths(edges: Edges, longer_than: int) -> list[tuple[str, ...]]:
    """For each start that nothing leads to, and each in a circle that no such start leads to, its longest way without meeting
    twice, if it has more steps. In a thicket the search ends early, with the longest that was found."""
    targets = {target for found in edges.values() for target in found}
    roots = sorted(set(edges) - targets)
    reached: list[str] = []
    _walk_all(roots, edges, reached)
    roots += sorted(set(edges).difference(reached))
    steps = {node: sorted(found, reverse=True) for node, found in edges.items()}
    ways = (_longest(root, steps, MOST_STEPS // len(roots)) for root in roots)
    return [way for way in ways if len(way) - 1 > longer_than]


def _longest(root: str, steps: Mapping[str, list[str]], budget: int) -> tuple[str, ...]:
    best: tuple[str, ...] = (root,)
    waiting: list[tuple[str, ...]] = [(root,)]
    while waiting and budget >= 0:
        budget -= 1
        way = waiting.pop()
        best = max(best, way, key=len)
        waiting += [(*way, step) for step in steps.get(way[-1], ()) if step not in way]
    return best


def _way_round(start: str, group: set[str], edges: Edges) -> tuple[str, ...]:
    """The shortest way from a member back to itself inside its group."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    for way in ways:
        for step in sorted(edges.get(way[-1], set()) & group):
            if step == start and len(way) > 1:
                return (*way, start)
            if step not in seen and step != start:
                seen.add(step)
                ways.append((*way, step))
    return (start,)


def _components(edges: Edges) -> Iterator[set[str]]:
    """Kosaraju: nodes in the order in which they are done, then backwards along the edges."""
    backwards: dict[str, set[str]] = defaultdict(set)
    for source, targets in edges.items():
        for target in targets:
            backwards[target].add(source)
    done: list[str] = []
    _walk_all(sorted(edges), edges, done)
    left = set(done)
    for node in reversed(done):
        if node in left:
            group: list[str] = []
            _walk_all([node], backwards, group, left)
            yield set(group)


def _walk_all(starts: Iterable[str], edges: Edges, done: list[str], left: set[str] | None = None) -> None:
    """Depth first without recursion; `done` gets each node after all that it leads to. `left` bounds the walk, and shrinks."""
    seen: set[str] = set()
    for start in starts:
        stack = [(start, False)]
        while stack:
            node, finished = stack.pop()
            if finished:
                done.append(node)
                continue
            if node in seen or (left is not None and node not in left):
                continue
            seen.add(node)
            if left is not None:
                left.discard(node)
            stack.append((node, True))
            stack += [(target, False) for target in sorted(edges.get(node, ()))]
