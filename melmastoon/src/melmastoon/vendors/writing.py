"""PORT: a model that writes texts, and a simulator that writes the same text for the same prompt."""

from __future__ import annotations

import hashlib
from typing import Protocol

import msgspec

from melmastoon.vendors.world import World, world


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a model wrote, which model it was, and how sure it says to be, from 0 to 1."""

    text: str
    model: str
    model_version: str
    confidence: float


class Writer(Protocol):
    """Raises VendorTrouble. Asking again is harmless: nothing but a text comes of it."""

    async def write(self, request_id: str, prompt: str) -> Draft:
        """A text for a prompt."""
        ...


def writer() -> Writer:
    """The model that the house uses."""
    return SimulatedWriter(world())


class SimulatedWriter:
    """Answers out of the prompt itself, in a mood that the weather decides."""

    def __init__(self, outside: World) -> None:
        self._outside = outside

    async def write(self, request_id: str, prompt: str) -> Draft:
        return await self._outside.ask("write", request_id, lambda: self._draft(prompt))

    def _draft(self, prompt: str) -> Draft:
        sure = hashlib.sha256(prompt.encode()).digest()[0] / 255
        text = f"Thank you for your message. {prompt.strip()}"
        return Draft(text=text, model="house-writer", model_version="2", confidence=round(0.5 + sure / 2, 3))
