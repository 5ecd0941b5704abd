"""PORT  A language of schemas: what a registry must know of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from posthouse.governance.evolution import Mode, Verdict


class Import(msgspec.Struct, frozen=True):
    """A schema that another one refers to, by the name it uses."""

    name: str
    text: str


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A schema that was understood."""

    text: str
    """As it is kept and given back."""
    canonical: str
    """The same for two texts that differ only in how they are written down."""
    normal_text: str
    """The text in the one way to write it: keeps the meaning, not the order."""
    normal: str
    """`canonical` of the text in that way."""
    compiled: bytes
    """The schema and all that it refers to, in one piece."""


class Format(Protocol):
    """One language. Pure but for Protobuf's compiler; may take some time, so it is called in a thread."""

    name: str
    """As the API calls it: AVRO, JSON, PROTOBUF."""

    def read(self, text: str, imports: Sequence[Import]) -> Reading:
        """Understand a schema. `imports` holds all that it refers to, directly or not, each after what it needs itself.

        Raises SchemaError."""
        ...

    def compare(self, old: bytes, new: bytes, mode: Mode) -> Verdict:
        """Two compiled schemas."""
        ...

    def shown(self, text: str, compiled: bytes, style: str) -> str:
        """The text in a style that a client asks for with `?format=`; styles that are not known change nothing."""
        ...
