"""Findings: what verifying tells of an archive."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal[
    "missing", "truncated", "changed", "wrong", "foreign", "log", "checkpoint", "marker", "numbers", "double", "day", "hole", "left over"
]  # fmt: skip
"""A `hole` and what is `left over` are told and are no fault: events that came twice are archived once, and leave a hole."""
HARMLESS: frozenset[Kind] = frozenset(("hole", "left over"))


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be, and what it is."""

    kind: Kind
    name: str
    words: str

    @property
    def fault(self) -> bool:
        """Whether the archive is not sound because of it."""
        return self.kind not in HARMLESS
