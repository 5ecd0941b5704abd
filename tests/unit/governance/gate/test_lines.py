"""Places of a payload are found in the text of a schema."""

from __future__ import annotations

import json

import pytest

from posthouse.governance.gate.lines import line_of

SCHEMA = json.dumps(
    {"properties": {"name": {"type": "string"}, "guest": {"properties": {"name": {"type": "string"}}}}}, indent=1
)
AVRO = '{"type": "record",\n "fields": [\n  {"name": "total", "type": "long"}]}'
PROTO = 'syntax = "proto3";\nmessage Placed {\n  int64 total = 2;\n}\n'


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        (SCHEMA, "/name", 3),
        (SCHEMA, "/guest/name", 8),
        (SCHEMA, "/guest", 6),
        (SCHEMA, "/gone", 1),
        (SCHEMA, "", 1),
        (SCHEMA, None, 1),
        (AVRO, "/total", 3),
        (PROTO, "/total", 3),
    ],
)
def test_the_line_of_a_field(text: str, path: str | None, line: int) -> None:
    assert line_of(text, path) == line
