"""Ports for servers that may be stopped and started again: nobody's connection is given one of them in between."""

from __future__ import annotations

import random
import socket

BELOW_EPHEMERAL = range(15_000, 32_000)
"""Linux takes the near end of a connection from 32,768 upwards."""


def free_port() -> int:
    """A port on which nobody listens."""
    while True:
        port = random.choice(BELOW_EPHEMERAL)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def free_ports(count: int) -> list[int]:
    """Several, no two alike."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)
