"""The world outside on a bad day: how a simulated vendor behaves, the same way each time for the same seed.

A vendor's mood follows from (seed, operation, id, attempt) and from nothing else, so that a run can be repeated. Attempts are
counted on the vendor's side: they go on counting when one of our processes is killed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

Mood = Literal["fine", "slow", "error", "timeout", "lost", "late", "twice"]
"""fine: it answers. slow: it takes seconds. error: it says that it cannot, and did nothing. timeout: no answer, nothing done.
lost: done, and the answer never comes. late: no answer, and it is done after we have asked what became of it. twice: the
request arrives twice."""

TIMEOUT = 10.0
"""Seconds of the house until we no longer wait for an answer."""


class VendorTrouble(Exception):
    """A vendor did not do what was asked, or nobody knows whether it did. `reason` is one word."""

    reason = "trouble"


class VendorDown(VendorTrouble):
    """It answered with an error of its own, or not at all on the wire."""

    reason = "vendor_error"


class VendorTimeout(VendorTrouble):
    """No answer in time: it may have been done, or may be done yet."""

    reason = "timeout"


class Weather(Protocol):
    """How a vendor takes each attempt, and whether it says no for a reason of business."""

    def mood(self, operation: str, id: str, attempt: int) -> Mood:
        """The first attempt is number 1."""
        ...

    def latency(self, operation: str, id: str, mood: Mood) -> float:
        """Seconds of the house until it answers."""
        ...

    def declines(self, operation: str, id: str) -> bool:
        """Whether the answer is no, however often it is asked."""
        ...


class Scripted(msgspec.Struct, frozen=True, kw_only=True):
    """Weather to order: moods of the first attempts of an operation, or of an operation on one id; fine from there on."""

    moods: Mapping[str, Sequence[Mood]] = {}
    """By `operation` or `operation id`."""
    declined: frozenset[str] = frozenset()
    """Ids to which the answer is no."""

    def mood(self, operation: str, id: str, attempt: int) -> Mood:
        script = self.moods.get(f"{operation} {id}", self.moods.get(operation, ()))
        return script[attempt - 1] if attempt <= len(script) else "fine"

    def latency(self, operation: str, id: str, mood: Mood) -> float:
        return 0.0

    def declines(self, operation: str, id: str) -> bool:
        return id in self.declined


class Seeded(msgspec.Struct, frozen=True, kw_only=True):
    """Weather that follows from a seed. `faults` is the share of requests that do not simply work: 0 is a calm day."""

    seed: int = 0
    faults: float = 0.0

    def mood(self, operation: str, id: str, attempt: int) -> Mood:
        share = self._share("mood", operation, id)
        if share >= self.faults:
            return "fine"
        script = _script(share / self.faults, steady=operation in STEADY)
        return script[attempt - 1] if attempt <= len(script) else "fine"

    def latency(self, operation: str, id: str, mood: Mood) -> float:
        if self.faults == 0:
            return 0.0
        if mood in ("timeout", "lost", "late"):
            return TIMEOUT
        share = self._share("latency", operation, id)
        return 3.0 + 5.0 * share if mood == "slow" else 0.2 * share

    def declines(self, operation: str, id: str) -> bool:
        return self._share("decline", operation, id) < self.faults / 4

    def _share(self, *parts: str) -> float:
        """A number from 0 to below 1 that looks like chance."""
        digest = hashlib.sha256("\0".join((str(self.seed), *parts)).encode()).digest()
        return int.from_bytes(digest[:7], "big") / 2**56


STEADY = frozenset(("look", "void", "find"))
"""Questions that a vendor answers even on a bad day, after a try or two."""

OUTAGE = 12
"""Attempts after which a vendor that was down for an id is back: more than one run of ours makes, kills included."""


def _script(share: float, *, steady: bool) -> Sequence[Mood]:
    """The moods of one fault, by a number from 0 to below 1. Short faults end within the tries of one run, so that kills in
    between do not change what becomes of it; an outage outlasts them."""
    faults: Sequence[tuple[float, Sequence[Mood]]] = (
        (0.30, ("slow",)),
        (0.45, ("error",)),
        (0.55, ("error", "error")),
        (0.65, ("timeout",)),
        (0.78, ("lost",)),
        (0.85, ("late",)),
        (0.93, ("twice",)),
    )
    for limit, script in faults:
        if share < limit:
            return script
    outage: Sequence[Mood] = ["error"] * (1 if steady else OUTAGE)
    return outage
