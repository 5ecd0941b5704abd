"""Whether a ledger's tables are ours to use."""

from __future__ import annotations

from posthouse.errors import StoreError
from posthouse.governance.registry.ledger import Row
from posthouse.governance.registry.tables import FORMAT


def check_layout(rows: list[Row]) -> None:
    """Raises StoreError when a later release has made the tables."""
    found = rows[0][0]
    if found != FORMAT:
        raise StoreError(
            f"the registry's tables have layout {found!r}, this release knows {FORMAT}: use the later release"
        )
