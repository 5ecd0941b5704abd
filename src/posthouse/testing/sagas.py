"""Given, when, then for one saga: no store, no broker, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from posthouse.clock import new_id
from posthouse.contracts import event_type_for, event_type_of
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.events import Event, timestamp
from posthouse.processes import Saga, SagaType
from posthouse.processes.saga.calls import outcome_of
from posthouse.processes.saga.transition import OWN_DEADLINES
from posthouse.seam import EventContext
from posthouse.service import Service
from posthouse.store import Parameters
from posthouse.store.sagas import SagaRow, SagaStatus, SagaTurn
from posthouse.testing.sagas_bench import Answers, Bench, event_of

S = TypeVar("S", bound=Saga)


async def given(
    service: Service, saga: S | type[S], *before: object, tenant: str = "t1", answers: Answers | None = None
) -> SagaCase[S]:
    """A saga of a service, and the events that came `before`. An instance is started as `start_saga` does; a class waits for
    the event that starts it.

    There is no database: statements are noted, and answer as `answers` say: rows, or an error, by a text that the statement
    holds; any other has changed one row and returns none. What depends on what a database does belongs into a Harness.
    """
    cls = saga if isinstance(saga, type) else type(saga)
    case: SagaCase[S] = SagaCase(_declared(service, cls), service, tenant, answers or {})
    if not isinstance(saga, type):
        await case.start(saga)
    for event in before:
        await case.when(event)
    return case


class SagaCase(Generic[S]):
    """One saga on the bench. `then` speaks of what followed from the last `when`, `advance` or verb."""

    def __init__(self, of: SagaType, service: Service, tenant: str, answers: Answers) -> None:
        self._of = of
        self._service = service
        self._tenant = tenant
        self._bench = Bench(of, service.namespace)
        self._bench.answers = answers
        self._id = ""

    # What comes.

    async def start(self, saga: S) -> SagaCase[S]:
        """Start it, as `start_saga` does."""
        self._begin()
        self._id = self._of.id_of(saga)
        async with self._bench.begin(self._of.service, self._tenant) as tx:
            await self._bench.conductor.start(tx, saga)
        return self

    async def when(self, payload: object) -> SagaCase[S]:
        """An event comes, from whichever service owns it. One that comes too early waits, and is taken as soon as its turn has
        come. Whatever the saga's method raises is raised here."""
        self._begin()
        event = self._event(payload)
        self._id = self._id or self._of.id_in(event.type, event) or ""
        await self._bench.take(event)
        return self

    async def advance(self, seconds: float) -> SagaCase[S]:
        """Time passes: deadlines fire, each at its own moment, and what was to be said later is said."""
        self._begin()
        until = self._bench.clock.now() + seconds
        while (timer := self._bench.due(until)) is not None:
            self._bench.clock.advance(max(0.0, timer.due_at - self._bench.clock.now()))
            await self._bench.passed(timer, EventContext(tenant=self._tenant))
        self._bench.clock.advance(until - self._bench.clock.now())
        return self

    async def answer(self, step: str, what: object) -> SagaCase[S]:
        """The outside answers the call of a step: with what its function would return, or would raise. The function itself is
        not called."""
        self._begin()
        call = next((call for call in self.row.calls if call.step == step), None)
        if call is None:
            out = ", ".join(call.step for call in self.row.calls) or "none"
            raise AssertionError(f"no call of {step} is out: {out}")
        if await self._bench.begin_call(self.row, call):
            await self._bench.answer_call(self.row, call, outcome_of(self._of.calls[step], what))
        return self

    async def retry(self, *, by: str = "") -> SagaCase[S]:
        """An operator has what failed run again."""
        self._begin()
        await self._bench.desk.retry(self._of.name, self._id, tenant=self._tenant, by=by)
        return self

    async def resume(self, *, by: str = "", note: str = "") -> SagaCase[S]:
        """An operator has done by hand what failed."""
        self._begin()
        await self._bench.desk.resume(self._of.name, self._id, tenant=self._tenant, by=by, note=note)
        return self

    async def cancel(self, reason: str, *, by: str = "") -> SagaCase[S]:
        """An operator has everything undone."""
        self._begin()
        await self._bench.desk.cancel(self._of.name, self._id, reason, tenant=self._tenant, by=by)
        return self

    # What followed.

    @property
    def row(self) -> SagaRow:
        """As it is stored. Raises AssertionError before it was started."""
        attempts = self._bench.sagas.attempts.get((self._of.name, self._tenant, self._id))
        if attempts is None:
            raise AssertionError(f"{self._of.name} was not started: give an instance, or the event that starts it")
        return attempts[-1]

    @property
    def saga(self) -> S:
        """Its state, read back as the next turn will read it."""
        return self._of.decode(self.row.state, self._id)  # type: ignore[return-value]  # the type was made from this class

    @property
    def history(self) -> Sequence[SagaTurn]:
        """Every turn so far."""
        return self._bench.sagas.turns_of(self._of.name, self._tenant, self._id)

    @property
    def published(self) -> list[object]:
        """The payloads that were said since the last word, in order."""
        return [self._payload(event) for event in self._bench.said]

    @property
    def later(self) -> list[object]:
        """The payloads that will be said later, soonest first."""
        timers = sorted(self._bench.timers.values(), key=lambda timer: timer.due_at)
        events = [event_of(timer.row) for timer in timers]
        return [self._payload(event) for event in events if event.type not in self._bench.own_subjects]

    @property
    def calls(self) -> list[str]:
        """The steps whose calls are out."""
        return [call.step for call in self.row.calls]

    @property
    def deadlines(self) -> dict[str, float]:
        """The saga's own deadlines that are armed, with the seconds that are left."""
        now = self._bench.clock.now()
        own = {name: armed for name, armed in self.row.deadlines.items() if name not in OWN_DEADLINES}
        return {name: round(armed.due_at - now, 6) for name, armed in own.items()}

    @property
    def waiting(self) -> list[str]:
        """The subjects of events that came too early and wait, in the order of their coming."""
        dead = {held.entry.event_id for held in self._bench.held.dead}
        return [one.type for one in self.row.waiting if one.held_as not in dead]

    @property
    def dead_letters(self) -> list[str]:
        """Why events are dead letters that waited too long for it, in words."""
        return [held.reason for held in self._bench.held.dead]

    @property
    def statements(self) -> list[tuple[str, Parameters]]:
        """What was executed since the last word."""
        return list(self._bench.statements)

    def then(
        self,
        *,
        published: Sequence[object] | None = None,
        status: SagaStatus | None = None,
        done: Sequence[str] | None = None,
        deadlines: Mapping[str, float] | None = None,
        later: Sequence[object] | None = None,
        state: Mapping[str, object] | None = None,
        reason: str | None = None,
        calls: Sequence[str] | None = None,
    ) -> SagaCase[S]:
        """Compare; what is not given is not looked at. Raises AssertionError with every difference.

        `published` is everything that was said since the last word, in order; `later` what waits to be said; `done` the
        steps that were done and not undone; `deadlines` those that are armed, with the seconds left; `state` some fields;
        `calls` the steps whose calls to the outside are not answered.
        """
        row = self.row
        differences = [
            _differs("published", published, self.published, _shown_facts),
            _differs("later", later, self.later, _shown_facts),
            _differs("status", status, row.status),
            _differs("done", None if done is None else list(done), list(row.steps)),
            _differs("deadlines", None if deadlines is None else dict(deadlines), self.deadlines),
            _differs("reason", reason, row.reason),
            _differs("calls", None if calls is None else list(calls), self.calls),
            *(
                _differs(name, value, getattr(self.saga, name, "no such field"))
                for name, value in (state or {}).items()
            ),
        ]
        if found := [difference for difference in differences if difference]:
            last = self.history[-1]
            raise AssertionError("\n".join([f"after {last.input.kind} {last.input.type}:", *found]))
        return self

    def _begin(self) -> None:
        """From here on `then` speaks of what follows."""
        self._bench.said.clear()
        self._bench.statements.clear()

    def _event(self, payload: object) -> Event[object]:
        said = event_type_for(payload)
        read = self._of.event_types.get(said.name)
        if read is None:
            known = did_you_mean(said.name, self._of.event_types)
            raise ConfigurationError(f"{self._of.cls.__name__} takes no {said.name}.{known}")
        return Event(
            id=new_id(),
            type=said.name,
            source=f"/{said.subject.service}",
            data=read.payload.decode(said.payload.encode(payload)),
            time=timestamp(self._bench.clock.now()),
            tenant=self._tenant,
            key=said.key_of(payload),
        )

    def _payload(self, event: Event[bytes]) -> object:
        known = self._service.declared.catalogue.get(event.type)
        return msgspec.json.decode(event.data) if known is None else known.payload.decode(event.data)


def _declared(service: Service, cls: type[Saga]) -> SagaType:
    for declared in service.declared.saga_types.values():
        if declared.cls is cls:
            return declared
    names = [declared.cls.__name__ for declared in service.declared.saga_types.values()]
    raise ConfigurationError(f"{cls.__name__} is no saga of {service.name}.{did_you_mean(cls.__name__, names)}")


def _shown_facts(facts: object) -> object:
    """Payloads by subject and contents: the classes of two services for one event are the same fact."""
    if not isinstance(facts, Sequence):
        return facts
    return [f"{event_type_of(type(fact)).name} {event_type_of(type(fact)).payload.encode(fact)!r}" for fact in facts]


def _differs(name: str, wanted: object, found: object, seen: Callable[[object], object] = lambda value: value) -> str:
    """In words, by what is `seen` of both; empty when they are the same, or when nothing is wanted."""
    if wanted is None or seen(wanted) == seen(found):
        return ""
    return f"  {name}: expected {wanted!r}, got {found!r}"
