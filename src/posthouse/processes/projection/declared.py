"""Projection: a read model as it is declared: which events feed it, what its tables are, how far behind it may be."""

from __future__ import annotations

import dataclasses
import inspect
import weakref
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol, TypeVar, Unpack, overload

import msgspec

from posthouse.contracts import EventType, events_of
from posthouse.errors import ConfigurationError
from posthouse.events import Event
from posthouse.options import checked
from posthouse.processes.projection.model import NAME, Model, Swap, table_name
from posthouse.receiving import Handler, Policy, Uses
from posthouse.receiving.handler import hints_of, is_list, name_of
from posthouse.receiving.typed import Handles, ReadingOptions
from posthouse.seam.stripping import Stripper, undecided, unknown
from posthouse.sending import Tx
from posthouse.store import Store

F = TypeVar("F", bound=Callable[..., object])
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Founder = Callable[[Model], Awaitable[None]]
Swapper = Callable[[Model, Swap], Awaitable[None]]

DEFAULT = Policy(grouped=True, group_size=500)
"""A handler of a projection touches nothing but its transaction, so that events of different keys may share one."""


@dataclasses.dataclass(frozen=True)
class Terms:
    """What was said about a projection. `version` is that of its handlers and tables."""

    version: int
    lag_budget: float
    cross_tenant: bool
    strips: tuple[str, ...]
    keeps: tuple[str, ...]
    publishes: tuple[type[object], ...] = ()

    def problems(self) -> list[str]:
        """What cannot work, one sentence each."""
        checks = (
            (self.version >= 1, f"version={self.version}: versions begin at 1"),
            (self.lag_budget > 0, f"lag_budget={self.lag_budget:g}: it is a number of seconds above 0"),
            (self.cross_tenant or not self.keeps, "keeps= is for a projection with cross_tenant=True"),
        )
        return [sentence for fine, sentence in checks if not fine]


class Host(Protocol):
    """Who runs the service."""

    @property
    def store(self) -> Store: ...


class Handlers(Protocol):
    """What the service declares."""

    def add_handler(self, consumer: str, handler: Handler) -> None: ...


class Home(Protocol):
    """The service that declares a projection."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> Host: ...

    @property
    def declared(self) -> Handlers: ...


class Projection:
    """A read model. Its handlers take (event, model) or (list of events, model); its tables are made by its set-up
    functions, once for each generation. Made by `Service.projection`."""

    def __init__(
        self,
        service: Home,
        name: str,
        terms: Terms,
    ) -> None:
        problems = terms.problems()
        if not NAME.fullmatch(name):
            problems.append(
                f"use lower-case letters, digits and underscores, as its tables are called after it: {name!r}"
            )
        if problems:
            raise ConfigurationError(*(f"projection {name!r}: {problem}" for problem in problems))
        self.name = name
        self.service = service.name
        self.consumer = f"{service.name}.{name}"
        """What it is called among the consumers; the group of each generation is called after it."""
        self.terms = terms
        self.stripper = Stripper(terms.strips, terms.keeps) if terms.cross_tenant or terms.strips else None
        self.says = Uses.of([], None, terms.publishes, by=service.name).publishes
        """What its handlers may say of an event, once for each."""
        self.effects: list[str] = []
        """The subjects of events of which something may be said: those that a handler takes one by one."""
        self.founders: list[Founder] = []
        self.swappers: list[Swapper] = []
        self.event_types: list[EventType[object]] = []
        self._home = service
        self._asked: weakref.WeakKeyDictionary[Tx, int] = weakref.WeakKeyDictionary()

    @overload
    def on(self, event: type[A], /, **options: Unpack[ReadingOptions]) -> Handles[Event[A]]: ...

    @overload
    def on(self, first: type[A], second: type[B], /, **options: Unpack[ReadingOptions]) -> Handles[Event[A | B]]: ...

    @overload
    def on(
        self, first: type[A], second: type[B], third: type[C], /, **options: Unpack[ReadingOptions]
    ) -> Handles[Event[A | B | C]]: ...

    @overload
    def on(self, *events: type[object], **options: Unpack[ReadingOptions]) -> Callable[[F], F]: ...

    @checked
    def on(self, *events: object, policy: Policy | None = None, reads: Sequence[str] | None = None) -> object:
        """Run the decorated async function for these events, once for each generation, in order per key, in one
        transaction with the model's rows. It takes the event, or a list of events of one tenant (with `cross_tenant` of
        any), and a Model. It returns nothing: what follows from an event for others is said by `model.publish`."""
        types = events_of(f"{self.name}.on", events)

        def register(function: F) -> F:
            self._refuse(function, types)
            first, *_ = inspect.signature(function).parameters
            many = is_list(hints_of(function).get(first))
            handler = Handler(
                name=name_of(function),
                function=function,
                event_types=tuple(types),
                policy=policy or DEFAULT,
                shape=Tx,  # a model is made of it for each generation
                many=many,
                threaded=False,
                uses=msgspec.structs.replace(
                    Uses.of(types, reads, (), by=self.service), publishes=() if many else self.says
                ),
            )
            if self.says and not many:
                self.effects += [known.name for known in types]
            self._home.declared.add_handler(self.consumer, handler)
            self.event_types += types
            return function

        return register

    def setup(self, function: Founder) -> Founder:
        """Run the decorated async function once for each generation, in the transaction that makes it: it makes the tables
        that `model.table` names."""
        self.founders.append(function)
        return function

    def swapped(self, function: Swapper) -> Swapper:
        """Run the decorated async function at each swap, in its transaction: once, or not at all while nothing was swapped. It
        takes a Model of the new generation, which is live then, and the Swap."""
        if not inspect.iscoroutinefunction(function) or len(inspect.signature(function).parameters) != 2:
            raise ConfigurationError(
                f"projection {self.name!r}: {name_of(function)} is to be an async function of a Model and a Swap"
            )
        self.swappers.append(function)
        return function

    async def table(self, tx: object, name: str) -> str:
        """What the live table is called, for a reader: `tx` is a Tx, or a connection or session of yours. All tables of one
        Tx are of one generation, the one that was live when it first asked; the next Tx asks again."""
        if not isinstance(tx, Tx):
            return table_name(self.name, self._found(await self._live(tx)), name)
        number = self._asked.get(tx)
        if number is None:
            number = self._asked[tx] = self._found(await self._live(tx))
        return table_name(self.name, number, name)

    def group(self, generation: int) -> str:
        """The consumer group of a generation. The first one has the name of the projection, so that a service that never
        rebuilds has nothing to learn."""
        return self.consumer if generation == 1 else f"{self.consumer}.g{generation}"

    def problems(self) -> list[str]:
        """What was declared and cannot work."""
        found = unknown(self.event_types, self.terms.strips, self.terms.keeps) if self.event_types else []
        if not self.event_types:
            found.append("no handler feeds it: decorate one with @….on(Event)")
        return [f"projection {self.name!r}: {sentence}" for sentence in found]

    async def _live(self, tx: object) -> int | None:
        if isinstance(tx, Tx):
            return await tx.store.projections.live(tx.transaction, self.consumer)
        store = self._home.host.store
        return await store.projections.live(store.join(tx), self.consumer)

    def _found(self, number: int | None) -> int:
        if number is None:
            raise ConfigurationError(
                f"projection {self.name!r} has no tables yet: they are made when its service is opened, as by `posthouse run`"
            )
        return number

    def _refuse(self, function: Callable[..., object], types: Collection[EventType[object]]) -> None:
        problems = undecided(types, self.terms.strips, self.terms.keeps) if self.terms.cross_tenant else []
        name, said = name_of(function), Uses().with_result(hints_of(function).get("return"))
        if not inspect.iscoroutinefunction(function):
            problems.append(f"{name} is a plain function: make it async, so that it can await its model")
        if len(inspect.signature(function).parameters) != 2:
            problems.append(f"{name} takes other arguments than the event, or a list of events, and a Model")
        if said.publishes:
            problems.append(f"{name} returns events: say them by model.publish, which is quiet during a rebuild")
        if problems:
            raise ConfigurationError(*(f"projection {self.name!r}: {problem}" for problem in problems))
