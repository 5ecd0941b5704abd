"""How failures are answered."""

from __future__ import annotations

import sys

import pytest

from posthouse.clock import longest_backoff
from posthouse.errors import ConfigurationError, ContractError, DecodeError, Reject, RetryLater, RetryNow
from posthouse.receiving.policy import Again, Dead, Policy, decide


def test_delays_double_from_ten_seconds_to_six_hundred_with_jitter() -> None:
    policy = Policy()
    for attempts, longest in ((1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (40, 600)):
        delays = [policy.delay(attempts) for _ in range(200)]
        assert longest / 2 <= min(delays) <= max(delays) <= longest
        assert len(set(delays)) > 100


def test_the_seventh_failure_is_the_last() -> None:
    assert isinstance(decide(Policy(), ValueError(), 6), Again)
    assert decide(Policy(), ValueError(), 7) == Dead("attempts spent")


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (RetryNow(), Again(0.0)),
        (TimeoutError(), Again(0.0)),
        (RetryLater("later", seconds=99), Again(99)),
        (Reject("no"), Dead("rejected")),
        (KeyError("k"), Dead("rejected")),
        (ContractError("x"), Dead("contract")),
        (DecodeError("depth", "x"), Dead("contract")),
    ],
)
def test_errors_are_told_apart(error: Exception, answer: Again | Dead) -> None:
    assert decide(Policy(retry_immediately=(TimeoutError,), never_retry=(KeyError,)), error, 1) == answer


def test_an_immediate_retry_is_an_attempt_too() -> None:
    assert decide(Policy(max_attempts=3), RetryNow(), 3) == Dead("attempts spent")


def test_every_problem_of_a_policy_is_named() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Policy(max_attempts=0, deadline=0, group_size=0)
    assert refused.value.problems == (
        "Policy(max_attempts=0): it is a whole number, 1 or more",
        "Policy(deadline=0): it is a number of seconds above 0",
        "Policy(group_size=0): it is a whole number, 1 or more",
    )
    with pytest.raises(ConfigurationError, match="first_delay=9 is longer than last_delay=1: raise last_delay"):
        Policy(first_delay=9, last_delay=1)


def test_any_number_of_deliveries_has_delays_and_a_horizon() -> None:
    patient = Policy(max_attempts=5000)
    assert patient.delay(5000) <= patient.last_delay
    assert patient.horizon <= 5000 * patient.last_delay


def test_the_horizon_is_the_sum_of_all_delays_and_of_no_number_of_them_slow() -> None:
    for runs in (1, 2, 7, 101, 102, 103, 150):
        policy = Policy(max_attempts=runs, first_delay=0.001)
        assert policy.horizon == pytest.approx(sum(longest_backoff(n, 0.001, 600.0) for n in range(1, runs)))
    assert Policy(max_attempts=sys.maxsize).horizon == pytest.approx(sys.maxsize * 600.0)
