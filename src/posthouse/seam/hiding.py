"""Hiding: values that may not be shown, found in a text in the ways that code writes them. What it costs is bounded; where there is
more to look for, the whole text is hidden."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from urllib.parse import quote, quote_plus

import msgspec

from posthouse.redaction import HIDDEN
from posthouse.seam.words import attempted

MOST_VALUES = 1_000
"""Values that are looked for."""
MOST_WORK = 8_000_000
"""Characters that are compared, times values."""
MOST_FOUND = 10_000
"""Places of one text that are looked at."""
DISTINCT = 8
"""A value of so many characters is hidden inside of words as well; a shorter one as a word."""
WHOLE = f"{HIDDEN} (too much here is personal to look for it)"


class Hidden:
    """Some values that are not shown."""

    def __init__(self, values: Iterable[object]) -> None:
        given = list(values)
        texts = {text for value in given for text in _texts(value)}
        self._exact = frozenset(text.lower() for text in texts if len(text) > 1)
        self.too_many = len(given) > MOST_VALUES
        forms = set[str]() if self.too_many else {_lower(form) for text in texts for form in _spelled(text)}
        self._forms = sorted((form for form in forms if len(form) > 1), key=len, reverse=True)

    def without(self, text: str) -> str:
        """The text, `…` in place of each value."""
        if self.too_many or len(self._forms) * len(text) > MOST_WORK:
            return WHOLE
        low, spans = _lower(text), list[tuple[int, int]]()
        looked = 0
        for form in self._forms:
            at = low.find(form)
            while at >= 0:
                if (looked := looked + 1) > MOST_FOUND:
                    return WHOLE
                end = at + len(form)
                whole = len(form) >= DISTINCT or (_begins(low, at) and not _goes_on(low, end))
                if whole:
                    spans.append((at, end))
                at = low.find(form, end if whole else at + 1)
        return "".join(_pieces(text, spans)) if spans else text

    def is_one(self, text: str) -> bool:
        """Whether it is one of the values, and nothing else."""
        return text.lower() in self._exact


def _texts(value: object) -> set[str]:
    """What code writes for a value."""
    if isinstance(value, bytes | bytearray):
        return {
            bytes(value).decode(errors="replace"),
            repr(bytes(value))[2:-1],
            base64.b64encode(value).decode(),
        }
    found = {attempted(lambda: str(value), "")}
    if isinstance(value, datetime):
        found |= {value.isoformat(), value.isoformat().replace("+00:00", "Z"), repr(value)} | _texts(value.date())
    elif isinstance(value, date):
        found |= {repr(value)}
    elif isinstance(value, uuid.UUID):
        found |= {value.hex}
    elif isinstance(value, int):
        found |= {attempted(lambda: f"{value:,}", "")}
    elif isinstance(value, float | Decimal):
        found |= {attempted(lambda: f"{value:.2f}", ""), attempted(lambda: f"{value:,.2f}", "")}
    return found


def _spelled(text: str) -> set[str]:
    """A text as it is, and as it is in a repr, in JSON, in a URL."""
    if text.isascii() and text.isalnum():
        return {text}
    raw = text.encode(errors="backslashreplace")
    return {
        text,
        repr(text)[1:-1],
        ascii(text)[1:-1],
        repr(raw)[2:-1],
        json.dumps(text)[1:-1],
        msgspec.json.encode(raw.decode()).decode()[1:-1],
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
    }


def _lower(text: str) -> str:
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(one if len(one.lower()) != 1 else one.lower() for one in text)  # each stays in its place


def _begins(low: str, at: int) -> bool:
    """Whether a word begins here: also behind `\\n` in a repr, and `%20` in a URL."""
    return not _goes_on(low, at - 1) or low[max(0, at - 2) : at] in ("\\n", "\\r", "\\t") or low[at - 3 : at - 2] == "%"


def _goes_on(low: str, at: int) -> bool:
    return 0 <= at < len(low) and low[at].isalnum()


def _pieces(text: str, spans: list[tuple[int, int]]) -> Iterator[str]:
    done = 0
    for start, end in sorted(spans):
        if start >= done:
            yield text[done:start]
            yield HIDDEN
        done = max(done, end)
    yield text[done:]
