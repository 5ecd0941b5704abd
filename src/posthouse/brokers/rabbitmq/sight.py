"""What is there of ours, and how it differs from what we would make."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from posthouse.survey import Drift

Place = tuple[str, str]
"""Group and topic."""


class Lanes(msgspec.Struct):
    count: int
    drift: Sequence[Drift] = ()


class Sight(msgspec.Struct):
    """Topics, each with its differences; and the lanes of groups."""

    topics: dict[str, list[Drift]]
    places: dict[Place, Lanes]
