"""AvroFormat: Avro schemas in the registry."""

from __future__ import annotations

import json
from collections.abc import Sequence

from posthouse.governance.evolution import Mode, Verdict
from posthouse.governance.evolution.avro import compare_types
from posthouse.governance.evolution.avro_types import AvroType, parse_avro, read_avro
from posthouse.governance.registry.format import Import, Reading
from posthouse.governance.registry.formats.avro_text import AvroText


class AvroFormat:
    """Compiled: a JSON list of the imports and, last, the schema."""

    name = "AVRO"

    def read(self, text: str, imports: Sequence[Import]) -> Reading:
        schemas = [*(parse_avro(known.text) for known in imports), parse_avro(text)]
        read_avro(*schemas)
        canonical, normal = (_written(schemas, in_order=in_order) for in_order in (False, True))
        return Reading(
            text=text,
            canonical=canonical,
            normal_text=normal,
            normal=normal,
            compiled=json.dumps(schemas, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"),
        )

    def compare(self, old: bytes, new: bytes, mode: Mode) -> Verdict:
        return compare_types(_types(old), _types(new), mode)

    def shown(self, text: str, compiled: bytes, style: str) -> str:
        return text


def _written(schemas: list[object], *, in_order: bool) -> str:
    writer = AvroText(in_order=in_order)
    return [writer.written(schema) for schema in schemas][-1]


def _types(compiled: bytes) -> AvroType:
    return read_avro(*json.loads(compiled.decode("utf-8", "surrogatepass")))
