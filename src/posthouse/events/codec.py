"""The contract of a wire format: how a fact becomes headers and bytes, and comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable
from urllib.parse import quote

from posthouse.errors import DecodeError, EventError, EventTooLarge
from posthouse.events.envelope import Event
from posthouse.events.limits import KIB, MAX_LINEAGE, MAX_SEQUENCE, PUBLISH_LIMIT, SURE, wrong_text

METADATA_LIMIT = 4 * KIB
"""Bytes of one encoded event, its data aside."""


class Encoded(NamedTuple):
    """An event on the wire. Header names are lower-case ASCII, values printable ASCII."""

    headers: Mapping[str, str]
    body: bytes


@runtime_checkable
class Codec(Protocol):
    """A wire format. Nothing is lost: `decode(*encode(event)) == event`, also through several formats in turn.

    Data of a JSON content type is embedded as it is, unread: whoever made it answers for it, `limits.guard` checks it.
    Event without data: empty bytes with a JSON content type, or with none. Other content types keep their bytes, and
    empty bytes cannot be told from no data at all.
    """

    @property
    def name(self) -> str:
        """The word for it in configuration."""
        ...

    @property
    def content_type(self) -> str | None:
        """The media type that announces it; None when the header tells the data's own type."""
        ...

    def encode(self, event: Event[bytes]) -> Encoded:
        """The same event always gives the same bytes.

        Raises EventError for a field that cannot be said, EventTooLarge when everything but the data exceeds 4 KiB.
        """
        ...

    def decode(self, headers: Mapping[str, str], body: bytes) -> Event[bytes]:
        """Read one event. Raises DecodeError for bytes that are not one or break the limits, and nothing else.

        A `traceparent` or `tracestate` that breaks the W3C rules is ignored.
        """
        ...

    def stamp(
        self,
        headers: Mapping[str, str],
        body: bytes,
        sequence: int | None,
        lineage: int = 1,
        outbox_id: str | None = None,
    ) -> Encoded:
        """Add what only the store knows to an event that was encoded here without it, by splicing, without parsing.

        An event with an extension `sequence` is not without it: given a number too it would have two, and nobody reads it.
        """
        ...


EVENT_TYPE, EVENT_VERSION, TENANT_ID, INTENT = "eventtype", "eventversion", "tenantid", "idempotencykey"
"""Headers that tell of an event what readers of some brokers route by; no codec reads them."""


def announced(event: Event[bytes]) -> Mapping[str, str]:
    """These headers, as far as the event has them; what is not printable ASCII is percent-encoded. The type is without its
    version, as in Melmastoon's own envelope; an event of no version has all of it."""
    name, _, version = event.type.rpartition(".v")
    plain = not name or not version.isdecimal()
    found = {
        EVENT_TYPE: event.type if plain else name,
        EVENT_VERSION: "" if plain else version,
        TENANT_ID: event.tenant,
        INTENT: event.idempotency_key or "",
    }
    return {name: quote(text, safe=_SAFE) for name, text in found.items() if text}


_SAFE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def check_size(headers: Mapping[str, str], body: bytes, limit: int = PUBLISH_LIMIT) -> int:
    """The bytes of headers and body together; EventTooLarge when they are more than `limit`."""
    size = header_size(headers) + len(body)
    if size > limit:
        raise EventTooLarge(size, limit, "the event")
    return size


def check_metadata(size: int) -> None:
    """Raise EventTooLarge when an event has more than 4 KiB beside its data."""
    if size > METADATA_LIMIT:
        raise EventTooLarge(size, METADATA_LIMIT, "an event without its data")


def check_sayable(event: Event[bytes]) -> None:
    """Raise EventError for a text or a number that no store would keep."""
    if wrong := _unkeepable(event):
        raise EventError(f"this event cannot be published: {wrong}")


def checked(event: Event[bytes]) -> Event[bytes]:
    """The event, if every store can keep its texts and numbers; DecodeError otherwise."""
    if wrong := _unkeepable(event):
        raise DecodeError("integer" if wrong.startswith("sequence") else "too_long", wrong)
    return event


DUAL_OF = "dualof"
"""The extension that all versions of one fact share when they are published together: the id of the newest one. Consumers
remember it, so that it is as long as an id at most."""


def _unkeepable(event: Event[bytes]) -> str | None:
    """What of an event a store could not keep, in words."""
    number = event.sequence
    if (number is not None and not 0 <= number <= MAX_SEQUENCE) or not 0 <= event.lineage <= MAX_LINEAGE:
        return f"sequence is at most {MAX_SEQUENCE}, lineage at most {MAX_LINEAGE}"
    actor, fact = event.actor, event.extensions.get(DUAL_OF) if event.extensions else None
    if fact is None and _is_sound(event):
        return None
    return wrong_text((
        ("id", event.id), ("type", event.type), ("source", event.source), ("tenant", event.tenant), ("key", event.key),
        ("correlation", event.correlation), ("causation", event.causation), ("idempotency_key", event.idempotency_key),
        ("actor", actor.kind if actor else None), ("actor", actor.id if actor else None),
        ("dualof", fact if isinstance(fact, str) else None),
    ))  # fmt: skip


def _is_sound(event: Event[bytes]) -> bool:
    """Whether its texts are texts that keep every limit together, as those of most events: at the price of one look."""
    key, correlation, causation, actor = event.key, event.correlation, event.causation, event.actor
    intent = "" if event.idempotency_key is None else event.idempotency_key
    try:
        together = "".join(
            (
                event.id,
                event.type,
                event.source,
                event.tenant,
                "" if key is None else key,
                "" if correlation is None else correlation,
                "" if causation is None else causation,
                "" if actor is None else actor.kind,
                "" if actor is None else actor.id,
            )
        )
        if not (len(intent) <= SURE and intent.isascii() and intent.isprintable()):
            return False  # fmt: skip
    except (TypeError, AttributeError):
        return False
    return len(together) <= SURE and together.isascii() and together.isprintable()


def header_size(headers: Mapping[str, str]) -> int:
    """Bytes of all names and values."""
    return sum([len(name) + len(value) for name, value in headers.items()])
