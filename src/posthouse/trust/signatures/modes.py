"""Modes: on which topics signatures are asked for, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from posthouse.errors import did_you_mean

Mode = Literal["off", "warn", "require"]
MODES: tuple[Mode, ...] = ("off", "warn", "require")
SINCE = " since "


class Asked(NamedTuple):
    """What is asked of what arrives from a moment on, in seconds since 1970."""

    mode: Mode
    since: float


class Modes:
    """By topic pattern; the first that fits counts, and a topic that none fits is left alone."""

    def __init__(self, said: Mapping[str, str]) -> None:
        self._asked = [(pattern, asked_in(text)) for pattern, text in said.items()]
        self._known: dict[str, Asked] = {}

    def of(self, topic: str, at: float) -> Mode:
        """What is asked of a frame that arrived at a moment: nothing, before it was asked for."""
        asked = self._known.get(topic)
        if asked is None:
            asked = next((one for pattern, one in self._asked if fnmatchcase(topic, pattern)), Asked("off", 0.0))
            if len(self._known) < 10_000:
                self._known[topic] = asked
        return asked.mode if at >= asked.since else "off"


def asked_in(text: str) -> Asked:
    """`off`, `warn` or `require`, and perhaps ` since 2026-11-18T12:00:00Z`. ValueError for anything else."""
    word, _, since = text.partition(SINCE)
    mode = next((mode for mode in MODES if mode == word.strip()), None)
    if mode is None:
        raise ValueError(f"{word.strip()!r} is neither off, warn nor require.{did_you_mean(word.strip(), MODES)}")
    if not since:
        return Asked(mode, float("-inf"))
    moment = datetime.fromisoformat(since.strip())
    if moment.tzinfo is None:
        raise ValueError(f"{since.strip()!r} has no time zone: write 2026-11-18T12:00:00Z")
    return Asked(mode, moment.timestamp())
