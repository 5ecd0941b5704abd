"""The comparison that belongs to a format, for schemas in their canonical form."""

from __future__ import annotations

from posthouse.contracts.schema import Schema
from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode, Verdict
from posthouse.governance.evolution.json_schema import compare as compare_json_schema


def compare_schemas(old: Schema, new: Schema, mode: Mode) -> Verdict:
    """The verdict on two schemas of one format. Raises SchemaError."""
    match new.format:
        case "json":
            return compare_json_schema(old.text, new.text, mode)
        case "avro":
            from posthouse.governance.evolution.avro import compare as compare_avro

            return compare_avro(old.text, new.text, mode)
        case "protobuf":
            return _compare_protobuf(old.text, new.text, mode)


def _compare_protobuf(old: str, new: str, mode: Mode) -> Verdict:
    try:
        from posthouse.governance.evolution.protobuf import compare
        from posthouse.governance.local.protoc import compiled, has_protoc
    except ImportError as error:
        raise SchemaError(f"Protobuf needs {error.name}: pip install 'posthouse[protobuf]'") from error
    if not has_protoc():
        raise SchemaError("Protobuf needs its compiler: pip install grpcio-tools")
    return compare(compiled(old, {}), compiled(new, {}), mode)
