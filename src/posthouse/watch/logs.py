"""Logs: lines for people, or one JSON object each, that say which event or request they belong to, and nothing that is secret or personal.

`configure()` sets up the root logger. With `dictConfig` take `JsonLines` or `PlainLines` as the formatter of your handlers; behind a
`QueueHandler`, whose formatter runs elsewhere, put a `Context` on that handler.
"""

from __future__ import annotations

import logging
import re
import sys
import time
import traceback
from typing import Literal

import msgspec

from posthouse.events import timestamp
from posthouse.options import Count, checked
from posthouse.redaction import HIDDEN, names_a_secret
from posthouse.seam.current import NOTHING, SCOPE, Current, current
from posthouse.seam.masking import UNSAYABLE, Mask
from posthouse.seam.words import attempted
from posthouse.watch.here import fields_of
from posthouse.watch.lines import Lines, Stream
from posthouse.watch.repeats import Repeats

__all__ = ["Context", "JsonLines", "Level", "Lines", "PlainLines", "Repeats", "configure"]

Level = Literal["debug", "info", "warning", "error", "critical"]

MESSAGE = 16_000
"""Characters of a message that are shown."""
FIELD = 4_000
"""Of a field."""
TRACE = 32_000
"""Of a traceback."""
FIELDS = 64
"""Fields of a line that are shown."""

_STAMP = "_posthouse_here"
_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {
    "message", "asctime", "taskName", "color_message", _STAMP, "_posthouse_shown",
}  # fmt: skip
_TAKEN = ("time", "level", "logger", "event", "exception", "stack")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class _Stamp(msgspec.Struct):
    """What was current where a line was logged."""

    here: Current
    fields: dict[str, object]


class Context(logging.Filter):
    """Writes down in each record which event or request it belongs to, for a formatter that runs elsewhere."""

    def filter(self, record: logging.LogRecord) -> bool:
        attempted(lambda: _stamped(record), None)
        return True


class JsonLines(logging.Formatter):
    """`time`, `level`, `logger` and `event` (what happened); `correlation`, `tenant`, `event_id`, `event_type`, `key`, `consumer`, `attempt`,
    `trace_id` and `span_id` where there are any; then what the caller passed as `extra`, which wins. An `extra` that is called as one of the
    first four is shown with `_` at its end."""

    def format(self, record: logging.LogRecord) -> str:
        entry = attempted(lambda: msgspec.json.encode(_entry(record)), None)
        return (entry or msgspec.json.encode(_lost(record))).decode()


class PlainLines(logging.Formatter):
    """One line for people, with the correlation at its end, and a traceback where there is one. What is inside of a message begins no
    line: those that follow the first are indented."""

    def format(self, record: logging.LogRecord) -> str:
        return attempted(lambda: _plain(record), None) or " ".join(_lost(record).values())


@checked
def configure(
    *, level: Level = "info", as_json: bool = True, stream: Stream | None = None, repeats: Count | None = 60
) -> None:
    """Let the root logger write such lines, to stderr unless a stream is given, and nothing else. The same line of Posthouse's own
    is written `repeats` times a minute, and then counted; None writes each."""
    handler = Lines(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    if repeats is not None:
        handler.addFilter(Repeats(most=repeats, tell=handler.handle))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _stamped(record: logging.LogRecord) -> _Stamp:
    """What was current: written down once, by whoever sees the record first."""
    stamp = record.__dict__.get(_STAMP)
    if not isinstance(stamp, _Stamp):
        here = current()
        if here is NOTHING:  # Django logs some lines beside the request that they are about
            meta = getattr(record.__dict__.get("request"), "META", None)
            about = meta.get(SCOPE) if isinstance(meta, dict) else None
            here = about if isinstance(about, Current) else here
        stamp = record.__dict__[_STAMP] = _Stamp(here, fields_of(here))
    return stamp


def _entry(record: logging.LogRecord) -> dict[str, object]:
    stamp = _stamped(record)
    mask = Mask(stamp.here)
    entry: dict[str, object] = {
        "time": timestamp(record.created),
        "level": str(record.levelname).lower(),
        "logger": mask.shown_name(record.name, FIELD),
        "event": mask.shown(_message(record), MESSAGE),
    }
    entry |= {
        name: value if isinstance(value, int) else mask.shown_name(value, FIELD) for name, value in stamp.fields.items()
    }
    given = [(name, value) for name, value in list(vars(record).items()) if name not in _ORDINARY]
    for name, value in given[:FIELDS]:
        name = mask.shown_name(name, 100)
        entry[f"{name}_" if name in _TAKEN else name] = HIDDEN if names_a_secret(name) else _value(value, mask)
    if len(given) > FIELDS:
        entry["fields_left_out"] = len(given) - FIELDS
    if (trace := _traceback(record)) is not None:
        entry["exception"] = mask.shown_ends(trace, TRACE)
    if record.stack_info:
        entry["stack"] = mask.shown_ends(record.stack_info, TRACE)
    return entry


def _plain(record: logging.LogRecord) -> str:
    stamp = _stamped(record)
    mask = Mask(stamp.here)
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
    said = record.__dict__.get("correlation") or stamp.here.correlation
    about = f" [{_one_line(mask.shown_name(said, FIELD))}]" if said else ""
    head = f"{moment},{int(record.msecs):03d} {record.levelname:<8} {_one_line(mask.shown_name(record.name, FIELD))}:"
    first, *rest = _lines(mask.shown(_message(record), MESSAGE)) or [""]
    lines = [f"{head} {first}{about}", *rest]
    for more in (_traceback(record), record.stack_info):
        if more:
            lines += _lines(mask.shown_ends(more, TRACE))
    return "\n    ".join(lines)


def _message(record: logging.LogRecord) -> str:
    """Arguments may not fit, or cannot be put into words."""
    unfit = f"{record.msg} (its arguments do not fit)" if isinstance(record.msg, str) else UNSAYABLE
    return attempted(record.getMessage, unfit)


def _traceback(record: logging.LogRecord) -> str | None:
    if record.exc_text:
        return record.exc_text
    if not record.exc_info:
        return None
    found = record.exc_info
    return attempted(
        lambda: "".join(traceback.format_exception(*found)).rstrip("\n"), "(its traceback cannot be put into words)"
    )


def _value(value: object, mask: Mask) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63):
        return HIDDEN if mask.hides(value) else value
    return mask.shown(value, FIELD)


def _lines(text: str) -> list[str]:
    return [_one_line(line) for line in text.rstrip("\n").split("\n")]


def _one_line(text: str) -> str:
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\n", "\\n"))


def _lost(record: logging.LogRecord) -> dict[str, str]:
    """In place of a line that could not be written: where it would have come from."""
    return {
        "time": timestamp(time.time()),
        "level": "error",
        "logger": "posthouse.logs",
        "event": f"a line of {str(record.name)[:100]!a} at {record.lineno!s} could not be written",
    }
