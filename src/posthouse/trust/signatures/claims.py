"""Claims: facts that came in, on their way to being proved. What is costly about it needs nobody, and may be done in any thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from posthouse.errors import FrameRefused
from posthouse.events import Event
from posthouse.seam.seals import Arrival
from posthouse.trust.signatures.covering import as_signed, check_cover, check_place
from posthouse.trust.signatures.keyring import Keyring
from posthouse.trust.signatures.keys import Key
from posthouse.trust.signatures.material import KIND, NAME, BadMaterial, Sealed, material_in, opened, pae


class Try(NamedTuple):
    """A signature that may be the one: by a key that stands for the fact."""

    id: str
    public: Ed25519PublicKey
    signature: bytes


class FactClaim:
    """That a fact is as its producer signed it, for a topic. See `posthouse.seam.seals.Claim`."""

    __slots__ = ("_arrival", "_event", "_holds", "_keyring", "_keys", "_payload", "_topic", "_tries", "_why")

    def __init__(self, keyring: Keyring, arrival: Arrival, event: Event[bytes], topic: str) -> None:
        self._keyring, self._arrival, self._event, self._topic = keyring, arrival, event, topic
        self._keys = keyring.keys
        self._payload = b""
        self._tries: Sequence[Try] = ()
        self._why = ""
        """Why it does not hold, as far as that is known."""
        self._holds: bool | None = None
        """Whether one of the signatures does; None: nobody has looked."""
        if NAME in event.extensions:
            try:
                self._tries = self._chosen(opened(event.extensions[NAME]))
            except BadMaterial as error:
                self._why = str(error)

    def _chosen(self, sealed: Sealed) -> Sequence[Try]:
        """The signatures by keys that stand for this fact."""
        self._payload, tries = sealed.payload, []
        for id, signature in sealed.signatures:
            if (key := self._keyring.get(id)) is None:
                self._why = self._why or f"its key {id!r:.80} is not known"
            elif problem := _unfit(key, self._arrival, self._event):
                self._why = problem
            else:
                tries.append(Try(id, self._keyring.public(id), signature))
        return tries

    def verify(self) -> None:
        said = pae(KIND, self._payload)
        for one in self._tries:
            try:
                one.public.verify(one.signature, said)
                self._holds = True
                return
            except InvalidSignature:
                self._why = f"its signature is not by the key {one.id!r}"
        self._holds = False

    def proved(self) -> Event[bytes]:
        """The event with nothing but what its signature covers, and without the marks of that. Raises FrameRefused. Keys that have changed
        since it was made are asked again."""
        if self._keyring.keys is not self._keys:
            return FactClaim(self._keyring, self._arrival, self._event, self._topic).proved()
        if NAME not in self._event.extensions:
            raise FrameRefused("unsigned: signatures are required here, and it has none", "unsigned")
        if self._holds is None:
            self.verify()
        try:
            if not self._holds:
                raise BadMaterial(self._why)
            check_cover(material_in(self._payload), self._event, self._topic)
            if self._arrival.held is not None:
                check_place(self._event.extensions, self._arrival.held)
            return msgspec.structs.replace(self._event, extensions=as_signed(self._event.extensions))
        except BadMaterial as error:
            raise FrameRefused(f"forged: {error}", "forged") from error


def _unfit(key: Key, arrival: Arrival, event: Event[bytes]) -> str:
    """Why a key does not stand for a fact; empty when it does."""
    if not key.signs_for(event.source, arrival.topic, event.tenant):
        return f"key {key.id!r} does not sign for {event.source!r:.80} on this topic, for this tenant"
    if key.use == "audit":
        return f"key {key.id!r} signs checkpoints of the audit log, and no fact"
    if key.use == "contracts":
        return f"key {key.id!r} signs contracts, and no fact"
    if key.use == "edits" and arrival.held is None:
        return f"key {key.id!r} signs edits of held events, and no fact on its way"
    return key.refuses(arrival.at)
