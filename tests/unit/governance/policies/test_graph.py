"""Walks through who says what to whom."""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from posthouse.governance.policies.graph import cycles, longest_paths


def test_a_circle_is_shown_as_one_way_round_from_its_first() -> None:
    assert cycles({"c": {"a"}, "a": {"b", "x"}, "b": {"c"}, "x": set()}) == [("a", "b", "c", "a")]


def test_two_circles_are_two() -> None:
    assert cycles({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}) == [("a", "b", "a"), ("c", "d", "c")]


def test_one_that_leads_to_itself_is_no_circle_of_several() -> None:
    assert cycles({"a": {"a"}}) == []


def test_what_joins_again_is_no_circle() -> None:
    assert cycles({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}}) == []


def test_a_long_line_does_not_end_the_stack() -> None:
    line = {str(n): {str(n + 1)} for n in range(3_000)}
    assert cycles(line) == []
    assert cycles({**line, "3000": {"0"}})[0][-1] == "0"


def test_the_longest_way_from_each_start_is_told_if_it_is_longer() -> None:
    edges = {"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "z": {"d"}}
    assert longest_paths(edges, 2) == [("a", "b", "c", "d")]
    assert longest_paths(edges, 3) == []


def test_where_all_run_in_a_circle_each_is_a_start() -> None:
    assert longest_paths({"a": {"b"}, "b": {"c"}, "c": {"a"}}, 1) == [("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")]


def test_a_circle_beside_a_line_is_walked_too() -> None:
    assert longest_paths({"a": {"b"}, "b": {"c"}, "c": {"a"}, "x": {"y"}}, 1)[0] == ("a", "b", "c")


def test_a_thicket_ends_in_time() -> None:
    names = [f"n{number}" for number in range(40)]
    assert longest_paths({name: set(names) for name in names}, 5)


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef"))))
def test_a_circle_is_found_if_and_only_if_there_is_one(edges: dict[str, set[str]]) -> None:
    def leads(start: str, goal: str) -> bool:
        seen: set[str] = set()
        waiting = [*edges.get(start, ())]
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += edges.get(node, ())
        return goal in seen

    ways = cycles(edges)
    for way in ways:
        assert way[0] == way[-1]
        assert len(way) > 2
        assert all(after in edges[before] for before, after in pairwise(way))
    for one, other in product("abcdef", repeat=2):
        together = one != other and leads(one, other) and leads(other, one)
        shown = any(way[0] in (one, other) or (leads(one, way[0]) and leads(way[0], one)) for way in ways)
        assert shown or not together
