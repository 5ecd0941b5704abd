"""Drafts: facts that are about to be signed. What does not depend on their number is computed once, before they have it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from posthouse.events import Event
from posthouse.events.codecs.attributes import sequence_text
from posthouse.events.envelope import Scalar
from posthouse.trust.signatures.covering import EXACT_TIME, attributes_in, bare, names_in, typed_as
from posthouse.trust.signatures.keys import Key
from posthouse.trust.signatures.material import (
    KIND,
    NAME,
    Material,
    core_of,
    digest,
    digests_of,
    pae,
    payload_of,
    sealed_as,
)

SEQUENCE, LINEAGE = "sequence", "lineage"
_TOKEN = secrets.token_hex(24)
"""How a stand-in begins. Nobody outside of this process knows it, so that it is in no event."""


class FactDraft:
    """See `posthouse.seam.seals.Draft`."""

    __slots__ = ("_core", "_digests", "_fact", "_key", "_private", "event")

    def __init__(self, key: Key, private: Ed25519PrivateKey, marks: Mapping[str, Scalar], fact: Event[bytes]) -> None:
        said = bare(fact.extensions)
        extensions: dict[str, Scalar] = {**said, **typed_as(said), **marks}
        if fact.time:
            extensions[EXACT_TIME] = fact.time
        event = msgspec.structs.replace(fact, sequence=None, lineage=1, extensions=extensions)
        attributes = attributes_in(event)
        self._key, self._private, self._fact = key, private, fact
        self._core = core_of(attributes, fact.data)
        names = names_in(attributes)
        self._digests = dict(zip(names, digests_of(attributes, names), strict=True))
        stand_in = _stand_in(key.id, tuple(names), fact.key is not None)
        self.event: Event[bytes] = msgspec.structs.replace(event, extensions={**extensions, NAME: stand_in})

    def sealed(self, sequence: int | None, lineage: int) -> str:
        digests = self._digests
        given = {}
        if sequence is not None and SEQUENCE not in digests:
            given[SEQUENCE] = digest(SEQUENCE, sequence_text(sequence))
        if lineage != 1:
            given[LINEAGE] = digest(LINEAGE, lineage)
        if given:
            digests = given | digests
        names = sorted(digests)
        ext = sha256(b"".join([digests[name] for name in names])).digest() if names else None
        payload = payload_of(Material(self._core, ext, names))
        return sealed_as(payload, self._key.id, self._private.sign(pae(KIND, payload)))

    def whole(self) -> Event[bytes]:
        """The fact, with the number that it has, and its seal."""
        fact = self._fact
        extensions = {**self.event.extensions, NAME: self.sealed(fact.sequence, fact.lineage)}
        return msgspec.structs.replace(fact, extensions=extensions)


@lru_cache(maxsize=256)
def _stand_in(keyid: str, names: tuple[str, ...], numbered: bool) -> str:
    """A text as long as the longest seal of such facts."""
    covered = sorted({*names, LINEAGE, SEQUENCE} if numbered else {*names, LINEAGE})
    digest = bytes(sha256().digest_size)
    seal = sealed_as(payload_of(Material(digest, digest, covered)), keyid, bytes(64))
    return _TOKEN.ljust(len(seal), "A")
