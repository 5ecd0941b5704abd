"""The languages of schemas that a registry speaks, by the names of the API."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.governance.registry.format import Format
from posthouse.governance.registry.formats.avro import AvroFormat
from posthouse.governance.registry.formats.json_schema import JsonFormat

__all__ = ["known_formats"]


def known_formats() -> Mapping[str, Format]:
    """Avro and JSON Schema; Protobuf where its packages are installed (`posthouse[protobuf]`)."""
    found: list[Format] = [AvroFormat(), JsonFormat()]
    try:
        from posthouse.governance.local.protoc import has_protoc
        from posthouse.governance.registry.formats.protobuf import ProtobufFormat
    except ImportError:
        return {known.name: known for known in found}
    if has_protoc():
        found.append(ProtobufFormat())
    return {known.name: known for known in found}
