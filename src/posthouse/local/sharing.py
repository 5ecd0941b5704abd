"""Sharing: what a store and a broker that belong together have in common, such as connections to one database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any, Protocol, runtime_checkable


class Sharing:
    """Each adapter that is given it finds there what another has made, by its name."""

    def __init__(self) -> None:
        self.made: dict[Hashable, Any] = {}
        self.rooms: Counter[str] = Counter()
        """Connections that a broker may have, by the server that they lead to."""


@runtime_checkable
class Shares(Protocol):
    """An adapter that can share."""

    def share(self, sharing: Sharing) -> None:
        """Share with all who are given the same; before the first use."""
        ...
