"""Moment: a time as people give it on the command line."""

from __future__ import annotations

from datetime import datetime

from posthouse.errors import ConfigurationError


def moment_of(text: str) -> float:
    """Seconds since 1970. Raises ConfigurationError for what is no time, or does not say in which zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a time: write 2026-04-22T10:00:00Z") from None
    if moment.tzinfo is None:
        raise ConfigurationError(f"{text!r} does not say in which zone: write {text}Z, or {text}+02:00")
    return moment.timestamp()
