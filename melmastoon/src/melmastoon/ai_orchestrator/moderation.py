"""Moderation: what must neither be shown to a model nor come from one. Pure functions."""

from __future__ import annotations

import re
from typing import Literal

Category = Literal["personal_data", "payment_details", "abuse"]

_CARD = re.compile(r"(?:\d[ -]?){13,19}")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+|\+\d[\d ()-]{7,}\d")
_ABUSE = re.compile(r"\b(?:idiot|moron|scum)s?\b", re.IGNORECASE)


def objection(text: str) -> Category | None:
    """Why a text is stopped; None when it may pass. Card numbers come first: they look like telephone numbers too."""
    if any(_is_card(found) for found in _CARD.findall(text)):
        return "payment_details"
    if _ADDRESS.search(text):
        return "personal_data"
    return "abuse" if _ABUSE.search(text) else None


def _is_card(text: str) -> bool:
    """By the check digit of Luhn, so that a booking number is not taken for a card."""
    digits = [int(character) for character in reversed(text) if character.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
