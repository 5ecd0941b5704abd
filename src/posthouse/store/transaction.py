"""PORT: one open database transaction, as every table of a store takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from posthouse.store.savepoints import Detach, Savepoints

Parameters = Sequence[object] | Mapping[str, object]

Submit = Callable[[Callable[[], object]], None]
"""Has a function run in some thread, without waiting for it."""


class Rows(list[tuple[object, ...]]):
    """What a statement returned; `rowcount` is the number of rows it changed, -1 where that has no meaning."""

    rowcount: int = -1

    def one(self) -> tuple[object, ...]:
        """The only row; LookupError when there is none or more than one."""
        if len(self) != 1:
            raise LookupError(f"expected one row, got {len(self)}")
        return self[0]

    def scalar(self) -> object:
        """The first column of the only row."""
        return self.one()[0]


class Transaction(Protocol):
    """One open database transaction. Using it after its end raises TransactionClosed."""

    @property
    def connection(self) -> object:
        """The driver's own connection. Never commit or roll it back: whoever began it does."""
        ...

    @property
    def savepoints(self) -> Savepoints:
        """What was heard of savepoints. Of a transaction that the store began, those of every statement of the user's; of a
        joined one, those from `attend` on."""
        ...

    async def attend(self) -> Detach:
        """Hear from now on of savepoints that the user sets in a transaction that he began himself; what ends that."""
        ...

    @property
    def needs_loop(self) -> bool:
        """Whether its coroutines may wait. Where not, they run to their end without an event loop."""
        ...

    @property
    def submit(self) -> Submit | None:
        """Where plain functions that use this transaction must run: it is bound to a thread. None: in any thread."""
        ...

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        """Run one statement. Parameters by `:name` and a mapping do on every store, those in the driver's own style
        (`$1`, `?`) and a sequence on that one. StoreError when the names of both are not the same."""
        ...
