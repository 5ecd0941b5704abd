"""Sealing: signs the facts of this process, and proves those of others."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from hmac import compare_digest

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from posthouse.errors import EventError, FrameRefused
from posthouse.events import Event
from posthouse.events.codecs.attributes import attributes_of
from posthouse.events.envelope import Scalar
from posthouse.seam.counting import Counting
from posthouse.seam.seals import Arrival, Seal
from posthouse.trust.signatures.keyring import Keyring
from posthouse.trust.signatures.keys import DLQ, Key
from posthouse.trust.signatures.material import (
    CORE,
    KIND,
    NAME,
    BadMaterial,
    Material,
    Sealed,
    digest_of,
    material_in,
    opened,
    pae,
    payload_of,
    sealed_as,
)
from posthouse.trust.signatures.modes import Modes

log = logging.getLogger("posthouse.signatures")

EXACT_TIME, TOPIC, EDITED_BY = "exacttime", "signedtopic", "editedby"
"""Extensions beside the material: the core digest cuts the time to seconds, and has no topic at all; who edited it while it was held."""
TIMER = "timer "
"""Before the topic of what waits as a timer: its signature proves no fact."""
OURS = frozenset((NAME, EXACT_TIME, TOPIC, EDITED_BY))

UNSIGNED = frozenset((NAME, "traceparent", "tracestate", "outboxid"))
"""What may change on the way without harm: nothing is decided by it."""

Attributes = Mapping[str, Scalar]


class Sealing:
    """See `posthouse.seam.seals.Seals`."""

    def __init__(self, keyring: Keyring, modes: Modes, counting: Counting, service: str) -> None:
        self._keyring = keyring
        self._modes = modes
        self._counting = counting
        self._service = service
        self._warned: set[tuple[str, str]] = set()

    def sealer(self, topic: str, event: Event[bytes], *, waiting: bool = False) -> Seal:
        if (found := self._keyring.signer(event.source, topic, event.tenant)) is None:
            raise EventError(
                f"{event.type} cannot be signed: no key is active for {event.source} on {topic}, tenant {event.tenant}, whose "
                "private half is here. See `posthouse keys list`"
            )
        return partial(_signed, *found, {TOPIC: TIMER + topic if waiting else topic})

    def seal(self, topic: str, event: Event[bytes], *, waiting: bool = False) -> Event[bytes]:
        return self.sealer(topic, event, waiting=waiting)(event)

    def reseal(self, topic: str, event: Event[bytes], by: str) -> Event[bytes]:
        found = self._keyring.signer(event.source, topic, event.tenant, "edits")
        if found is None:
            raise EventError(
                f"{event.type} of {event.source} is signed, and no key for edits is active here: make one with `posthouse keys new "
                "--use edits`, or skip the event and let its producer publish a correction"
            )
        return _signed(*found, {TOPIC: topic, EDITED_BY: by}, event)

    def is_intact(self, topic: str, event: Event[bytes]) -> bool:
        try:
            self._prove(Arrival(topic, float("-inf")), event, TIMER + topic)
        except FrameRefused:
            return False
        return True

    def prove(self, arrival: Arrival, event: Event[bytes]) -> Event[bytes]:
        mode = self._modes.of(arrival.topic, arrival.at)
        if mode == "off":
            return event
        try:
            return self._prove(arrival, event, arrival.topic.removesuffix(DLQ))
        except FrameRefused as refused:
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

    def _count(self, refused: FrameRefused, mode: str) -> None:
        self._counting.counter("signatures_refused_total", self._service, refused.reason, mode).value += 1

    def _warn(self, topic: str, source: str, refused: FrameRefused) -> None:
        """Once for each topic and reason: a log is no place for a flood, and the figures count them all."""
        if (topic, refused.reason) not in self._warned and len(self._warned) < 1_000:
            self._warned.add((topic, refused.reason))
            log.warning("%s: a fact of %s would be refused, were signatures required: %s", topic, source, refused)

    def _prove(self, arrival: Arrival, event: Event[bytes], topic: str) -> Event[bytes]:
        """The event with nothing but what its signature covers, and without the marks of that. Raises FrameRefused."""
        if NAME not in event.extensions:
            raise FrameRefused("unsigned: signatures are required here, and it has none", "unsigned")
        try:
            sealed = opened(event.extensions[NAME])
            self._check_signature(sealed, arrival, event)
            _check_cover(material_in(sealed.payload), event, topic)
        except BadMaterial as error:
            raise FrameRefused(f"forged: {error}", "forged") from error
        return msgspec.structs.replace(event, extensions=_bare(event.extensions))

    def _check_signature(self, sealed: Sealed, arrival: Arrival, event: Event[bytes]) -> None:
        """One of the signatures is by a key that stands for this fact."""
        why = ""
        for id, signature in sealed.signatures:
            if (key := self._keyring.get(id)) is None:
                why = why or f"its key {id!r:.80} is not known"
            elif not (problem := _unfit(key, arrival, event)):
                try:
                    self._keyring.public(id).verify(signature, pae(KIND, sealed.payload))
                    return
                except InvalidSignature:
                    why = f"its signature is not by the key {id!r}"
            else:
                why = problem
        raise BadMaterial(why)


def _signed(key: Key, private: Ed25519PrivateKey, marks: Mapping[str, Scalar], event: Event[bytes]) -> Event[bytes]:
    """A fact with these marks, and the signature that covers both."""
    extensions: dict[str, Scalar] = {**_bare(event.extensions), **marks}
    if event.time:
        extensions[EXACT_TIME] = event.time
    event = msgspec.structs.replace(event, extensions=extensions)
    attributes = _attributes(event)
    payload = payload_of(digest_of(attributes, event.data, _names(attributes)))
    sealed = sealed_as(payload, key.id, private.sign(pae(KIND, payload)))
    return msgspec.structs.replace(event, extensions={**extensions, NAME: sealed})


def _check_cover(signed: Material, event: Event[bytes], topic: str) -> None:
    """Every attribute that counts is covered, and is as it was signed. Raises BadMaterial."""
    attributes, marks = _attributes(event), event.extensions
    found = digest_of(attributes, event.data, signed.names)
    if not compare_digest(found.core, signed.core) or found.ext != signed.ext:
        raise BadMaterial("it is not as it was signed")
    if bare := set(_names(attributes)).difference(signed.names):
        raise BadMaterial(f"{', '.join(sorted(bare))!r:.80} was added after it was signed")
    if gone := set(signed.names).difference(attributes):
        raise BadMaterial(f"{', '.join(sorted(gone))!r:.80} was taken away after it was signed")
    if marks.get(EXACT_TIME, "") != event.time:
        raise BadMaterial("its time is not the one that was signed")
    if marks.get(TOPIC) != topic:
        raise BadMaterial(f"it was signed for the topic {marks.get(TOPIC)!r:.80}")


def _unfit(key: Key, arrival: Arrival, event: Event[bytes]) -> str:
    """Why a key does not stand for a fact; empty when it does."""
    if not key.signs_for(event.source, arrival.topic, event.tenant):
        return f"key {key.id!r} does not sign for {event.source!r:.80} on this topic, for this tenant"
    if key.use == "edits" and not arrival.held:
        return f"key {key.id!r} signs edits of held events, and no fact on its way"
    return key.refuses(arrival.at)


def _attributes(event: Event[bytes]) -> Attributes:
    """The CloudEvents attributes of a fact, whatever format it came in."""
    said: Attributes = msgspec.to_builtins(attributes_of(event))
    return {**said, **event.extensions}


def _names(attributes: Attributes) -> list[str]:
    """The extension attributes that have to be covered, in an order that is always the same."""
    return sorted(attributes.keys() - UNSIGNED - _CORE)


_CORE = frozenset(CORE)


def _bare(extensions: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The extensions without the marks of a signature."""
    return {name: value for name, value in extensions.items() if name not in OURS}
