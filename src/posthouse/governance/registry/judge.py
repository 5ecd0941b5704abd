"""PORT  Judge: understands schemas and compares them, away from the loop that answers requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode
from posthouse.governance.registry.comparing import Known, complaints
from posthouse.governance.registry.format import Format, Import, Reading


class Judge(Protocol):
    """Both take the time that a schema takes; neither is called while a transaction is open."""

    async def read(self, type: str, text: str, imports: Sequence[Import]) -> Reading:
        """Understand a schema of a type that is known. Raises SchemaError."""
        ...

    async def complaints(self, past: Sequence[Known], new: Known, level: Mode) -> list[str]:
        """What speaks against a schema after those of the past, oldest first; none means compatible.

        What could not be judged, for want of time too, is a complaint.
        """
        ...

    async def aclose(self) -> None:
        """End what was begun, as far as it can be. Raises Refusal in those who wait for it."""
        ...


class ThreadJudge:
    """In a thread of this process: what is begun there cannot be ended."""

    def __init__(self, formats: Mapping[str, Format]) -> None:
        self._formats = formats

    async def read(self, type: str, text: str, imports: Sequence[Import]) -> Reading:
        try:
            return await asyncio.to_thread(self._formats[type].read, text, imports)
        except RecursionError as error:
            raise SchemaError("the schema is nested too deep") from error

    async def complaints(self, past: Sequence[Known], new: Known, level: Mode) -> list[str]:
        return await asyncio.to_thread(complaints, self._formats, past, new, level)

    async def aclose(self) -> None:
        pass
