"""schema.sql is read by people: every table and every column says what it is."""

from __future__ import annotations

import re
from importlib import resources

SCHEMA = resources.files("posthouse.stores.postgres").joinpath("schema.sql").read_text(encoding="utf-8")
EVERYWHERE = {
    "tenant",
    "topic",
    "key",
    "sequence",
    "lineage",
    "event_id",
    "type",
    "headers",
    "body",
    "consumer",
    "digest",
}
"""What the head of the file says of every table."""
TABLE = re.compile(
    r"(?P<above>[^\n]*)\nCREATE (?:UNLOGGED )?TABLE posthouse\.(?P<name>\w+) \((?P<columns>.*?)\n\)", re.DOTALL
)
COLUMN = re.compile(r"    (?P<name>[a-z_0-9]+) [a-z][^\n]*")


def test_every_table_and_every_column_has_a_comment() -> None:
    tables = list(TABLE.finditer(SCHEMA))
    assert len(tables) > 25
    bare = [table["name"] for table in tables if not table["above"].startswith("--")]
    bare += [
        f"{table['name']}.{column['name']}"
        for table in tables
        for column in COLUMN.finditer(table["columns"])
        if column["name"] not in EVERYWHERE and "--" not in column[0]
    ]
    assert bare == []
