"""Deadline: work on the loop or in a thread, with a deadline that is kept whatever the work does about it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from posthouse.errors import DeadlineExceeded
from posthouse.store import Submit


class Outcome(NamedTuple):
    """How some work ended. Told by the work itself, so that nobody has to watch its task or its thread."""

    result: object
    error: BaseException | None


Told = asyncio.Future[Outcome | None]
"""None when the time was over first."""


async def on_loop(work: Awaitable[object], seconds: float, name: str) -> object:
    """What `work` returns or raises; DeadlineExceeded after `seconds`, and then it is cancelled and left alone."""
    loop = asyncio.get_running_loop()
    told: Told = loop.create_future()
    task = loop.create_task(_tell(work, told))
    return await _heard(told, seconds, name, task.cancel)


async def in_thread(work: Callable[[], object], seconds: float, name: str, submit: Submit | None = None) -> object:
    """The same for a plain function, in the thread that `submit` leads to, or in one of its own: in a pool, one that
    hangs would keep its place for ever."""
    loop = asyncio.get_running_loop()
    told: Told = loop.create_future()
    context = contextvars.copy_context()

    def target() -> None:
        try:
            outcome = Outcome(context.run(work), None)
        except BaseException as error:
            outcome = Outcome(None, error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, told, outcome)

    if submit is not None:
        submit(target)
    else:
        threading.Thread(target=target, daemon=True, name="posthouse-handler").start()
    return await _heard(told, seconds, name, lambda: None)


async def _tell(work: Awaitable[object], told: Told) -> None:
    """Run the work, and say in the same turn of the loop how it ended."""
    try:
        outcome = Outcome(await work, None)
    except BaseException as error:
        outcome = Outcome(None, error)
    _settle(told, outcome)


def _settle(told: Told, outcome: Outcome | None) -> None:
    if not told.done():
        told.set_result(outcome)


async def _heard(told: Told, seconds: float, name: str, give_up: Callable[[], object]) -> object:
    alarm = asyncio.get_running_loop().call_later(seconds, _settle, told, None)
    try:
        outcome = await told
    except asyncio.CancelledError:
        give_up()
        raise
    finally:
        alarm.cancel()
    if outcome is None:
        give_up()
        raise DeadlineExceeded(f"{name} ran longer than its deadline of {seconds:g} s and was given up")
    if outcome.error is not None:
        raise _own_error(outcome.error, name)
    return outcome.result


def _own_error(error: BaseException, name: str) -> BaseException:
    """A cancellation from inside the work must not pass for one of whoever runs it; only the end of the process may."""
    if isinstance(error, Exception | SystemExit | KeyboardInterrupt) and not isinstance(error, StopIteration):
        return error
    strange = RuntimeError(f"{name} raised {type(error).__name__}, which no handler may: {error}")
    strange.__cause__ = error
    return strange
