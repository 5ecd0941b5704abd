"""Schema files: which format one is of, and the comparison that belongs to it."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode, Verdict
from posthouse.governance.evolution.json_schema import compare as compare_json_schema

MOST_BYTES = 10_000_000
MOST_IMPORTS = 500

_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"\\]+)"\s*;', re.MULTILINE)
_WITH_COMPILER = "google/protobuf/"


class Format(StrEnum):
    """The kinds of schema, by the ends of their names."""

    JSON = ".json"
    AVRO = ".avsc"
    PROTOBUF = ".proto"


def format_of(file: Path) -> Format:
    """The format of a file, by its name. Raises SchemaError for any other."""
    try:
        return Format(file.suffix.lower())
    except ValueError:
        raise SchemaError(
            f"{file}: not a schema by its name; JSON Schema ends in .json, Avro in .avsc, Protobuf in .proto"
        ) from None


def compare_files(old: Path, new: Path, mode: Mode) -> Verdict:
    """The verdict on two files of one format. Raises SchemaError."""
    kinds = {format_of(old), format_of(new)}
    if len(kinds) > 1:
        raise SchemaError(f"{old} and {new} are schemas of different formats")
    match kinds.pop():
        case Format.JSON:
            return compare_json_schema(text_of(old), text_of(new), mode)
        case Format.AVRO:
            return _compare_avro(old, new, mode)
        case Format.PROTOBUF:
            return _compare_protobuf(old, new, mode)


def text_of(file: Path) -> str:
    """The text of a schema file."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise SchemaError(f"{file} is larger than {MOST_BYTES:,} bytes")
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SchemaError(f"{file} is not a text in UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise SchemaError(f"{file} cannot be read: {error.strerror}") from error


def _compare_avro(old: Path, new: Path, mode: Mode) -> Verdict:
    from posthouse.governance.evolution.avro import compare

    return compare(text_of(old), text_of(new), mode)


def _compare_protobuf(old: Path, new: Path, mode: Mode) -> Verdict:
    try:
        from posthouse.governance.evolution.protobuf import compare
        from posthouse.governance.local.protoc import compiled, has_protoc
    except ImportError as error:
        raise SchemaError(f"Protobuf needs {error.name}: pip install 'posthouse[protobuf]'") from error
    if not has_protoc():
        raise SchemaError("Protobuf needs its compiler: pip install grpcio-tools")
    before, after = (compiled(text_of(file), _imports(file)) for file in (old, new))
    return compare(before, after, mode)


def _imports(file: Path) -> dict[str, str]:
    """The texts of all files that a Protobuf file imports, by name; they are looked for beside it."""
    found: dict[str, str] = {}
    waiting = _IMPORT.findall(text_of(file))
    while waiting:
        name = waiting.pop()
        if name in found or name.startswith(_WITH_COMPILER):
            continue
        if len(found) >= MOST_IMPORTS or Path(name).is_absolute() or ".." in Path(name).parts:
            raise SchemaError(f"{file} imports {name!r}, which is not followed: only files beside it or below are")
        found[name] = text_of(file.parent / name)
        waiting += _IMPORT.findall(found[name])
    return found
