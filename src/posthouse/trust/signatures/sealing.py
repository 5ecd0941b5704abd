"""Sealing: signs the facts of this process, and proves those of others."""

from __future__ import annotations

import logging

from cryptography.exceptions import InvalidSignature

from posthouse.errors import EventError, FrameRefused
from posthouse.events import Event
from posthouse.seam.counting import Counting
from posthouse.seam.seals import Arrival, Claim, Place
from posthouse.trust.signatures.claims import FactClaim
from posthouse.trust.signatures.covering import EDITED_BY, HELD_AS, TOPIC, held_as
from posthouse.trust.signatures.drafts import FactDraft
from posthouse.trust.signatures.keyring import Keyring
from posthouse.trust.signatures.keys import DLQ
from posthouse.trust.signatures.material import CONTRACTS, pae
from posthouse.trust.signatures.modes import Modes

log = logging.getLogger("posthouse.signatures")

TIMER = "timer "
"""Before the topic of what waits as a timer: its signature proves no fact."""


class Sealing:
    """See `posthouse.seam.seals.Seals`."""

    def __init__(self, keyring: Keyring, modes: Modes, counting: Counting, service: str) -> None:
        self._keyring = keyring
        self._modes = modes
        self._counting = counting
        self._service = service
        self._warned: set[tuple[str, str]] = set()

    def seal(self, topic: str, event: Event[bytes], *, waiting: bool = False) -> Event[bytes]:
        return self.draft(topic, event, waiting=waiting).whole()

    def draft(self, topic: str, event: Event[bytes], *, waiting: bool = False) -> FactDraft:
        if (found := self._keyring.signer(event.source, topic, event.tenant)) is None:
            raise EventError(
                f"{event.type} cannot be signed: no key is active for {event.source} on {topic}, tenant {event.tenant}, whose "
                "private half is here. See `posthouse keys list`"
            )
        return FactDraft(*found, {TOPIC: TIMER + topic if waiting else topic}, event)

    def reseal(self, topic: str, event: Event[bytes], by: str, place: Place) -> Event[bytes]:
        found = self._keyring.signer(event.source, topic, event.tenant, "edits")
        if found is None:
            raise EventError(
                f"{event.type} of {event.source} is signed, and no key for edits is active here: make one with `posthouse keys new "
                f"ID --use edits --source {event.source} --private FILE`, or skip the event and let its producer publish a correction"
            )
        return FactDraft(*found, {TOPIC: topic, EDITED_BY: by, HELD_AS: held_as(place)}, event).whole()

    def is_intact(self, arrival: Arrival, event: Event[bytes], *, waiting: bool = False) -> bool:
        topic = TIMER + arrival.topic if waiting else arrival.topic.removesuffix(DLQ)
        try:
            FactClaim(self._keyring, arrival, event, topic).proved()
        except FrameRefused:
            return False
        return True

    def asks(self, arrival: Arrival) -> bool:
        return self._modes.of(arrival.topic, arrival.at) == "require"

    def claim(self, arrival: Arrival, event: Event[bytes]) -> FactClaim | None:
        if self._modes.of(arrival.topic, arrival.at) == "off":
            return None
        return FactClaim(self._keyring, arrival, event, arrival.topic.removesuffix(DLQ))

    def prove(self, arrival: Arrival, event: Event[bytes], claim: Claim | None = None) -> Event[bytes]:
        if (claim := claim or self.claim(arrival, event)) is None:
            return event
        try:
            return claim.proved()
        except FrameRefused as refused:
            mode = self._modes.of(arrival.topic, arrival.at)
            self._count(refused, mode)
            if mode == "require":
                raise
            self._warn(arrival.topic, event.source, refused)
            return event

    def refuse_changed(self, arrival: Arrival, why: str) -> None:
        if (mode := self._modes.of(arrival.topic, arrival.at)) == "off":
            return
        refused = FrameRefused(f"forged: {why}", "forged")
        self._count(refused, mode)
        if mode == "require":
            raise refused

    def refuses_release(self, key: str, material: bytes, signature: bytes) -> str:
        found = self._keyring.get(key)
        if not key or found is None:
            return f"its key {key!r:.80} is not known" if key else "it is not signed, and signatures are on here"
        if found.use != "contracts":
            return f"key {key!r} signs {found.use}, and no contracts: `posthouse keys new --use contracts` makes one"
        if (why := found.refuses(self._keyring.now)) or found.since > self._keyring.now:
            return why or f"key {key!r} is not in use yet"
        try:
            self._keyring.public(key).verify(signature, pae(CONTRACTS, material))
        except InvalidSignature:
            return f"its signature is not by the key {key!r}"
        return ""

    def _count(self, refused: FrameRefused, mode: str) -> None:
        self._counting.counter("signatures_refused_total", self._service, refused.reason, mode).value += 1

    def _warn(self, topic: str, source: str, refused: FrameRefused) -> None:
        """Once for each topic and reason: a log is no place for a flood, and the figures count them all."""
        if (topic, refused.reason) not in self._warned and len(self._warned) < 1_000:
            self._warned.add((topic, refused.reason))
            log.warning("%s: a fact of %s would be refused, were signatures required: %s", topic, source, refused)
