"""Patterns as sets of texts: what is proven of them holds for the validator's engine."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.governance.evolution.json_schema import texts
from posthouse.governance.evolution.json_schema.regex_parsing import Irregular
from posthouse.governance.evolution.json_schema.scalars import matches
from posthouse.governance.evolution.json_schema.texts import Effort, TooMany, Wanted


def find_text(wanted: Wanted) -> str | None:
    return texts.find_text(wanted, Effort())


def contained(one: str, other: str) -> str | None:
    """A text of the one pattern that is none of the other."""
    return find_text(Wanted(matching=frozenset((one,)), avoiding=frozenset((other,))))


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("^[a-z]{3}$", "^[a-z]+$"),
        ("^[A-Z]{2}[0-9]{4}$", r"^[A-Z]{2}\d+$"),
        ("^(a|b)c$", "^[ab]c$"),
        ("^ab", "^a"),
        ("^a{2,4}$", "^a{1,5}$"),
        ("^a$", "a"),
        ("x", ""),
        (r"^\w+@\w+$", "@"),
        (r"^[^\s]+$", r"^\S*$"),
        ("^(?:ab)*$", "^(ab|cd)*$"),
        ("^.$", "^.?$"),
        (r"^\u0041\x42$", "^AB$"),
        ("^a+?$", "^a+$"),
        ("^[0-9a-fA-F-]{36}$", "^[0-9A-Fa-f-]+$"),
    ],
)
def test_a_pattern_lies_within_a_wider_one_and_not_the_other_way(narrow: str, wide: str) -> None:
    assert contained(narrow, wide) is None
    found = contained(wide, narrow)
    if found is not None:
        assert matches(wide, found)
        assert not matches(narrow, found)


@pytest.mark.parametrize(
    ("one", "other"),
    [("^[a-z]+$", "^[a-z]{3}$"), ("a", "^a$"), ("^a|b$", "^(a|b)$"), ("^.*$", "^[a-z]*$"), ("", "^$"), ("a+", "aa")],
)
def test_the_text_that_shows_a_difference_is_one(one: str, other: str) -> None:
    found = contained(one, other)
    assert found is not None
    assert matches(one, found)
    assert not matches(other, found)


def test_the_dot_is_read_in_both_ways_that_engines_read_it() -> None:
    assert contained("^.$", "^[^\\n]$") is None
    assert contained("^[^\\n]$", "^.$") == "\r"  # one of the line ends that only some engines take for a dot


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        r"(a)\1",
        r"\bword",
        r"\p{L}",
        "a^b",
        "a{5000}",
        "(?i)a",
        "[[:alpha:]]",
        "x" * 3000,
        "a**",
    ],
)
def test_what_is_no_plain_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(Irregular):
        find_text(Wanted(matching=frozenset((pattern,))))


def test_patterns_with_too_many_states_are_given_up() -> None:
    with pytest.raises(TooMany):
        find_text(Wanted(matching=frozenset(("^(a|b)*a(a|b){20}$",)), avoiding=frozenset(("^(a|b)*b(a|b){19}$",))))


def test_many_patterns_share_one_effort() -> None:
    effort = Effort(work=100)
    wanted = Wanted(matching=frozenset(("^(a|b)*a(a|b){7}$",)), avoiding=frozenset(("^[ab]*$",)))
    assert texts.find_text(wanted, effort) is None  # more than that, but begun in time
    with pytest.raises(TooMany):
        texts.find_text(wanted, effort)


def test_lengths_and_single_texts_count() -> None:
    assert find_text(Wanted(matching=frozenset(("^a*$",)), least=3)) == "aaa"
    assert find_text(Wanted(matching=frozenset(("^a*$",)), least=1, most=2, excluded=frozenset(("a", "aa")))) is None
    assert find_text(Wanted(least=2, most=1)) is None
    assert find_text(Wanted(most=0, excluded=frozenset(("",)))) is None
    assert find_text(Wanted(excluded=frozenset(("a", "0")))) not in ("a", "0", None)


def test_a_match_is_one_also_where_the_default_engine_of_the_validator_is_wrong() -> None:
    assert not matches("(?:ab)+a?(?:ab)+", "ab")
    assert matches("^(?=a)", "ab")  # look-around needs that engine all the same


PIECES = st.sampled_from(
    ["a", "b", "[ab]", "[^a]", ".", "a?", "b*", "(a|bb)", "a{1,2}", "^", "$", "|", "(?:ab)+", r"\d", r"\w"]
)
TEXTS = ["".join(letters) for size in range(4) for letters in product("ab1\n", repeat=size)]


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=5).map("".join), st.lists(PIECES, max_size=5).map("".join))
def test_no_short_text_contradicts_the_answer_for_random_patterns(one: str, other: str) -> None:
    try:
        found = contained(one, other)
    except (Irregular, TooMany):
        return
    if found is None:
        assert not [text for text in TEXTS if matches(one, text) and not matches(other, text)]
    elif "." not in one + other:
        assert matches(one, found)
        assert not matches(other, found)
