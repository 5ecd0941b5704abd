"""PORT: what running processes have timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class ProcessTiming(msgspec.Struct, frozen=True):
    """What a process of a service wrote `age` seconds ago: the figures of its seam, as JSON."""

    service: str
    process: str
    age: float
    figures: bytes


class TimingTable(Protocol):
    """One row for each running process. Written every few seconds, and never in the transaction of an event."""

    async def write(self, service: str, process: str, figures: bytes, *, keep: float) -> None:
        """Replace what this process wrote before, and forget what others wrote more than `keep` seconds ago."""
        ...

    async def read(self) -> Sequence[ProcessTiming]:
        """What is there, sorted by service and process."""
        ...
