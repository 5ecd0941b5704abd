"""Sessions and one-time tokens: how they begin, and that they end."""

from __future__ import annotations

import pytest

from posthouse.clock import ManualClock
from posthouse.console.access.sessions import Sessions
from posthouse.console.access.token import IN_ALL, LIFE, MOST_TRIES, WINDOW, Attempts, OneTimeToken


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def sessions(clock: ManualClock, most: int = 3) -> Sessions:
    return Sessions(clock, idle=60, longest=100, most=most)


def test_a_session_is_found_by_its_name_and_its_key_and_by_neither_alone(clock: ManualClock) -> None:
    open_ones = sessions(clock)
    (ana, key), (ben, other) = open_ones.begin({"sub": "ana"}), open_ones.begin({"sub": "ben"})

    found = open_ones.find(ana, key)

    assert found is not None
    assert found.claims == {"sub": "ana"}
    assert ana != ben
    for wrong in ("", ana[:-1], ana + "x", "\udcff", ana.swapcase()):
        assert open_ones.find(wrong, key) is None
    for wrong in ("", other, key[:-1], key + "x", "\udcff", ana):
        assert open_ones.find(ana, wrong) is None


def test_memory_holds_no_name_of_a_session(clock: ManualClock) -> None:
    open_ones = sessions(clock)
    name, key = open_ones.begin({"sub": "ana"})

    assert name not in repr(vars(open_ones))
    assert key not in repr(vars(open_ones))


def test_a_session_ends_when_nobody_uses_it(clock: ManualClock) -> None:
    open_ones = sessions(clock)
    name = open_ones.begin({})
    clock.advance(59)
    assert open_ones.find(*name)
    clock.advance(40)
    assert open_ones.find(*name)
    used_again = open_ones.begin({})
    clock.advance(61)
    assert open_ones.find(*used_again) is None


def test_a_session_ends_however_much_it_is_used(clock: ManualClock) -> None:
    open_ones = sessions(clock)
    name = open_ones.begin({})
    for _ in range(2):
        clock.advance(50)
        assert open_ones.find(*name)
    clock.advance(1)
    assert open_ones.find(*name) is None
    assert len(open_ones) == 0


def test_asking_whether_a_session_lasts_does_not_make_it_last(clock: ManualClock) -> None:
    open_ones = sessions(clock)
    name = open_ones.begin({})
    clock.advance(50)
    assert open_ones.look(*name)
    clock.advance(11)
    assert not open_ones.look(*name)


def test_the_session_longest_unused_gives_way(clock: ManualClock) -> None:
    open_ones = sessions(clock)
    first, second, third = (open_ones.begin({}) for _ in range(3))
    open_ones.find(*first)
    fourth = open_ones.begin({})

    assert [bool(open_ones.find(*name)) for name in (first, second, third, fourth)] == [True, False, True, True]
    assert len(open_ones) == 3


def test_a_session_that_was_ended_is_gone(clock: ManualClock) -> None:
    open_ones = sessions(clock)
    name = open_ones.begin({})
    open_ones.end(name[0])
    open_ones.end(name[0])

    assert open_ones.find(*name) is None


def test_a_token_is_taken_once(clock: ManualClock) -> None:
    one = OneTimeToken(clock)
    token = one.new()

    assert not one.take(token[:-1])
    assert not one.take("")
    assert one.take(token)
    assert not one.take(token)
    assert not one.take("")


def test_a_token_that_is_too_old_is_not_taken(clock: ManualClock) -> None:
    one = OneTimeToken(clock)
    token = one.new()
    clock.advance(LIFE + 1)

    assert not one.take(token)


def test_a_new_token_takes_the_place_of_the_last(clock: ManualClock) -> None:
    one = OneTimeToken(clock)
    old, new = one.new(), one.new()

    assert not one.take(old)
    assert one.take(new)


def test_before_there_is_a_token_nothing_is_one(clock: ManualClock) -> None:
    assert not OneTimeToken(clock).take("")


def test_after_too_many_refusals_an_address_waits_and_no_other(clock: ManualClock) -> None:
    attempts = Attempts(clock)
    for _ in range(MOST_TRIES):
        assert attempts.pause("192.0.2.1") == 0
        attempts.refused("192.0.2.1")
        clock.advance(1)

    assert attempts.pause("192.0.2.1") == WINDOW - MOST_TRIES
    assert attempts.pause("192.0.2.2") == 0
    clock.advance(WINDOW - MOST_TRIES)
    assert attempts.pause("192.0.2.1") == 0


def test_all_addresses_of_one_host_are_one_and_those_of_version_4_are_told_apart(clock: ManualClock) -> None:
    attempts = Attempts(clock)
    for number in range(MOST_TRIES):
        attempts.refused(f"2001:db8::{number:x}")
        attempts.refused(f"::ffff:192.0.2.{number}")

    assert attempts.pause("2001:db8::ffff") == WINDOW
    assert attempts.pause("2001:db8:0:1::1") == 0
    assert attempts.pause("::ffff:192.0.2.200") == 0


def test_after_too_many_refusals_in_all_everybody_waits(clock: ManualClock) -> None:
    attempts = Attempts(clock)
    for number in range(IN_ALL):
        assert attempts.pause("198.51.100.1") == 0
        attempts.refused(f"192.0.2.{number}")

    assert attempts.pause("198.51.100.1") == WINDOW
    clock.advance(WINDOW)
    assert attempts.pause("198.51.100.1") == 0
