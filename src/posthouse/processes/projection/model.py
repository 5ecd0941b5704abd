"""Model: one generation of a read model, as a handler writes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, cast

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.store import Parameters, Rows

NAME = re.compile(r"[a-z][a-z0-9_]*")
LONGEST = 63
"""Bytes of a table's name; PostgreSQL cuts off the rest in silence."""


class Writing(Protocol):
    """What a model needs of a transaction."""

    @property
    def connection(self) -> object:
        """The driver's own connection."""
        ...

    def execute(self, sql: str, parameters: Parameters = ()) -> Coroutine[Any, Any, Rows]:
        """Run one statement."""
        ...


class _Batching(Protocol):
    """What drivers have in common: some return, some return what is to be awaited."""

    def executemany(self, sql: str, rows: Sequence[Sequence[object]], /) -> object: ...


Publish = Callable[[object], object]


def table_name(projection: str, generation: int, name: str) -> str:
    """What a table of a generation is called. Raises ConfigurationError for a name that SQL would not take as it is."""
    if not NAME.fullmatch(name):
        raise ConfigurationError(f"a table cannot be called {name!r}: use lower-case letters, digits and underscores")
    called = f"{projection}_{name}_{generation}"
    if len(called) > LONGEST:
        raise ConfigurationError(f"{called} has more than {LONGEST} letters: find the table {name!r} a shorter name")
    return called


class Model:
    """What a handler of a projection writes through: its transaction, and the tables of the generation that it fills.

    `live` is False while the generation is being built, and where the effect of the event was said before, by another one:
    what leaves the database (a mail, a call) is for one alone. A crash may still repeat it: better say a fact.
    """

    __slots__ = ("_publish", "_tables", "_tx", "generation", "live", "projection")

    def __init__(
        self,
        projection: str,
        generation: int,
        tx: Writing,
        *,
        tables: Sequence[str] | None = None,
        publish: Publish | None = None,
        live: bool = False,
    ) -> None:
        self.projection = projection
        self.generation = generation
        self.live = live
        self._tx = tx
        self._tables = tables
        self._publish = publish

    def table(self, name: str) -> str:
        """The table of this generation that stands for `name`."""
        called = table_name(self.projection, self.generation, name)
        if self._tables is not None and called not in self._tables:
            known = [given.removeprefix(f"{self.projection}_").rpartition("_")[0] for given in self._tables]
            raise ConfigurationError(
                f"the projection {self.projection!r} made no table {name!r} in its set-up.{did_you_mean(name, known)}"
            )
        return called

    @property
    def connection(self) -> object:
        """The driver's own connection, for what `execute` cannot do, such as COPY. Never commit it."""
        return self._tx.connection

    def execute(self, sql: str, parameters: Parameters = ()) -> Coroutine[Any, Any, Rows]:
        """Run one statement in the transaction of the events."""
        return self._tx.execute(sql, parameters)

    async def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run one statement for each set of parameters: for handlers that take a list of events."""
        done = cast("_Batching", self._tx.connection).executemany(sql, list(rows))
        if inspect.isawaitable(done):
            await done

    def publish(self, payload: object) -> None:
        """Say a fact of the event in hand: once, whichever generations apply that event, and when. One that is being built
        says nothing before its swap. ConfigurationError unless the projection declares it with `publishes=`."""
        if self._publish is None:
            raise ConfigurationError(
                f"the projection {self.projection!r} says nothing here: facts are said of one event, by a handler that takes one, and at a swap"
            )
        self._publish(payload)


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """One generation has taken the place of another; `replaced` is None where there was none. Versions are those of the code
    that has built them."""

    projection: str
    generation: int
    version: int
    replaced: int | None
    replaced_version: int | None

    def replaced_table(self, name: str) -> str:
        """A table of the generation before, which can still be read. ConfigurationError when there is none."""
        if self.replaced is None:
            raise ConfigurationError(
                f"the projection {self.projection!r} had no generation before: look at swap.replaced"
            )
        return table_name(self.projection, self.replaced, name)


class Founding(Model):
    """The model in the hands of a set-up function: whatever table it names is one of the generation's."""

    __slots__ = ("made",)

    def __init__(self, projection: str, generation: int, tx: Writing) -> None:
        super().__init__(projection, generation, tx)
        self.made: list[str] = []

    def table(self, name: str) -> str:
        called = table_name(self.projection, self.generation, name)
        if called not in self.made:
            self.made.append(called)
        return called
