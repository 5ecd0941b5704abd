"""Masking: what a line of the log, a span or a stored reason may show. Secrets are known by where they stand, personal data by the contract of the event in hand:
what its marked fields say is hidden wherever it turns up, in a message, in an error, in a traceback."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from posthouse.contracts import event_type_of
from posthouse.contracts.personal import personal_fields, personal_values
from posthouse.events import Event
from posthouse.redaction import HIDDEN, MOST_WORDS, redacted, storable
from posthouse.seam.current import Current, current
from posthouse.seam.words import attempted

READ = 64 * 1024
"""Characters of a text that are looked at; of what is longer the rest is never shown."""
UNSAYABLE = "(it cannot be put into words)"


class Mask:
    """Texts as they may be shown while this is current, and beside these facts, each with the class of its data. Nothing here raises."""

    def __init__(self, here: Current, *facts: tuple[type, object]) -> None:
        self._values = _pattern(here, facts)

    def shown(self, value: object, limit: int) -> str:
        """A value as text, without secrets and personal data, and no longer than so many characters."""
        text = _text(value)
        text = redacted(text[:READ])
        if self._values is not None:
            text = self._values.sub(HIDDEN, text)
        return storable(text if len(text) <= limit else f"{text[:limit]}{HIDDEN}")

    def words_of(self, error: BaseException) -> str:
        """What an error says."""
        return self.shown(error, MOST_WORDS)


def words_here(error: BaseException, *events: Event[object]) -> str:
    """What an error says, without secrets, and without what the event in hand, and these, say about a person."""
    return Mask(current(), *((type(event.data), event.data) for event in events)).words_of(error)


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value[:READ]).decode(errors="backslashreplace")
    return value if type(value) is str else attempted(lambda: str(value), UNSAYABLE)


def _pattern(here: Current, facts: Sequence[tuple[type, object]]) -> re.Pattern[str] | None:
    """Whatever the personal fields of what is in hand say, as whole words, the longest first."""
    values = set[str]()
    if here.event is not None and here.payload is not None:
        values = _values(here.payload, here.event.data)
    for event in here.batch:
        values |= _values(type(event.data), event.data)
    for cls, data in facts:
        values |= _values(cls, data)
    if not values:
        return None
    # as the text has them, and as a repr or JSON inside of it would
    said = {form for value in values for form in (value, repr(value)[1:-1], msgspec.json.encode(value).decode()[1:-1])}
    said = {form for form in said if len(form) > 1}
    words = "|".join(re.escape(form) for form in sorted(said, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)


def _values(cls: type, data: object) -> set[str]:
    try:
        return personal_values(cls, _plain(cls, data)) if personal_fields(cls) else set()
    except Exception:  # a class that nobody can look into
        return set()


def _plain(cls: type, data: object) -> object:
    """A payload as JSON has it; as it came, where it is no such payload."""
    if isinstance(data, bytes):
        try:
            data = event_type_of(cls).payload.decode(data)
        except Exception:
            return msgspec.json.decode(data)
    if (dump := getattr(data, "model_dump", None)) is not None:
        return dump(mode="json", by_alias=True)
    return msgspec.to_builtins(data)
