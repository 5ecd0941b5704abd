"""The one-time token: whoever reads the terminal of `posthouse console` may sign in, once."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections import deque

from posthouse.clock import Clock

LIFE = 600.0
"""Seconds for which a token is good."""
MOST_TRIES, WINDOW = 10, 60.0
"""So many refused attempts from one address, in so many seconds; then it waits until one of them is older."""
IN_ALL = 100
"""So many from all addresses together; then everybody waits."""


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
    """Refused attempts to sign in: a few from each address, so that one stranger shuts nobody else out, and some in all, as
    addresses are cheap. Whoever waits is not refused once more."""

    def __init__(self, clock: Clock, most: int = MOST_TRIES, in_all: int = IN_ALL) -> None:
        self._clock, self._most = clock, most
        self._refused: deque[tuple[str, float]] = deque(maxlen=in_all)

    def pause(self, peer: str) -> float:
        """Seconds until the next attempt of this address is looked at; 0 for now."""
        mine = [at for one, at in self._refused if one == _network(peer)]
        full = [self._refused[0][1]] if len(self._refused) == self._refused.maxlen else []
        if len(mine) >= self._most:
            full.append(mine[-self._most])
        return max(0.0, max(full, default=float("-inf")) + WINDOW - self._clock.monotonic())

    def refused(self, peer: str) -> None:
        self._refused.append((_network(peer), self._clock.monotonic()))


def _network(peer: str) -> str:
    """An address; of version 6 its first half, as one host has all of the rest."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped:
        return peer
    return str(ipaddress.ip_network((address, 64), strict=False))


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
