"""SagaBook: the sagas that one service declares, and the handlers by which they are run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import cast

from posthouse.contracts import EventType
from posthouse.errors import ConfigurationError
from posthouse.events import Event
from posthouse.processes.calendar import Calendar
from posthouse.processes.saga.conductor import Conductor
from posthouse.processes.saga.deadlines import DeadlinePassed, deadline_event
from posthouse.processes.saga.declared import OPERATOR, SagaType
from posthouse.processes.saga.declaring import saga_type_of
from posthouse.processes.saga.saga import Saga
from posthouse.receiving import Handler, Policy, Uses
from posthouse.sending import Tx
from posthouse.store.sagas import End

Run = Callable[[Event[object], Tx], Awaitable[None]]


class SagaBook:
    """By name and by class."""

    def __init__(self, service: str, namespace: str | None) -> None:
        self.service = service
        self._namespace = namespace
        self._conductors: dict[str, Conductor] = {}

    @cached_property
    def deadline(self) -> EventType[DeadlinePassed]:
        """The event that says that a deadline passed."""
        return deadline_event(self.service, self._namespace)

    @property
    def internal_events(self) -> Sequence[EventType[object]]:
        """What its sagas say to themselves."""
        return [cast("EventType[object]", self.deadline)] if self._conductors else []

    @property
    def types(self) -> Mapping[str, SagaType]:
        """What is declared, by name."""
        return {name: conductor.of for name, conductor in self._conductors.items()}

    def declare(
        self,
        cls: type[Saga],
        name: str,
        *,
        correlate: str,
        policy: Policy,
        index: Sequence[str] = (),
        again: Sequence[End] = (),
        operator: str = OPERATOR,
        calendar: Calendar | None = None,
    ) -> SagaType:
        """Add a class. Raises ConfigurationError with every problem at once."""
        if name in self._conductors:
            known = self._conductors[name].of.cls
            raise ConfigurationError(f"{known.__name__} is the saga {name!r} already: give {cls.__name__} another name")
        of = saga_type_of(
            cls,
            name,
            service=self.service,
            correlate=correlate,
            policy=policy,
            index=index,
            again=again,
            operator=operator,
            calendar=calendar,
        )
        self.add(of)
        return of

    def add(self, of: SagaType) -> None:
        """Add one as it was declared."""
        self._conductors[of.name] = Conductor(of, self.deadline)

    def handlers(self, name: str) -> Iterator[Handler]:
        """What the consumer of a saga runs: one handler per event that it reads, and one for its deadlines."""
        conductor = self[name]
        of = conductor.of
        methods = {take.event_type.name: take.method for take in (*of.lates, *of.takes)}
        for undo in of.undos.values():
            for answer in undo.answers:
                methods.setdefault(answer.name, undo.method)
        if of.started_by is not None:
            methods[of.started_by.event_type.name] = of.started_by.method
        for subject, event_type in of.event_types.items():
            yield _handler(of, methods[subject], conductor.take, event_type)
        yield _handler(of, "(deadlines)", conductor.deadline_passed, *self.internal_events)

    def of(self, saga: Saga) -> Conductor:
        """Who runs sagas of this class."""
        for conductor in self._conductors.values():
            if conductor.of.cls is type(saga):
                return conductor
        raise ConfigurationError(
            f"{type(saga).__name__} is no saga of {self.service}: declare it with @{self.service}.saga(…, correlate=…)"
        )

    def __getitem__(self, name: str) -> Conductor:
        return self._conductors[name]


def _handler(of: SagaType, method: str, run: Run, event_type: EventType[object]) -> Handler:
    """A handler that passes for the method of the user's class: by its name, and by its module for `posthouse check`."""

    async def function(event: Event[object], tx: Tx) -> None:
        await run(event, tx)

    function.__module__ = of.cls.__module__
    function.__qualname__ = f"{of.cls.__qualname__}.{method}"
    return Handler(
        name=f"{of.cls.__module__}.{of.cls.__qualname__}.{method}",
        function=function,
        event_types=(event_type,),
        policy=of.policy,
        shape=Tx,
        many=False,
        threaded=False,
        uses=Uses(),
    )
