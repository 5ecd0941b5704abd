"""Which comparison belongs to which kind of schema file. A format's module is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from pathlib import PurePath
from typing import cast

from posthouse.contracts.evolution.finding import Mode, Verdict
from posthouse.errors import SchemaError

Compare = Callable[[str, str, Mode], Verdict]


class Format(StrEnum):
    """The kinds of schema, each with the module that compares it."""

    JSON = "json_schema"
    AVRO = "avro"
    PROTOBUF = "protobuf"


ENDINGS = {".json": Format.JSON, ".avsc": Format.AVRO, ".proto": Format.PROTOBUF}


def format_of(name: str) -> Format:
    """The format of a file, by the end of its name. Raises SchemaError for any other."""
    found = ENDINGS.get(PurePath(name).suffix.lower())
    if found is None:
        raise SchemaError(
            f"{name}: not a schema by its name; JSON Schema ends in .json, Avro in .avsc, Protobuf in .proto"
        )
    return found


def comparison_of(schema_format: Format) -> Compare:
    """The comparison of a format. Raises SchemaError where a library for it is missing."""
    try:
        module = import_module(f"posthouse.contracts.evolution.{schema_format.value}")
    except ModuleNotFoundError as error:
        raise SchemaError(
            f"{error.name} is needed to compare {schema_format.name.title()} schemas: pip install 'posthouse[{schema_format.value}]'"
        ) from error
    return cast(Compare, module.compare)
