"""Schema: what a payload must look like, as canonical text with the hash of its meaning."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from posthouse.contracts.normal import canonical, normalised, sha256
from posthouse.contracts.terms import SchemaFormat
from posthouse.errors import ConfigurationError


class Schema(msgspec.Struct, frozen=True):
    """`text` is canonical: the same meaning gives the same text, whichever library or author wrote it."""

    format: SchemaFormat
    text: str

    @property
    def hash(self) -> str:
        """`sha256-…` of the canonical text."""
        return sha256(self.text)


def json_schema(document: Mapping[str, object] | bool) -> Schema:
    """The schema that a JSON Schema document means. Raises ConfigurationError when it is nested too deeply to be read."""
    try:
        return Schema("json", canonical(normalised(document)))
    except RecursionError:
        raise ConfigurationError("the schema is nested too deeply: give its inner parts names under $defs") from None


def schema_hash(document: Mapping[str, object] | bool) -> str:
    """`sha256-…` of the meaning of a JSON Schema document: spelling, order, names of `$defs` and prose do not count."""
    return json_schema(document).hash
