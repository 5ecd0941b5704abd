"""Schemas as files: laid out for people, and read back to the same meaning."""

from __future__ import annotations

import itertools
import json

from posthouse.contracts.avro_schema import avro_schema
from posthouse.contracts.lock import EXTENSIONS
from posthouse.contracts.normal import DIALECT, canonical
from posthouse.contracts.schema import Schema, json_schema
from posthouse.errors import ConfigurationError

_HEAD = ("$schema", "$id", "title", "description")
_COMMENT = "// "


def file_of(schema: Schema, *, place: str, subject: str, description: str) -> bytes:
    """The file of a schema. What it says beside the schema is prose: it does not count for the hash."""
    if schema.format == "protobuf":
        said = [place, subject, *description.splitlines()]
        head = "".join(f"{_COMMENT}{line}".rstrip() + "\n" for line in said)
        return f"{head}\n{schema.text}".encode()
    document = json.loads(schema.text)
    if schema.format == "json" and isinstance(document, dict):
        head_of = {"$schema": DIALECT, "$id": place, "title": subject}
        told = {**head_of, **({"description": description} if description else {}), **document}
        document = told if json_schema(told) == schema else document
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def schema_in(path: str, data: bytes, expected: str = "") -> Schema:
    """The schema in a file, by its extension. Raises ConfigurationError, which names the file.

    `expected` is the hash that it should have. A file that has it was written here, in normal form, and need not be
    brought into it again, which takes most of the time of reading many.
    """
    try:
        text = data.decode()
        if path.endswith(EXTENSIONS["protobuf"]):
            return Schema("protobuf", _without_head(text))
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    try:
        return avro_schema(document) if path.endswith(EXTENSIONS["avro"]) else _json(document, expected)
    except ConfigurationError as error:
        raise ConfigurationError(*(f"{path}: {problem}" for problem in error.problems)) from error


def words_in(path: str, data: bytes) -> str:
    """What a schema file that can be read says about its event in words; Avro's have no room for that."""
    if path.endswith(EXTENSIONS["protobuf"]):
        head = itertools.takewhile(lambda line: line.startswith("//"), data.decode().splitlines())
        return "\n".join(line.removeprefix("//").strip() for line in list(head)[2:])
    document = json.loads(data)
    said = document.get("description", "") if isinstance(document, dict) and path.endswith(EXTENSIONS["json"]) else ""
    return said if isinstance(said, str) else ""


def _json(document: object, expected: str) -> Schema:
    if not isinstance(document, dict | bool):
        raise ConfigurationError(f"a JSON Schema is an object or a boolean, not {type(document).__name__}")
    if isinstance(document, dict):
        as_written = Schema("json", canonical({name: document[name] for name in document if name not in _HEAD}))
        if as_written.hash == expected:
            return as_written
    return json_schema(document)


def _without_head(text: str) -> str:
    """The text after the comment at its top."""
    lines = text.splitlines(keepends=True)
    while lines and (lines[0].startswith("//") or not lines[0].strip()):
        lines.pop(0)
    return "".join(lines)
