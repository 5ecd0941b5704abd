"""The queue of a consumer: one per key, keys side by side, tenants in turns."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from posthouse.receiving.key_queue import KeyQueue


def test_a_key_has_one_event_in_flight_and_keeps_its_order() -> None:
    queue: KeyQueue[int] = KeyQueue(10)
    for number in (1, 2, 3):
        queue.put("t", "k", number)
    assert queue.take() == ("k", 1)
    assert not queue.ready
    queue.done("k")
    assert queue.take() == ("k", 2)
    queue.done("k")
    assert queue.take() == ("k", 3)
    queue.done("k")
    assert queue.idle


def test_keys_run_side_by_side() -> None:
    queue: KeyQueue[int] = KeyQueue(10)
    queue.put("t", "a", 1)
    queue.put("t", "b", 2)
    assert [queue.take()[1], queue.take()[1]] == [1, 2]


def test_a_quiet_tenant_waits_for_one_event_of_a_noisy_one_not_for_all() -> None:
    queue: KeyQueue[str] = KeyQueue(1000)
    for number in range(500):
        queue.put("noisy", f"n{number}", "noisy")
    queue.put("quiet", "q", "quiet")
    assert [queue.take()[1], queue.take()[1]] == ["noisy", "quiet"]


def test_room_counts_what_is_in_flight_until_it_is_done() -> None:
    queue: KeyQueue[int] = KeyQueue(2)
    queue.put("t", "a", 1)
    queue.put("t", None, 2)
    assert queue.room == 0
    key, _ = queue.take()
    assert queue.room == 0
    queue.done(key)
    assert queue.room == 1


def test_nothing_ready_is_an_index_error_and_peek_says_none() -> None:
    queue: KeyQueue[int] = KeyQueue(2)
    assert queue.peek() is None
    with pytest.raises(IndexError):
        queue.take()


@pytest.mark.parametrize("seed", range(20))
def test_every_key_keeps_its_order_whatever_the_interleaving(seed: int) -> None:
    dice = random.Random(seed)
    queue: KeyQueue[tuple[str, int]] = KeyQueue(10_000)
    said: dict[str, int] = defaultdict(int)
    heard: dict[str, list[int]] = defaultdict(list)
    flying: list[tuple[object, tuple[str, int]]] = []
    for _ in range(2_000):
        roll = dice.random()
        if roll < 0.4:
            key = f"k{dice.randrange(20)}"
            said[key] += 1
            queue.put(f"t{dice.randrange(3)}", key, (key, said[key]))
        elif roll < 0.7 and queue.ready:
            taken = queue.take()
            assert taken[0] not in [key for key, _ in flying]
            flying.append(taken)
        elif flying:
            landed, (name, number) = flying.pop(dice.randrange(len(flying)))
            heard[name].append(number)
            queue.done(str(landed))
    assert sum(map(len, heard.values())) > 100
    for numbers in heard.values():
        assert numbers == list(range(1, len(numbers) + 1))
