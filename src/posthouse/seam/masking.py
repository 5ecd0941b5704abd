"""Masking: what a line of the log, a span or a stored reason may show. Secrets are known by where they stand, personal data by the contract of the event in hand:
what its marked fields say is hidden wherever it turns up, in a message, in an error, in a traceback."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

import msgspec

from posthouse.contracts import event_type_of
from posthouse.contracts.personal import personal_fields, personal_values
from posthouse.events import Event
from posthouse.redaction import HIDDEN, MOST_WORDS, read_of, redacted, storable
from posthouse.seam.current import Current, current
from posthouse.seam.hiding import Hidden
from posthouse.seam.words import attempted

READ = 64 * 1024
"""Characters of a text that are looked at; of what is longer the rest is never shown."""
CUT = 1_000
"""Characters before the end of what was looked at: a value that was cut there is not known as one."""
UNSAYABLE = "(it cannot be put into words)"

_known: ContextVar[tuple[Current, Hidden | None] | None] = ContextVar("posthouse_hidden", default=None)
"""What is hidden here, for the next line: a handler has many."""


class Mask:
    """Texts as they may be shown while this is current, and beside these facts, each with the class of its data. Nothing here raises."""

    def __init__(self, here: Current, *facts: tuple[type, object]) -> None:
        self._hidden = _hidden(here, facts)

    def shown(self, value: object, limit: int) -> str:
        """A value as text, without secrets and personal data, and no longer than so many characters."""
        text = self._clean(_text(value))
        return storable(text if len(text) <= limit else f"{text[:limit]}{HIDDEN}")

    def shown_ends(self, text: str, limit: int) -> str:
        """Likewise, and of one that is longer the beginning and the end, as of a traceback."""
        half = limit // 2
        head = self._clean(text)
        if len(text) <= READ:
            return storable(head if len(head) <= limit else f"{head[:half]}\n{HIDDEN}\n{head[-half:]}")
        _, _, lines = text[-READ:].partition("\n")  # of a line that is cut nobody knows what it is
        return storable(f"{head[:half]}\n{HIDDEN}\n{self._clean(lines)[-half:]}")

    def shown_name(self, value: object, limit: int) -> str:
        """Likewise an id or a name of our own, which is not hidden for there being too much to look for."""
        if self._hidden is None or not self._hidden.too_many:
            return self.shown(value, limit)
        text = _text(value)
        return HIDDEN if self._hidden.is_one(text) else storable(redacted(text[:limit]))

    def hides(self, number: float) -> bool:
        """Whether it is a number that may not be shown."""
        return self._hidden is not None and self._hidden.is_one(str(number))

    def _clean(self, text: str) -> str:
        found = read_of(text, READ)
        if self._hidden is not None:
            found = self._hidden.without(found)
        return found if len(text) <= READ else found[:-CUT]

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


def _hidden(here: Current, facts: Sequence[tuple[type, object]]) -> Hidden | None:
    """Whatever the personal fields of what is in hand say."""
    known = _known.get()
    if known is not None and known[0] is here and not facts:
        return known[1]
    values = list[object]()
    if here.event is not None and here.payload is not None:
        values += _values(here.payload, here.event.data)
    for event in here.batch:
        values += _values(type(event.data), event.data)
    for cls, data in facts:
        values += _values(cls, data)
    found = Hidden(values) if values else None
    if not facts:
        _known.set((here, found))
    return found


def _values(cls: type, data: object) -> list[object]:
    if not attempted(lambda: personal_fields(cls), frozenset[str]()):
        return []
    return attempted(lambda: personal_values(cls, _plain(cls, data)), [])  # none in a class that nobody can look into


def _plain(cls: type, data: object) -> object:
    """A payload as JSON has it, with the values as code has them; as it came, where it is no such payload."""
    if isinstance(data, bytes):
        try:
            data = event_type_of(cls).payload.decode(data)
        except Exception:
            return msgspec.json.decode(data)
    if (dump := getattr(data, "model_dump", None)) is not None:
        return dump(by_alias=True)
    return msgspec.to_builtins(data, builtin_types=(bytes, date, datetime, Decimal, UUID))
