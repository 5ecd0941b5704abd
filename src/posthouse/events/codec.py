"""The contract of a wire format: how a fact becomes headers and bytes, and comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from posthouse.errors import EventTooLarge
from posthouse.events.envelope import Event
from posthouse.events.limits import KIB, PUBLISH_LIMIT

METADATA_LIMIT = 4 * KIB
"""Bytes of one encoded event, its data aside."""


class Encoded(NamedTuple):
    """An event on the wire. Header names are lower-case ASCII, values printable ASCII."""

    headers: Mapping[str, str]
    body: bytes


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
        """Add what only the store knows to an event that was encoded here without it, by splicing, without parsing."""
        ...


def check_size(headers: Mapping[str, str], body: bytes, limit: int = PUBLISH_LIMIT) -> None:
    """Raise EventTooLarge when headers and body together have more than `limit` bytes."""
    size = header_size(headers) + len(body)
    if size > limit:
        raise EventTooLarge(size, limit, "the event")


def check_metadata(size: int) -> None:
    """Raise EventTooLarge when an event has more than 4 KiB beside its data."""
    if size > METADATA_LIMIT:
        raise EventTooLarge(size, METADATA_LIMIT, "an event without its data")


def header_size(headers: Mapping[str, str]) -> int:
    """Bytes of all names and values."""
    return sum([len(name) + len(value) for name, value in headers.items()])
