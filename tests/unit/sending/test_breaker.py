"""The breaker."""

from __future__ import annotations

from posthouse.sending.breaker import Breaker


def test_delays_double_up_to_the_last_with_jitter() -> None:
    breaker = Breaker(1.0, 20.0)
    for longest in (1, 2, 4, 8, 16, 20, 20):
        assert longest / 2 <= breaker.failed() <= longest
    assert breaker.failures == 7


def test_one_success_closes_it_and_is_told_once() -> None:
    breaker = Breaker(1.0, 20.0)
    assert not breaker.succeeded()
    for _ in range(5):
        breaker.failed()
    assert breaker.succeeded()
    assert not breaker.succeeded()
    assert breaker.failed() <= 1.0


def test_a_thousand_failures_overflow_nothing() -> None:
    breaker = Breaker(0.2, 30.0)
    assert all(0 < breaker.failed() <= 30 for _ in range(2000))
