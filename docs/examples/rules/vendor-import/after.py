from typing import Protocol

from posthouse import Service

orders = Service("orders", namespace="shop", owner="team checkout")


class Labels(Protocol):
    """What orders needs of whoever stores its labels; adapters/labels.py keeps them at a vendor's."""

    async def keep(self, order_id: str, label: bytes) -> None: ...
