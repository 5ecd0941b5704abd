"""Turns: a few at a time, no person has all places, and whoever waits too long is told so."""

from __future__ import annotations

import contextlib

import pytest

from posthouse.console import turns
from posthouse.console.asking import Refusal
from posthouse.console.turns import Turns


async def test_no_person_has_all_places_and_all_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    places = Turns(each=2, of_all=3, what="traces")
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(places.taken("eve"))
        with pytest.raises(Refusal, match="Too many traces of yours") as refused:
            await stack.enter_async_context(places.taken("eve"))
        assert refused.value.status == 429
        await stack.enter_async_context(places.taken("ada"))
        with pytest.raises(Refusal, match="Too many traces of all who look"):
            await stack.enter_async_context(places.taken("ben"))
    async with places.taken("eve"), places.taken("eve"), places.taken("ben"):
        """They are free again, those too of which somebody gave up waiting."""
