"""Sessions: who is signed in, kept on the server. A browser holds a random name, as a cookie, and a random key, which its pages keep
for their own origin: browsers show cookies of a host to all of its ports, so the name alone is worth nothing."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from posthouse.clock import Clock

Claims = Mapping[str, object]
"""What an issuer said of a person."""


class Session(msgspec.Struct):
    """`began` is the sign-in, in seconds since 1970; the other two follow a clock that nobody can set."""

    claims: Claims
    key: bytes
    began: float
    opened: float
    seen: float


class Sessions:
    """At most `most` of them, the one longest unused gives way. One ends `idle` seconds after its last request, and `longest`
    seconds after the sign-in whatever happens. All are gone when the process ends."""

    def __init__(self, clock: Clock, *, idle: float, longest: float, most: int) -> None:
        self._clock, self._idle, self._longest, self._most = clock, idle, longest, most
        self._open: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, claims: Claims) -> tuple[str, str]:
        """A new name and a new key for every sign-in: none that somebody knew before is ever signed in."""
        name, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        now = self._clock.monotonic()
        self._open[_hash(name)] = Session(claims, _hash(key), self._clock.now(), now, now)
        while len(self._open) > self._most:
            self._open.popitem(last=False)
        return name, key

    def find(self, name: str, key: str) -> Session | None:
        """The session, which counts as used."""
        found = self.look(name, key)
        if found is not None:
            found.seen = self._clock.monotonic()
            self._open.move_to_end(_hash(name))
        return found

    def look(self, name: str, key: str) -> Session | None:
        """The session, while it is open; asking is no use of it."""
        found = self._open.get(_hash(name))
        if found is None or not hmac.compare_digest(found.key, _hash(key)):
            return None
        now = self._clock.monotonic()
        if now - found.seen > self._idle or now - found.opened > self._longest:
            del self._open[_hash(name)]
            return None
        return found

    def end(self, name: str) -> None:
        self._open.pop(_hash(name), None)

    def __len__(self) -> int:
        return len(self._open)


def _hash(name: str) -> bytes:
    """Names are looked up by their hash, so that the time of a look-up tells nothing about them, and memory holds none."""
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
