"""Findings: what is not as it was signed, in words."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["changed", "removed", "added", "reordered", "file", "checkpoint", "split", "back", "unknown"]


class Finding(msgspec.Struct, frozen=True):
    """One thing. `changed`, `removed`, `added` and `reordered` are about an event, by its `id` and `position`; `file`: one beside the
    events was lost or changed; `checkpoint`: one cannot be believed; `split`: two places were told different things; `back`: less
    is there than was signed; `unknown`: something was done to events, and nothing is left that tells to which."""

    kind: Kind
    words: str
    id: str | None = None
    position: int | None = None
