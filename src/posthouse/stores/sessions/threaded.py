"""Threads for handlers on a synchronous library: connecting, every statement, the handler and the commit are in one."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from posthouse.errors import ConfigurationError
from posthouse.store import Parameters, Rows, Submit
from posthouse.stores.sessions.handler import HandlerSession

T = TypeVar("T")


class Worker:
    """One thread that runs what it is given, one after the other. It is a daemon: one that hangs keeps no process from ending."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def here(self) -> bool:
        """Whether the caller is in this thread."""
        return threading.current_thread() is self._thread

    def submit(self, job: Callable[[], object]) -> None:
        """Run it after what was submitted before. It must not raise."""
        self._jobs.put(job)

    async def do(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises. A caller that is cancelled no longer waits; the work goes on."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                tell = partial(_settle, told.set_result, work())
            except BaseException as error:
                tell = partial(_settle, told.set_exception, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell)

        def _settle(say: Callable[[Any], None], what: object) -> None:
            if not told.done():
                say(what)

        self.submit(job)
        return await told

    def end(self) -> None:
        """Leave when everything submitted is done."""
        self._jobs.put(None)

    def join(self, seconds: float) -> None:
        """Wait until it has left."""
        self._thread.join(seconds)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class SocketHandle:
    """A second descriptor of the socket under a connection of libpq, while another thread may be waiting for it: so that
    nobody can shut down one that was closed and given to another."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)

    def shut_down(self) -> None:
        """End the conversation. Whoever waits for an answer learns at once that none will come, and nothing can be sent
        any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def stale(self) -> bool:
        """Whether something waits to be read although nothing was asked: the server's good-bye."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return bool(selector.select(0))

    def close(self) -> None:
        """Let go."""
        self._socket.close()


class SyncHandlerSession(Protocol):
    """A connection of a synchronous library. All but `cut` and `lost` is called in the one thread that it belongs to; what is
    not said here is as in HandlerSession."""

    @property
    def connection(self) -> object: ...

    @property
    def lost(self) -> bool:
        """Asked from any thread."""
        ...

    @property
    def process(self) -> int | None:
        """The process id of the server's side; None where it is not known."""
        ...

    def begin(self) -> None: ...

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows: ...

    def run(self, sql: str, parameters: Parameters) -> Rows: ...

    def view(self, wanted: type) -> AbstractContextManager[object]: ...

    def commit(self) -> None: ...

    def roll_back(self) -> None: ...

    def clean(self) -> None:
        """Make the connection fit for another transaction."""
        ...

    def cut(self) -> None:
        """End the connection from outside, while its thread may be waiting for it."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class ThreadedConnection:
    """A thread and its connection, which stay together from one transaction to the next."""

    def __init__(self, inner: SyncHandlerSession) -> None:
        self.inner = inner
        self.worker = Worker("posthouse-handler")
        self.gone = False

    def leave(self) -> None:
        """Close the connection and end the thread, once it is done with what it does now."""

        def last() -> None:
            with suppress(Exception):  # it may be broken, and nobody waits for it
                self.inner.close()

        self.worker.submit(last)
        self.worker.end()


class ThreadedHandlers:
    """The connections of one synchronous library that nobody uses now. As many as were ever in use at once."""

    def __init__(self, make: Callable[[], SyncHandlerSession], end_session: Callable[[int], None]) -> None:
        self._make = make
        self._end_session = end_session
        self._idle: list[ThreadedConnection] = []
        self._closed = False

    def session(self) -> HandlerSession:
        """On one that is free, the last used first, or a new one."""
        threaded = self._idle.pop() if self._idle else ThreadedConnection(self._make())
        return ThreadedSession(self, threaded, self._end_session)

    def put(self, threaded: ThreadedConnection) -> None:
        """It is free again."""
        if self._closed:
            threaded.leave()
        else:
            self._idle.append(threaded)

    async def aclose(self) -> None:
        """Those at work leave when they are done."""
        self._closed = True
        idle, self._idle = self._idle, []
        for threaded in idle:
            threaded.leave()
        for threaded in idle:
            await asyncio.to_thread(threaded.worker.join, 1.0)


class ThreadedSession:
    """A HandlerSession whose work is done in a thread."""

    def __init__(
        self, handlers: ThreadedHandlers, threaded: ThreadedConnection, end_session: Callable[[int], None]
    ) -> None:
        self._handlers = handlers
        self._threaded = threaded
        self._end_session = end_session
        self._do = threaded.worker.do
        self._inner = threaded.inner
        self.submit: Submit | None = threaded.worker.submit

    @property
    def connection(self) -> object:
        return self._inner.connection

    @property
    def lost(self) -> bool:
        return self._inner.lost

    async def begin(self) -> None:
        await self._do(self._inner.begin)

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return await self._do(partial(self._inner.ours, sql, parameters))

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        return await self._do(partial(self._inner.run, sql, parameters))

    def view(self, wanted: type) -> AbstractContextManager[object]:
        if not self._threaded.worker.here:
            raise ConfigurationError(
                f"{wanted.__module__}.{wanted.__qualname__} waits for the database and would stop the event loop: write "
                "the handler as a plain `def`, which runs in a thread, or ask for an asynchronous shape"
            )
        return self._inner.view(wanted)

    async def commit(self) -> None:
        await self._do(self._inner.commit)

    async def roll_back(self) -> None:
        await self._do(self._inner.roll_back)

    async def give_back(self) -> None:
        await self._do(self._inner.clean)
        self._handlers.put(self._threaded)

    async def cut(self) -> None:
        threaded = self._threaded
        if threaded.gone:
            return
        threaded.gone = True
        process = threaded.inner.process
        threaded.inner.cut()
        threaded.leave()
        if process is not None:
            self._end_session(process)
