"""Where surveys of real servers take place."""

from __future__ import annotations

from posthouse.broker import Topology
from posthouse.clock import new_id
from posthouse.topology import Scope


class Ground:
    """A namespace that no other test has, and what the service `orders` wants in it."""

    def __init__(self) -> None:
        self.namespace = f"shop{new_id()[-8:]}"
        self.topic = f"{self.namespace}.orders.order"
        self.group = f"orders{self.namespace}"
        self.wanted = Topology(topics=[self.topic], groups={self.group: [self.topic]})
        self.scope = Scope(topics=frozenset({f"{self.namespace}.orders"}), groups=frozenset({self.group}))
