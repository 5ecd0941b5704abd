"""Threaded: a line on a synchronous library. Connecting, every statement, the handler and the commit are in one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Protocol

from posthouse.errors import ConfigurationError
from posthouse.store import Parameters, Rows, Submit
from posthouse.stores.postgres.shapes.worker import Worker


class SyncLine(Protocol):
    """A connection of a synchronous library. All but `cut` and `lost` is called in the one thread that it belongs to."""

    @property
    def connection(self) -> object:
        """As in Line."""
        ...

    @property
    def lost(self) -> bool:
        """As in Line; asked from any thread."""
        ...

    @property
    def process(self) -> int | None:
        """The process id of the server's side; None where it is not known."""
        ...

    def begin(self) -> None:
        """As in Line."""
        ...

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        """As in Line."""
        ...

    def run(self, sql: str, parameters: Parameters) -> Rows:
        """As in Line."""
        ...

    def view(self, wanted: type) -> AbstractContextManager[object]:
        """As in Line."""
        ...

    def commit(self) -> None:
        """As in Line."""
        ...

    def roll_back(self) -> None:
        """As in Line."""
        ...

    def clean(self) -> None:
        """Make the connection fit for another transaction."""
        ...

    def cut(self) -> None:
        """End the connection from outside, while its thread may be waiting for it."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Post:
    """A worker and its connection, which stay together from one transaction to the next."""

    def __init__(self, line: SyncLine) -> None:
        self.line = line
        self.worker = Worker("posthouse-handler")
        self.gone = False

    def leave(self) -> None:
        """Close the connection and end the thread, once it is done with what it does now."""

        def last() -> None:
            with suppress(Exception):  # it may be broken, and nobody waits for it
                self.line.close()

        self.worker.submit(last)
        self.worker.end()


class Posts:
    """The posts of one library that nobody uses now. As many as were ever in use at once: the store's `writers`."""

    def __init__(self, make: Callable[[], SyncLine]) -> None:
        self._make = make
        self._idle: list[Post] = []
        self.closed = False

    def take(self) -> Post:
        """One that is free, the last used first, or a new one."""
        return self._idle.pop() if self._idle else Post(self._make())

    def put(self, post: Post) -> None:
        """It is free again."""
        if self.closed:
            post.leave()
        else:
            self._idle.append(post)

    def close(self) -> list[Worker]:
        """Send everybody home; those at work go when they are done."""
        self.closed = True
        idle, self._idle = self._idle, []
        for post in idle:
            post.leave()
        return [post.worker for post in idle]


class Threaded:
    """A Line whose work is done by a post."""

    def __init__(self, posts: Posts, end_session: Callable[[int], None]) -> None:
        self._posts = posts
        self._post: Post = posts.take()
        self._end_session = end_session
        self.submit: Submit | None = self._post.worker.submit

    @property
    def connection(self) -> object:
        return self._post.line.connection

    @property
    def lost(self) -> bool:
        return self._post.line.lost

    async def begin(self) -> None:
        await self._post.worker.do(self._post.line.begin)

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        line = self._post.line
        return await self._post.worker.do(lambda: line.ours(sql, parameters))

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        line = self._post.line
        return await self._post.worker.do(lambda: line.run(sql, parameters))

    def view(self, wanted: type) -> AbstractContextManager[object]:
        if not self._post.worker.here:
            raise ConfigurationError(
                f"{wanted.__module__}.{wanted.__qualname__} waits for the database and would stop the event loop: write "
                "the handler as a plain `def`, which runs in a thread, or ask for an asynchronous shape"
            )
        return self._post.line.view(wanted)

    async def commit(self) -> None:
        await self._post.worker.do(self._post.line.commit)

    async def roll_back(self) -> None:
        await self._post.worker.do(self._post.line.roll_back)

    async def give_back(self) -> None:
        await self._post.worker.do(self._post.line.clean)
        self._posts.put(self._post)

    async def cut(self) -> None:
        post = self._post
        if post.gone:
            return
        post.gone = True
        process = post.line.process
        post.line.cut()
        post.leave()
        if process is not None:
            self._end_session(process)
