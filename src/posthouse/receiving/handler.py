"""Handler: a user's function, what it wants to be given, and how it is run within its deadline."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import inspect
import threading
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from posthouse.contracts import EventType
from posthouse.errors import ConfigurationError, DeadlineExceeded
from posthouse.receiving.policy import Policy
from posthouse.sending import Tx
from posthouse.store import Store, Transaction

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Handler:
    """One function of one consumer. `shape` is the type of its second argument, None when it takes only the event;
    `many` means that its first argument is a list of events."""

    name: str
    function: Callable[..., object]
    event_types: Sequence[EventType[object]]
    policy: Policy
    shape: type | None
    many: bool
    threaded: bool

    async def run(self, store: Store, transaction: Transaction, tx: Tx, argument: object) -> object:
        """Call the function inside an open transaction. DeadlineExceeded comes on time, even if the function does not
        listen: it is left alone with a transaction that is closed to it."""
        if self.threaded:
            call = self._in_thread(store, transaction, argument)
        else:
            call = self._on_loop(store, transaction, tx, argument)
        return await _within(self.policy.deadline, call, self.name)

    def _in_thread(self, store: Store, transaction: Transaction, argument: object) -> asyncio.Future[object]:
        shape = self.shape
        if shape is None:
            return _threaded(lambda: self.function(argument))

        def work() -> object:
            with store.view(transaction, shape) as theirs:
                return self.function(argument, theirs)

        return _threaded(work)

    def _on_loop(self, store: Store, transaction: Transaction, tx: Tx, argument: object) -> asyncio.Future[object]:
        if self.shape is None:
            return asyncio.ensure_future(self._awaitable(argument))
        if self.shape is Tx:
            return asyncio.ensure_future(self._awaitable(argument, tx))
        shape = self.shape

        async def work() -> object:
            with store.view(transaction, shape) as theirs:
                return await self._awaitable(argument, theirs)

        return asyncio.ensure_future(work())

    def _awaitable(self, *arguments: object) -> Awaitable[object]:
        return cast("Awaitable[object]", self.function(*arguments))


def handler_of(function: Callable[..., object], event_types: Sequence[EventType[object]], policy: Policy) -> Handler:
    """Read what a function wants from its signature."""
    name = f"{function.__module__}.{function.__qualname__}"
    parameters = list(inspect.signature(function).parameters.values())
    if not 1 <= len(parameters) <= 2:
        raise ConfigurationError(
            f"{name} takes {len(parameters)} arguments: a handler takes the event and, if it writes, a Tx"
        )
    hints = _hints(function)
    first = hints.get(parameters[0].name)
    many = typing.get_origin(first) in (list, Sequence) or str(first).startswith(("list[", "Sequence["))
    shape = _shape(name, hints.get(parameters[1].name, Tx)) if len(parameters) == 2 else None
    threaded = not inspect.iscoroutinefunction(function)
    if threaded and shape is Tx:
        raise ConfigurationError(
            f"{name} is a plain function and cannot await a Tx: make it async, or let its second argument be a connection or "
            "a session, annotated as such"
        )
    return Handler(name, function, tuple(event_types), policy, shape, many, threaded)


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    """Resolved annotations, or their text where a name is local to some function."""
    try:
        return typing.get_type_hints(function)
    except NameError:
        return dict(function.__annotations__)


def _shape(name: str, hint: object) -> type:
    if isinstance(hint, str):
        if hint.rpartition(".")[2] == "Tx":
            return Tx
        raise ConfigurationError(f"{name}: the type {hint!r} of its second argument cannot be found at module level")
    if not isinstance(hint, type):
        raise ConfigurationError(f"{name}: its second argument must be a Tx, a connection or a session, not {hint!r}")
    return hint


def _threaded(work: Callable[[], object]) -> asyncio.Future[object]:
    """Run `work` in a thread of its own. Not a pool: a thread that hangs would keep its place there for ever."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def finish(result: object, error: BaseException | None) -> None:
        if future.done():
            return
        if isinstance(error, StopIteration):  # no future takes one; a coroutine turns it into the same
            future.set_exception(RuntimeError("the handler raised StopIteration"))
        elif error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def target() -> None:
        try:
            outcome: tuple[object, BaseException | None] = (context.run(work), None)
        except BaseException as error:
            outcome = (None, error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, *outcome)

    threading.Thread(target=target, daemon=True, name="posthouse-handler").start()
    return future


async def _within(seconds: float, call: asyncio.Future[T], name: str) -> T:
    """The call's result, or DeadlineExceeded on time whatever the call does about its cancellation."""
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[bool] = loop.create_future()

    def settle(in_time: bool) -> None:
        if not settled.done():
            settled.set_result(in_time)

    call.add_done_callback(lambda _: settle(True))
    alarm = loop.call_later(seconds, settle, False)
    try:
        in_time = await settled
    except asyncio.CancelledError:
        _abandon(call)
        raise
    finally:
        alarm.cancel()
    if in_time:
        return _outcome(call, name)
    _abandon(call)
    raise DeadlineExceeded(f"{name} ran longer than its deadline of {seconds:g} s and was given up")


def _outcome(call: asyncio.Future[T], name: str) -> T:
    """The result, or the handler's own error. A cancellation that came from inside the handler must not pass for one of
    the worker that runs it; only the end of the process may."""
    error = asyncio.CancelledError() if call.cancelled() else call.exception()
    if error is None or isinstance(error, Exception | SystemExit | KeyboardInterrupt):
        return call.result()
    raise RuntimeError(f"{name} raised {type(error).__name__}, which is not an Exception: {error}") from error


def _abandon(call: asyncio.Future[T]) -> None:
    call.cancel()
    call.add_done_callback(lambda late: late.cancelled() or late.exception())
