"""A call of a handler: timed, and over when its deadline is."""

from __future__ import annotations

import asyncio
import threading

import pytest

from posthouse.errors import DeadlineExceeded
from posthouse.seam import Seam
from posthouse.seam.handling import call_async, call_plain


def outcomes(seam: Seam) -> dict[tuple[str, str], int]:
    return {(figure.name, figure.outcome): figure.count for figure in seam.timing.figures()}


async def test_what_a_call_returns_and_raises_passes_through_and_is_timed() -> None:
    async def fine() -> int:
        return 5

    async def broken() -> int:
        raise ValueError("torn page")

    seam = Seam()
    assert await call_async(seam, fine(), 5.0, "handler") == 5
    with pytest.raises(ValueError, match="torn page"):
        await call_async(seam, broken(), 5.0, "handler")
    assert await call_plain(seam, lambda: 7, 5.0, "plain") == 7
    assert outcomes(seam) == {("handler", "ok"): 1, ("handler", "ValueError"): 1, ("plain", "ok"): 1}


async def test_a_call_that_does_not_listen_is_given_up_on_time() -> None:
    over = threading.Event()
    seam = Seam()
    with pytest.raises(DeadlineExceeded, match="slow ran longer than its deadline"):
        await call_plain(seam, over.wait, 0.05, "slow")
    over.set()
    assert outcomes(seam) == {("slow", "DeadlineExceeded"): 1}


async def test_a_cancellation_from_inside_a_handler_does_not_pass_for_one_of_its_caller() -> None:
    async def cancels() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="which no handler may"):
        await call_async(Seam(), cancels(), 5.0, "handler")
