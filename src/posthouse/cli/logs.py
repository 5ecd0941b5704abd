"""Logs of commands that run for long: lines on stderr, for people or one JSON object each."""

from __future__ import annotations

import logging

from posthouse.watch.logs import Level, configure

__all__ = ["Level", "log_to_stderr"]


def log_to_stderr(level: Level, *, as_json: bool) -> None:
    """Replace the handlers of the root logger. `posthouse.run` always says what it starts and stops."""
    configure(level=level, as_json=as_json)
    logging.getLogger("posthouse.run").setLevel(logging.INFO)
