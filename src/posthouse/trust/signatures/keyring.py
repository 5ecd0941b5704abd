"""Keyring: the keys as this process knows them now. Its files are looked at again while it runs, but not often."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from posthouse.clock import Clock
from posthouse.errors import ConfigurationError
from posthouse.trust.signatures.halves import Halves, stamp_of
from posthouse.trust.signatures.keys import Key, Use, read_keys

log = logging.getLogger("posthouse.signatures")

LOOK = 1.0
"""Seconds between two looks whether a file has changed."""


MOST = 1_000
"""Kinds of facts whose key is remembered."""


class Chosen(NamedTuple):
    """The key that some facts are signed with, between two moments: then another may be."""

    found: tuple[Key, Ed25519PrivateKey] | None
    since: float
    until: float


class Keyring:
    """Public keys of a file, and the private ones that are here, each file read again when it changed. One that cannot be read any
    more, or is there by half, leaves what was known, and is complained about until it can be. A private key that was here stays:
    whoever takes one out of use retires it."""

    def __init__(self, path: Path, halves: Halves, clock: Clock) -> None:
        self._path = path
        self._halves = halves
        self._clock = clock
        self._seeds: Mapping[str, bytes] = {}
        self._keys: Mapping[str, Key] = {}
        self._public: dict[str, Ed25519PublicKey] = {}
        self._private: dict[str, Ed25519PrivateKey] = {}
        self._chosen: dict[tuple[str, str, str, Use], Chosen] = {}
        self._looked_at = float("-inf")
        self._complained: dict[str, str] = {}
        self._stamps: dict[str, object] = {"public": stamp_of(path), "private": halves.stamp()}  # as they were before
        self._take(read_keys(path), halves.read())

    @property
    def keys(self) -> Mapping[str, Key]:
        """All of them, by their ids, as the file has them."""
        if self._clock.monotonic() - self._looked_at >= LOOK:
            self._look()
        return self._keys

    @property
    def signs(self) -> bool:
        """Whether a private half is here."""
        return bool(self._private)

    @property
    def now(self) -> float:
        """In seconds since 1970."""
        return self._clock.now()

    def get(self, id: str) -> Key | None:
        """One of them. For an id that is not known the file is looked at at once, which costs a stat and no more: a producer may have
        begun with the next key a moment ago."""
        found = self.keys.get(id)
        if found is None:
            self._look()
            found = self._keys.get(id)
        return found

    def public(self, id: str) -> Ed25519PublicKey:
        """One that `keys` has."""
        return self._public[id]

    def signer(self, source: str, topic: str, tenant: str, use: Use = "facts") -> tuple[Key, Ed25519PrivateKey] | None:
        """The newest active key for such facts whose private half is here."""
        keys, now, wanted = self.keys, self._clock.now(), (source, topic, tenant, use)
        if (chosen := self._chosen.get(wanted)) is not None and chosen.since <= now < chosen.until:
            return chosen.found
        if len(self._chosen) >= MOST:
            self._chosen.clear()
        chosen = self._chosen[wanted] = self._choose(keys, now, *wanted)
        return chosen.found

    def _choose(self, keys: Mapping[str, Key], now: float, source: str, topic: str, tenant: str, use: Use) -> Chosen:
        mine = [
            keys[id]
            for id in self._private
            if id in keys and keys[id].use == use and keys[id].signs_for(source, topic, tenant)
        ]
        turns = [at for key in mine for at in (key.since, key.retired, key.revoked) if at is not None and at > now]
        active = [key for key in mine if key.state(now) == "active"]
        best = max(active, key=lambda key: (key.since, key.id), default=None)
        return Chosen(None if best is None else (best, self._private[best.id]), now, min(turns, default=float("inf")))

    def _look(self) -> None:
        """The public file first: a private half is written before its public one, so whose key is seen here is here."""
        self._looked_at = self._clock.monotonic()
        self._refresh("public", lambda: stamp_of(self._path), lambda: self._take(read_keys(self._path), self._seeds))
        self._refresh(
            "private", self._halves.stamp, lambda: self._take(self._keys, {**self._seeds, **self._halves.read()})
        )

    def _refresh(self, kind: str, stamp_now: Callable[[], object], take: Callable[[], None]) -> None:
        try:
            stamp = stamp_now()
            if stamp == self._stamps[kind]:
                return
            self._stamps[kind] = stamp  # also of a file that is no good: it is read once
            take()
            self._complained.pop(kind, None)
        except (ConfigurationError, OSError) as error:
            if isinstance(error.__cause__, OSError):
                self._stamps[kind] = None  # it was not read at all, and may be read next time as it stands
            if str(error) != self._complained.get(kind):
                self._complained[kind] = str(error)
                log.error("the keys that were known stay in force: %s", error)

    def _take(self, keys: Mapping[str, Key], seeds: Mapping[str, bytes]) -> None:
        public = {id: Ed25519PublicKey.from_public_bytes(key.public) for id, key in keys.items()}
        private = {}
        for id, seed in seeds.items():
            private[id] = Ed25519PrivateKey.from_private_bytes(seed)
            if id in public and private[id].public_key().public_bytes_raw() != keys[id].public:
                raise ConfigurationError(
                    f"{self._path}: the private key {id!r} is not that of the public one with this id"
                )
        self._keys, self._public, self._private, self._seeds = keys, public, private, seeds
        self._chosen.clear()
