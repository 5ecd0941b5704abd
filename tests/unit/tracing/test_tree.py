"""The causal tree: order, lines, and trees that are not well."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.events import Event
from posthouse.tracing.spot import Spot
from posthouse.tracing.tree import DRAWN, Branch, branches


def spot(name: str, cause: str | None = None, at: float = 0.0) -> Spot:
    event = Event(id=name, type="a.b.v1", source="/a", data=b"", time="", causation=cause)
    return Spot(event=event, topic="a", place="log", at=at)


def tree(*spots: Spot) -> list[Branch]:
    return branches({one.event.id: one for one in spots})


def drawn(found: Sequence[Branch]) -> list[tuple[str, int]]:
    return [(branch.spot.event.id, branch.depth) for branch in found]


def test_what_an_event_caused_stands_below_it_in_the_order_of_time() -> None:
    found = tree(spot("c", "a", 3), spot("a"), spot("d", "b", 4), spot("b", "a", 2))
    assert drawn(found) == [("a", 0), ("b", 1), ("d", 2), ("c", 1)]
    assert [branch.last for branch in found] == [(), (False,), (False, True), (True,)]
    assert [branch.has_children for branch in found] == [True, True, False, False]


def test_an_event_whose_cause_was_not_found_is_a_root_that_says_so() -> None:
    (found,) = tree(spot("b", "gone"))
    assert (found.depth, found.cause) == (0, "gone")


def test_an_event_without_a_cause_names_none() -> None:
    assert [branch.cause for branch in tree(spot("a"), spot("b", "a"))] == [None, None]


def test_events_that_name_each_other_as_cause_are_shown_once() -> None:
    assert drawn(tree(spot("a", "b"), spot("b", "a"))) == [("a", 0), ("b", 1)]


def test_an_event_that_names_itself_as_cause_is_a_root() -> None:
    assert drawn(tree(spot("a", "a"), spot("b", "a"))) == [("a", 0), ("b", 1)]


def test_a_chain_of_ten_thousand_is_neither_deep_recursion_nor_wide_memory() -> None:
    names = [f"{number:05d}" for number in range(10_000)]
    found = tree(*(spot(name, cause) for name, cause in zip(names, [None, *names], strict=False)))
    assert [branch.depth for branch in found] == list(range(10_000))
    assert max(len(branch.last) for branch in found) == DRAWN
