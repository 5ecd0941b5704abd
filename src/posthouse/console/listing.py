"""Listing: what every list of a page has in common: how many, from where on, and who may see all tenants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import msgspec

from posthouse.console.asking import Ask, Refusal

T = TypeVar("T")

SHOWN, MOST = 50, 200
"""Lines of a page of a list, and the most that one may ask for."""


def everybodys(ask: Ask, what: str) -> None:
    """Refuse whoever is scoped to tenants: `what` is shown for all of them together."""
    if ask.who.tenants is not None:
        raise Refusal(
            403,
            f"{what} of all tenants together, and you see some only.",
            "Held, Event, Key, Sagas and Timers show yours.",
        )


def seen_tenants(ask: Ask) -> Collection[str] | None:
    """Those to ask a store for: what may be seen, narrowed by `?tenant=`; None for all. Refuses one that may not be seen."""
    asked = ask.query.get("tenant")
    if not asked:
        return ask.who.tenants
    if not ask.who.sees(asked):
        raise Refusal(403, f"You may not see the tenant {asked!r}.")
    return frozenset((asked,))


def lines_wanted(ask: Ask) -> int:
    """What `?limit=` says."""
    text = ask.query.get("limit") or str(SHOWN)
    if not (text.isascii() and text.isdecimal() and len(text) <= 9) or not 1 <= int(text) <= MOST:
        raise Refusal(400, f"limit={text[:40]!r} is no number from 1 to {MOST}.")
    return int(text)


def place_of(ask: Ask, kind: type[T]) -> T | None:
    """Where `?after=` says that the page before ended; None at the beginning."""
    if not (text := ask.query.get("after")):
        return None
    try:
        place = msgspec.json.decode(text, type=kind, strict=True)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Refusal(400, f"after={text[:40]!r} is no place in this list.", "Begin at the top.") from error
    if not _in_range(place):
        raise Refusal(400, f"after={text[:40]!r} is no place in this list.", "Begin at the top.")
    return place


def _in_range(place: object) -> bool:
    """Whether a store can have such numbers."""
    if isinstance(place, int):
        return abs(place) < 2**63
    parts = place.values() if isinstance(place, dict) else place if isinstance(place, tuple) else ()
    return all(map(_in_range, parts))


def listed(
    found: Sequence[T], limit: int, shown: Callable[[T], object], place: Callable[[T], object]
) -> dict[str, object]:
    """A page of a list of which one line more than wanted was asked for."""
    more = len(found) > limit
    return {
        "items": [shown(one) for one in found[:limit]],
        "next": msgspec.json.encode(place(found[limit - 1])).decode() if more else None,
    }
