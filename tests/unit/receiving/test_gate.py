"""The key gate: one per key, keys side by side, tenants in turns."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from posthouse.receiving.gate import Gate


def test_a_key_has_one_event_in_flight_and_keeps_its_order() -> None:
    gate: Gate[int] = Gate(10)
    for number in (1, 2, 3):
        gate.put("t", "k", number)
    assert gate.take() == ("k", 1)
    assert not gate.ready
    gate.done("k")
    assert gate.take() == ("k", 2)
    gate.done("k")
    assert gate.take() == ("k", 3)
    gate.done("k")
    assert gate.idle


def test_keys_run_side_by_side() -> None:
    gate: Gate[int] = Gate(10)
    gate.put("t", "a", 1)
    gate.put("t", "b", 2)
    assert [gate.take()[1], gate.take()[1]] == [1, 2]


def test_a_quiet_tenant_waits_for_one_event_of_a_noisy_one_not_for_all() -> None:
    gate: Gate[str] = Gate(1000)
    for number in range(500):
        gate.put("noisy", f"n{number}", "noisy")
    gate.put("quiet", "q", "quiet")
    assert [gate.take()[1], gate.take()[1]] == ["noisy", "quiet"]


def test_room_counts_what_is_in_flight_until_it_is_done() -> None:
    gate: Gate[int] = Gate(2)
    gate.put("t", "a", 1)
    gate.put("t", None, 2)
    assert gate.room == 0
    key, _ = gate.take()
    assert gate.room == 0
    gate.done(key)
    assert gate.room == 1


def test_nothing_ready_is_an_index_error_and_peek_says_none() -> None:
    gate: Gate[int] = Gate(2)
    assert gate.peek() is None
    with pytest.raises(IndexError):
        gate.take()


@pytest.mark.parametrize("seed", range(20))
def test_every_key_keeps_its_order_whatever_the_interleaving(seed: int) -> None:
    dice = random.Random(seed)
    gate: Gate[tuple[str, int]] = Gate(10_000)
    said: dict[str, int] = defaultdict(int)
    heard: dict[str, list[int]] = defaultdict(list)
    flying: list[tuple[object, tuple[str, int]]] = []
    for _ in range(2_000):
        roll = dice.random()
        if roll < 0.4:
            key = f"k{dice.randrange(20)}"
            said[key] += 1
            gate.put(f"t{dice.randrange(3)}", key, (key, said[key]))
        elif roll < 0.7 and gate.ready:
            taken = gate.take()
            assert taken[0] not in [key for key, _ in flying]
            flying.append(taken)
        elif flying:
            landed, (name, number) = flying.pop(dice.randrange(len(flying)))
            heard[name].append(number)
            gate.done(str(landed))
    assert sum(map(len, heard.values())) > 100
    for numbers in heard.values():
        assert numbers == list(range(1, len(numbers) + 1))
