"""Covering: what of a fact its signature covers, and whether one that was signed is still that."""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

import msgspec

from posthouse.events import Event
from posthouse.events.codecs.attributes import attributes_of
from posthouse.events.envelope import Scalar
from posthouse.seam.seals import Place
from posthouse.trust.signatures.material import CORE, NAME, BadMaterial, Material, digest_of

EXACT_TIME, TOPIC, EDITED_BY, HELD_AS, NO_TEXTS = "exacttime", "signedtopic", "editedby", "heldas", "signedscalars"
"""Extensions beside the material: the core digest cuts the time to seconds, and has no topic at all; who edited it while it was held,
and as what it was held; and which extensions are integers and booleans, of which a digest knows the text alone."""
OURS = frozenset((NAME, EXACT_TIME, TOPIC, EDITED_BY, HELD_AS, NO_TEXTS))

UNSIGNED = frozenset((NAME, "traceparent", "tracestate", "outboxid"))
"""What may change on the way without harm: nothing is decided by it."""
_NOT_NAMED = UNSIGNED.union(CORE)

Attributes = Mapping[str, Scalar]


def attributes_in(event: Event[bytes]) -> Attributes:
    """The CloudEvents attributes of a fact, whatever format it came in."""
    said: Attributes = msgspec.to_builtins(attributes_of(event))
    return {**said, **event.extensions}


def names_in(attributes: Attributes) -> list[str]:
    """The extension attributes that have to be covered, in an order that is always the same."""
    return sorted(attributes.keys() - _NOT_NAMED)


def bare(extensions: Attributes) -> dict[str, Scalar]:
    """The extensions without the marks of a signature."""
    return {name: value for name, value in extensions.items() if name not in OURS}


def typed_as(extensions: Attributes) -> Attributes:
    """The mark that says which extensions are no texts; nothing where all are."""
    names = sorted(name for name, value in extensions.items() if not isinstance(value, str))
    return {NO_TEXTS: " ".join(names)} if names else {}


def as_signed(extensions: Attributes) -> dict[str, Scalar]:
    """The extensions without the marks, each of the type that was signed: on its way an integer may have become its text, or the
    other way round, and a text is true whatever it says. Raises BadMaterial where that cannot be."""
    said = bare(extensions)
    names = frozenset(str(extensions.get(NO_TEXTS, "")).split())
    if not names and all(isinstance(value, str) for value in said.values()):
        return said
    return {name: _typed(value, name in names) for name, value in said.items()}


def _typed(value: Scalar, scalar: bool) -> Scalar:
    """A value as it was signed, of whose text there is a proof."""
    text = value if isinstance(value, str) else str(value).lower()
    if not scalar:
        return text
    try:
        return text == "true" if text in ("true", "false") else int(text)
    except ValueError as error:
        raise BadMaterial(f"{text!r:.40} was signed as a number, and is none") from error


def check_cover(signed: Material, event: Event[bytes], topic: str) -> None:
    """Every attribute that counts is covered, and is as it was signed. Raises BadMaterial."""
    attributes, marks = attributes_in(event), event.extensions
    found = digest_of(attributes, event.data, signed.names)
    if not compare_digest(found.core, signed.core) or found.ext != signed.ext:
        raise BadMaterial("it is not as it was signed")
    if (names := names_in(attributes)) != signed.names:
        if added := set(names).difference(signed.names):
            raise BadMaterial(f"{', '.join(sorted(added))!r:.80} was added after it was signed")
        if gone := set(signed.names).difference(attributes):
            raise BadMaterial(f"{', '.join(sorted(gone))!r:.80} was taken away after it was signed")
    if marks.get(EXACT_TIME, "") != event.time:
        raise BadMaterial("its time is not the one that was signed")
    if marks.get(TOPIC) != topic:
        raise BadMaterial(f"it was signed for the topic {marks.get(TOPIC)!r:.80}")


def check_place(marks: Attributes, place: Place) -> None:
    """It is held as its producer said it, or as an operator signed it. Raises BadMaterial."""
    if EDITED_BY in marks:
        if marks.get(HELD_AS) != held_as(place):
            raise BadMaterial("an operator signed it for another row of what is held")
    elif not place.intact:
        raise BadMaterial("its row has the digest of other bytes")
    elif not (place.in_turn or place.loose):
        raise BadMaterial("its row has lost its number, and no operator signed that it is to run out of its turn")


def held_as(place: Place) -> str:
    """As what an event is held, in words that an operator signs."""
    return f"{'in' if place.in_turn else 'out of'} turn {place.digest.hex()} {place.name}"
