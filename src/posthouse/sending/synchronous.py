"""The bridge for code without an event loop. On a synchronous connection nothing ever waits, so the library's own coroutines
run to their end in one go: there is no second copy of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from posthouse.errors import ConfigurationError, TransactionClosed
from posthouse.sending.transaction import Tx
from posthouse.store import Parameters, Rows, Store, Transaction

T = TypeVar("T")
P = ParamSpec("P")


def drive(work: Awaitable[T]) -> T:
    """What a coroutine comes to that never waits. ConfigurationError, and it goes no further, when it does."""
    coroutine = _coroutine(work)
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    except RuntimeError as error:
        if _loop_runs() or "event loop" not in str(error):
            raise
        raise ConfigurationError(_waits(coroutine)) from error
    coroutine.close()
    raise ConfigurationError(_waits(coroutine))


def on_a_loop(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A method with a twin called `…_now`. Without an event loop nobody could await what it returns, and a fact would be lost while the
    rows beside it commit: then the call is refused."""

    @wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> Coroutine[Any, Any, T]:
        if not _loop_runs():
            name = function.__name__
            raise ConfigurationError(
                f"`{name}` has to be awaited, and no event loop runs here: call `{name}_now`, with the same arguments"
            )
        return function(*arguments, **options)

    return called


def join_now(store: Store, theirs: object) -> Transaction:
    """Their transaction, on a connection or session that needs no event loop."""
    transaction = store.join(theirs)
    if transaction.needs_loop:
        raise ConfigurationError(
            f"{type(theirs).__name__} needs an event loop: await the asynchronous way, `outbox.add` or `service.joined`"
        )
    return transaction


def _waits(coroutine: object) -> str:
    return (
        f"{getattr(coroutine, '__qualname__', coroutine)} waits for something else than your connection, and here is no event "
        "loop: do that before or after the block, or use `async with service.joined(…)`"
    )


def _coroutine(work: Awaitable[T]) -> Coroutine[Any, Any, T]:
    if isinstance(work, Coroutine):
        return work

    async def awaited() -> T:
        return await work

    return awaited()


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class SyncTx:
    """A Tx for code without an event loop, in a transaction of yours. It is good until its block ends."""

    def __init__(self, tx: Tx) -> None:
        self._tx: Tx | None = tx

    @property
    def tenant(self) -> str:
        """The tenant for whom this transaction works."""
        return self._open.tenant

    def publish(
        self,
        payload: object,
        *,
        idempotency_key: str | None = None,
        after: float | None = None,
        at: datetime | None = None,
        timer: str | None = None,
    ) -> str:
        """As `Tx.publish`."""
        return self._open.publish(payload, idempotency_key=idempotency_key, after=after, at=at, timer=timer)

    def cancel(self, timer: str) -> bool:
        """As `Tx.cancel`."""
        return self.call(Tx.cancel, timer)

    def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        """As `Tx.execute`."""
        return self.call(Tx.execute, sql, parameters)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """As `Tx.savepoint`."""
        block = self._open.savepoint()
        drive(block.__aenter__())
        try:
            yield
        except BaseException as error:
            if not drive(block.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            drive(block.__aexit__(None, None, None))

    def call(
        self, function: Callable[Concatenate[Tx, P], Awaitable[T]], /, *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Whatever takes a Tx first, such as `service.start_saga` and the methods of an aggregate: `tx.call(accounts.decide,
        "a1", pay)` is what `await accounts.decide(tx, "a1", pay)` is elsewhere."""
        return drive(function(self._open, *arguments, **options))

    def close(self) -> None:
        """The block was left: what is said from now on would be said nowhere."""
        self._tx = None

    @property
    def _open(self) -> Tx:
        if self._tx is None:
            raise TransactionClosed("the block of this transaction was left")
        return self._tx
