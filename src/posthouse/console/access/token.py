"""The one-time token: whoever reads the terminal of `posthouse console` may sign in, once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque

from posthouse.clock import Clock

LIFE = 600.0
"""Seconds for which a token is good."""
MOST_TRIES, WINDOW = 10, 60.0
"""So many refused attempts, in so many seconds; then nobody is let in until one of them is older."""


class OneTimeToken:
    """One is good at a time: a new one takes the place of the last. Only its hash is kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hash = b""
        self._until = float("-inf")

    def new(self) -> str:
        token = secrets.token_urlsafe(32)
        self._hash, self._until = _hash(token), self._clock.monotonic() + LIFE
        return token

    def take(self, token: str) -> bool:
        """Whether it is the one. It is used up then; a wrong one changes nothing."""
        good = hmac.compare_digest(_hash(token), self._hash) and self._clock.monotonic() <= self._until
        if good:
            self._hash = b""
        return good


class Attempts:
    """Refused attempts to sign in, of everybody together: addresses are cheap, and behind a proxy they are all the same."""

    def __init__(self, clock: Clock, most: int = MOST_TRIES) -> None:
        self._clock = clock
        self._refused: deque[float] = deque(maxlen=most)

    def pause(self) -> float:
        """Seconds until the next attempt is looked at; 0 for now."""
        if len(self._refused) < (self._refused.maxlen or 0):
            return 0.0
        return max(0.0, self._refused[0] + WINDOW - self._clock.monotonic())

    def refused(self) -> None:
        self._refused.append(self._clock.monotonic())


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
