"""Log lines as JSON."""

from __future__ import annotations

import json
import logging

from posthouse.cli.logs import JsonLines


def test_a_line_is_one_object_with_time_level_and_event() -> None:
    record = logging.makeLogRecord(
        {
            "name": "posthouse.relay",
            "levelno": 30,
            "levelname": "WARNING",
            "msg": "waits\n%d s",
            "args": (3,),
            "created": 0.0,
        }
    )
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.000000Z",
        "level": "warning",
        "logger": "posthouse.relay",
        "event": "waits\n3 s",
    }


def test_extra_fields_and_exceptions_are_kept() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = logging.makeLogRecord({"msg": "failed", "exc_info": info, "tenant": "t1", "where": object})
    entry = json.loads(JsonLines().format(record))
    assert entry["tenant"] == "t1"
    assert entry["where"] == "<class 'object'>"
    assert "ValueError: no" in entry["exception"]
