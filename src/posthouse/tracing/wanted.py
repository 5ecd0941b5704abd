"""Wanted: which frames a trace is about, told cheaply."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from uuid import UUID

from posthouse.errors import DecodeError
from posthouse.events import Event, decode_any

_PLAIN = re.compile(r"[A-Za-z0-9._:-]+")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(rf"[0-7][{_CROCKFORD}]{{25}}")
_EARLIEST, _LATEST = datetime(2015, 1, 1, tzinfo=UTC).timestamp(), datetime(2200, 1, 1, tzinfo=UTC).timestamp()


class Wanted:
    """Everything of one correlation: the event of that id, and those that carry it; and the events of these ids besides. Of these
    tenants alone, where some are named."""

    def __init__(self, correlation: str, causes: Collection[str] = (), tenants: Collection[str] | None = None) -> None:
        self.correlation = correlation
        self.tenants = tenants
        self._causes = frozenset(causes)
        # A text that no format needs to escape stands in the bytes as it is: most frames need not be decoded.
        texts = (correlation, *causes)
        plain = all(_PLAIN.fullmatch(text) for text in texts)
        self._texts = {text: text.encode() for text in texts} if plain else None

    @property
    def ids(self) -> list[str]:
        """The events that are named."""
        return [self.correlation, *sorted(self._causes)]

    def match(self, headers: Mapping[str, str], body: bytes) -> Event[bytes] | None:
        """The event, if it belongs here; None for others and for bytes that are no event."""
        if self._texts is not None and not any(
            text in headers.values() or data in body for text, data in self._texts.items()
        ):
            return None
        try:
            event = decode_any(headers, body)
        except DecodeError:
            return None
        if self.tenants is not None and event.tenant not in self.tenants:
            return None
        return event if self.correlation in (event.id, event.correlation) or event.id in self._causes else None


def made_at(identifier: str) -> float | None:
    """When an id was made, in seconds since 1970, if it says so: a UUIDv7 or a ULID."""
    if _ULID.fullmatch(identifier):
        number = 0
        for sign in identifier[:10]:
            number = number * 32 + _CROCKFORD.index(sign)
        return _plausible(number / 1000)
    try:
        found = UUID(identifier)
    except ValueError:
        return None
    return _plausible((found.int >> 80) / 1000) if found.version == 7 else None


def _plausible(seconds: float) -> float | None:
    return seconds if _EARLIEST < seconds < _LATEST else None
