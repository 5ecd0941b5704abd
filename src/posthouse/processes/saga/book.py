"""SagaBook: the sagas that one service declares, and the handlers by which they are run."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import cast

from posthouse.contracts import EventType
from posthouse.errors import ConfigurationError, EventError
from posthouse.events import Event
from posthouse.processes.calendar import Calendar
from posthouse.processes.saga.answering import Answering
from posthouse.processes.saga.calls import CallWanted, Outcome, ask, call_event
from posthouse.processes.saga.conductor import Conductor
from posthouse.processes.saga.deadlines import DeadlinePassed, deadline_event
from posthouse.processes.saga.declared import EARLY_WITHIN, OPERATOR, SagaType
from posthouse.processes.saga.declaring import saga_type_of
from posthouse.processes.saga.saga import Saga
from posthouse.receiving import Handler, Policy, Uses
from posthouse.sending import Tx
from posthouse.store.sagas import End

MARGIN = 5.0
"""Seconds that a call has beyond its own deadline, which is kept where it is made."""

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

    @cached_property
    def call(self) -> EventType[CallWanted]:
        """The event that leads to a call to the outside."""
        return call_event(self.service, self._namespace)

    @property
    def internal_events(self) -> Sequence[EventType[object]]:
        """What its sagas say to themselves."""
        calls = [self.call] if any(of.calls for of in self.types.values()) else []
        return [cast("EventType[object]", one) for one in (self.deadline, *calls)] if self._conductors else []

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
        early_within: float = EARLY_WITHIN,
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
            early_within=early_within,
            calendar=calendar,
        )
        self.add(of)
        return of

    def add(self, of: SagaType) -> None:
        """Add one as it was declared."""
        self._conductors[of.name] = Conductor(of, self.deadline, self.call)

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
        passed = _handler(of, "(deadlines)", conductor.deadline_passed, cast("EventType[object]", self.deadline))
        own = not of.policies.keys().isdisjoint(of.deadlines)
        yield dataclasses.replace(passed, policy_for=_policies_of(of, self.deadline) if own else None)

    def callers(self, name: str) -> Iterator[Handler]:
        """What makes its calls, if it makes any."""
        conductor = self[name]
        if conductor.of.calls:
            yield _calling(conductor.of, Answering(conductor), cast("EventType[object]", self.call))

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
        policy=of.policy_of(method),
        shape=Tx,
        many=False,
        threaded=False,
        uses=Uses(),
        waits=True,
    )


def _policies_of(of: SagaType, deadline: EventType[DeadlinePassed]) -> Callable[[Event[object]], Policy]:
    """By the deadline that an event says has passed; that of the saga where it cannot be read, or is another's."""

    def policy_for(event: Event[object]) -> Policy:
        try:
            passed = deadline.payload.decode(event.data) if isinstance(event.data, bytes) else event.data
        except EventError:
            return of.policy
        if not isinstance(passed, DeadlinePassed) or passed.saga != of.name:
            return of.policy
        return of.policy_of(passed.deadline)

    return policy_for


def _calling(of: SagaType, answering: Answering, event_type: EventType[object]) -> Handler:
    """Makes the calls of a saga. What they fail with is answered by the policies of their steps, in the saga's row, which also
    counts tries that a crash cut short; that of this handler is for what fails around them."""

    async def function(event: Event[object], tx: Tx, outcome: Outcome | None) -> None:
        await answering.answered(event, tx, outcome)

    policies = [of.policy_of(step) for step in of.calls]
    policy = dataclasses.replace(
        of.policy,
        max_attempts=max(policy.max_attempts for policy in policies) + 2,
        deadline=max(policy.deadline for policy in policies) + MARGIN,
        grouped=False,
    )
    return Handler(
        name=f"{of.cls.__module__}.{of.cls.__qualname__}.(calls)",
        function=function,
        event_types=(event_type,),
        policy=policy,
        shape=Tx,
        many=False,
        threaded=False,
        uses=Uses(),
        waits=True,
        preparing=answering.begin,
        calling=ask,
    )
