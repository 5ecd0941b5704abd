"""How a handler's failures are answered: one value, and pure functions of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from posthouse.clock import backoff, backoff_horizon
from posthouse.errors import ContractError, DecodeError, FrameRefused, Reject, RetryLater, RetryNow
from posthouse.options import Count, Options, Seconds, SomeSeconds

Errors = tuple[type[Exception], ...]


class Policy(Options):
    """The reliability of one handler. Durations are seconds."""

    max_attempts: Count = 7
    """How often an event is tried before it is dead; the first run counts, also one that a crash may have cut short: with
    1, an event that was in flight during a crash is dead."""
    first_delay: Seconds = 10.0
    """The delay before the second run; it doubles from there."""
    last_delay: Seconds = 600.0
    """No delay is longer."""
    deadline: SomeSeconds = 30.0
    """How long one run may take; a group is one run."""
    order: Literal["key", "none"] = "key"
    """`key`: events of one key in commit order, one at a time. `none`: as they come. One choice per consumer and topic."""
    on_dead: Literal["stop", "skip"] = "stop"
    """What a key does behind a dead event: wait for an operator, or go on without it."""
    grouped: bool = False
    """The handler touches nothing but its transaction: events of different keys may share one."""
    group_size: Count = 100
    """At most so many events in one transaction, or in one call of a handler that takes a list."""
    gap_deadline: Seconds = 60.0
    """How long a missing number may stay missing before the alarm."""
    retry_immediately: Errors = ()
    """Errors that are worth an immediate second try (RetryNow is always one)."""
    never_retry: Errors = ()
    """Errors that no second try can cure (Reject and contract errors always are)."""

    def delay(self, attempts: int) -> float:
        """Seconds before the next run, after `attempts` runs; shortened at random by up to half."""
        return backoff(attempts, self.first_delay, self.last_delay)

    @property
    def horizon(self) -> float:
        """The longest time between the first run of an event and its last."""
        return backoff_horizon(self.max_attempts, self.first_delay, self.last_delay)

    def conflicts(self) -> list[str]:
        if self.first_delay <= self.last_delay:
            return []
        return [
            f"Policy: first_delay={self.first_delay:g} is longer than last_delay={self.last_delay:g}: raise last_delay"
        ]


DEFAULT = Policy()


class Again(msgspec.Struct, frozen=True):
    """Run the event again after `seconds`; 0 means at once, without leaving the worker."""

    seconds: float


class Dead(msgspec.Struct, frozen=True):
    """No further run: attempts are spent, or no attempt can help."""

    reason: str


class Quarantine(msgspec.Struct, frozen=True):
    """No further run by itself, and its key goes on without it: it is for people to look at."""

    reason: str


Outcome = Again | Dead | Quarantine
"""What follows a failure."""


def decide(policy: Policy, error: BaseException, attempts: int) -> Outcome:
    """What follows when run number `attempts` ended with `error`."""
    if isinstance(error, FrameRefused):
        return Quarantine(str(error))
    if isinstance(error, ContractError | DecodeError):
        return Dead("contract")
    if isinstance(error, (Reject, *policy.never_retry)):
        return Dead("rejected")
    if attempts >= policy.max_attempts:
        return Dead("attempts spent")
    if isinstance(error, (RetryNow, *policy.retry_immediately)):
        return Again(0.0)
    if isinstance(error, RetryLater) and error.seconds is not None:
        return Again(error.seconds)
    return Again(policy.delay(attempts))
