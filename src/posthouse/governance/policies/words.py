"""Words: what the names of fields tell about them. English, good enough to ask a question."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import pairwise


def one_of(text: str) -> frozenset[str]:
    """The words of a text, for looking up."""
    return frozenset(text.split())


_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")

MONEY = one_of("amount balance cents charge cost deposit fee fees payout price refund salary subtotal surcharge tax")
INVENTORY = one_of("allotment availability inventory stock")
_COUNTED = one_of("at by code count date day days id ids kind name percent pct quantity rate reason status type url")
"""Beside one of these a word of money or stock is about something else: `charge_id`, `tax_rate`, `refund_reason`."""

PERSONAL = one_of("birthday email ethnicity firstname gender lastname nationality passport phone religion ssn surname")
_PERSONAL_PAIRS = (
    ("first", "name"), ("last", "name"), ("full", "name"), ("family", "name"), ("given", "name"), ("guest", "name"),
    ("customer", "name"), ("birth", "date"), ("date", "birth"), ("postal", "address"), ("street", "address"),
    ("home", "address"), ("ip", "address"), ("national", "id"), ("tax", "id"), ("mobile", "number"), ("phone", "number"),
)  # fmt: skip
SECRETS = one_of("cvc cvv pan passcode passwd password passwords pin secret secrets")
_SECRET_PAIRS = (
    ("access", "token"), ("refresh", "token"), ("api", "key"), ("private", "key"), ("card", "number"), ("key", "code"),
    ("auth", "token"), ("session", "token"),
)  # fmt: skip
VERSIONS = one_of("revision seq sequence version")


@lru_cache(maxsize=10_000)
def words(name: str) -> tuple[str, ...]:
    """`totalCents` and `total_cents` are `total`, `cents`."""
    return tuple(part.lower() for part in _PARTS.findall(name))


def is_money(name: str) -> bool:
    """Whether a field of this name holds money."""
    parts = words(name)
    return bool(MONEY.intersection(parts)) and not _COUNTED.intersection(parts)


def is_inventory(name: str) -> bool:
    """Whether a field of this name counts what can be sold once."""
    parts = words(name)
    return bool(INVENTORY.intersection(parts)) and not (_COUNTED - {"count", "quantity"}).intersection(parts)


def is_personal(name: str) -> bool:
    """Whether a field of this name says something about a person."""
    parts = words(name)
    return (bool(PERSONAL.intersection(parts)) and parts[-1] != "id") or _has_pair(parts, _PERSONAL_PAIRS)


def is_secret(name: str) -> bool:
    """Whether a field of this name opens something."""
    parts = words(name)
    closed = {"hint", "id", "last", "policy", "required"}.intersection(parts)
    return not closed and (bool(SECRETS.intersection(parts)) or _has_pair(parts, _SECRET_PAIRS))


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name is one of these; `*` stands for anything."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _has_pair(parts: tuple[str, ...], pairs: tuple[tuple[str, str], ...]) -> bool:
    said = (part for part in parts if part != "of")
    return any(pair in pairs for pair in pairwise(said))
