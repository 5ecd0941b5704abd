"""A handler's transaction on a connection of some library: what the PostgreSQL store needs of one, and what it offers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from posthouse.store import Parameters, Rows, Submit

Run = Callable[[str, Sequence[object]], Rows]


class Host(NamedTuple):
    """The database of the store, for a library that connects to it."""

    url: str
    name: str | None
    """Of the database, where the URL says it."""
    client_name: str
    """What its connections are called on the server."""
    writers: int
    """So many transactions may be open at once."""
    patience: float
    """Seconds to wait for a connection."""
    pooled: bool
    """A pooler stands between: nothing is kept in a session."""
    connect: Callable[[], Awaitable[Any]]
    """A connection of the store's own driver."""
    end_session: Callable[[int], None]
    """Tell a process of the server to end."""
    is_home: Callable[[Run], bool]
    """Whether what runs statements so is this very database."""


class HandlerSession(Protocol):
    """A connection of some library, for one transaction at a time. The library's own errors come out as they are."""

    submit: Submit | None
    """As in Transaction."""

    @property
    def connection(self) -> object:
        """What the library calls a connection."""
        ...

    @property
    def lost(self) -> bool:
        """Whether the server or the network has ended it."""
        ...

    async def begin(self) -> None:
        """Connect if need be, and begin."""
        ...

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        """Run a statement of ours, whose parameters are `$1`, `$2` …"""
        ...

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        """Run a statement of the user's, in the driver's own style or with `:name`."""
        ...

    def view(self, wanted: type) -> AbstractContextManager[object]:
        """The transaction as `wanted`."""
        ...

    async def commit(self) -> None:
        """Commit; TransactionClosed or StoreError when there is nothing to commit any more."""
        ...

    async def roll_back(self) -> None:
        """Roll back whatever is open."""
        ...

    async def give_back(self) -> None:
        """The transaction is over: leave the connection to the next one."""
        ...

    async def cut(self) -> None:
        """Never use it again. Whoever still holds it can write nothing more, whatever he is doing."""
        ...


class Handlers(Protocol):
    """The connections of one library. It keeps as many as it had transactions open at once."""

    def session(self) -> HandlerSession:
        """One for a transaction."""
        ...

    async def aclose(self) -> None:
        """Close what is idle; what is in use closes with its transaction."""
        ...
