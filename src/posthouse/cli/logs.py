"""Logs: lines on stderr, for people or one JSON object each."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import msgspec

from posthouse.events import timestamp
from posthouse.redaction import redacted

Level = Literal["debug", "info", "warning", "error", "critical"]

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """`time`, `level`, `logger` and `event` (what happened), then whatever the caller passed as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": redacted(record.getMessage()),
        }
        entry |= {name: _shown(value) for name, value in vars(record).items() if name not in _ORDINARY}
        if record.exc_info:
            entry["exception"] = redacted(self.formatException(record.exc_info))
        return msgspec.json.encode(entry, enc_hook=str).decode()


class PlainLines(logging.Formatter):
    """One line for people, and a traceback where there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-8s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def log_to_stderr(level: Level, *, as_json: bool) -> None:
    """Replace the handlers of the root logger. `posthouse.run` always says what it starts and stops."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("posthouse.run").setLevel(logging.INFO)


def _shown(value: object) -> object:
    return value if isinstance(value, int | float | None) else redacted(str(value))
