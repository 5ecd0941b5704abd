"""Time, chance and ids."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from posthouse.clock import ManualClock, SystemClock, backoff, jitter, lasting, longest_backoff, new_id, new_ulid


async def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(100.0)
    waiting = asyncio.create_task(clock.wait(asyncio.Event(), 5))
    await asyncio.sleep(0)
    clock.advance(4.9)
    await asyncio.sleep(0)
    assert not waiting.done()
    assert clock.now() == 104.9
    clock.advance(0.2)
    assert await asyncio.wait_for(waiting, 1) is False


async def test_an_event_ends_a_wait_before_its_time() -> None:
    for clock in (ManualClock(), SystemClock()):
        event = asyncio.Event()
        waiting = asyncio.create_task(clock.wait(event, 1000))
        await asyncio.sleep(0)
        event.set()
        assert await asyncio.wait_for(waiting, 1) is True
        assert await clock.wait(event, 1000) is True, "an event that is set is not waited for"
        assert event.is_set(), "and never cleared"


async def test_the_system_clock_ends_a_wait_in_time() -> None:
    clock = SystemClock()
    began = time.monotonic()
    assert await clock.wait(asyncio.Event(), 0.02) is False
    assert 0.015 < time.monotonic() - began < 5
    assert abs(clock.now() - time.time()) < 5


async def test_one_move_wakes_everyone_whose_time_has_come_and_nobody_else() -> None:
    clock = ManualClock()
    waiting = [asyncio.create_task(clock.wait(asyncio.Event(), seconds)) for seconds in (1, 5, 2, 9)]
    await asyncio.sleep(0)
    clock.advance(5)
    await asyncio.wait(waiting, timeout=0.05, return_when=asyncio.ALL_COMPLETED)
    assert [task.done() for task in waiting] == [True, True, True, False]
    waiting[3].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[3]
    clock.advance(100)


def test_ids_are_uuids_of_version_seven_that_sort_by_time() -> None:
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert uuid.UUID(ids[0]).version == 7
    milliseconds = [uuid.UUID(id).int >> 80 for id in ids]
    assert milliseconds == sorted(milliseconds)
    assert abs(milliseconds[-1] / 1000 - time.time()) < 5


def test_a_ulid_holds_its_time_and_sorts_by_it() -> None:
    at = [new_ulid(1_700_000_000.0 + n) for n in range(100)]
    assert at == sorted(at)
    assert all(len(ulid) == 26 and set(ulid) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for ulid in at)
    number = 0
    for letter in at[0][:10]:
        number = number * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(letter)
    assert number == 1_700_000_000_000
    assert len({new_ulid(1.0) for _ in range(1000)}) == 1000


def test_jitter_shortens_by_at_most_its_spread() -> None:
    drawn = [jitter(10) for _ in range(1000)]
    assert 5 <= min(drawn) < 6
    assert 9 < max(drawn) <= 10
    assert all(9 <= jitter(10, spread=0.1) <= 10 for _ in range(100))
    assert jitter(0) == 0


def test_back_off_grows_from_the_first_pause_to_the_last_and_is_never_longer() -> None:
    assert [longest_backoff(attempts, 1.0, 10.0) for attempts in range(1, 6)] == [1.0, 2.0, 4.0, 8.0, 10.0]
    assert [longest_backoff(attempts, 1.0, 20.0, 4.0) for attempts in range(1, 5)] == [1.0, 4.0, 16.0, 20.0]
    assert longest_backoff(10**9, 0.001, 600.0) == 600.0


def test_back_off_is_shortened_at_random_by_up_to_its_spread() -> None:
    assert all(4.0 <= backoff(4, 1.0, 10.0) <= 8.0 for _ in range(100))
    assert all(8.0 <= backoff(5, 1.0, 10.0, spread=0.2) <= 10.0 for _ in range(100))
    assert backoff(3, 1.0, 10.0, spread=0.0) == 4.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "0.5 s"),
        (90.0, "90 s"),
        (3600.0, "3600 s"),
        (7200.0, "2 hours"),
        (86_400.0, "24 hours"),
        (432_000.0, "5 days"),
    ],
)
def test_a_length_of_time_is_told_in_words(seconds: float, words: str) -> None:
    assert lasting(seconds) == words
