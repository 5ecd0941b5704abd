"""Past messages against a new schema: may a range be tightened because nobody ever used the rest of it?"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from posthouse.governance.evolution.json_schema.document import Document

MOST_MISFITS = 10


class Past(msgspec.Struct, frozen=True):
    """A message that was sent, and how often."""

    value: object
    count: int = 1


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """`seen` messages, of which `refused` do not fit; `misfits` are the first of those."""

    seen: int
    refused: int
    misfits: tuple[object, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether there is something to go by, and all of it fits."""
        return self.seen > 0 and self.refused == 0


def audit(schema_text: str | bytes, past: Iterable[Past]) -> Audit:
    """Whether every past message fits a schema, formats included. Raises SchemaError for a bad schema."""
    validator = Document(schema_text, "the new schema").validator
    seen = refused = 0
    misfits: list[object] = []
    for message in past:
        seen += message.count
        if not validator.is_valid(message.value):
            refused += message.count
            if len(misfits) < MOST_MISFITS:
                misfits.append(message.value)
    return Audit(seen=seen, refused=refused, misfits=tuple(misfits))
