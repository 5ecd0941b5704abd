"""A play of orders: runs of one saga side by side, each a tenant of its own, arrival by arrival until nothing moves."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from posthouse.app import app_of
from posthouse.contracts import event_type_of
from posthouse.errors import ConfigurationError, RetryLater, did_you_mean
from posthouse.events import Event
from posthouse.processes import Saga, SagaType, Turn
from posthouse.processes.saga.calls import CallWanted
from posthouse.processes.saga.declared import OutsideCall
from posthouse.service import Service
from posthouse.store import HeldEvent
from posthouse.store.sagas import SagaFilter, SagaRow
from posthouse.testing.harness import Harness
from posthouse.testing.orders_wire import GatedHarness, Sent
from posthouse.testing.orders_world import Choices, Heard, World, heard_by

W = TypeVar("W")

Deed = Callable[[Harness, str], Awaitable[object]]
"""What somebody does in one run: it is given the harness, and the tenant that the run plays in."""

DISTURBANCES = 2
"""How many of these a run has at most: a turn that fails once, a second copy, a cancel, something meanwhile."""
RARE = 0.25
"""How likely all disturbances together are beside one arrival, when runs are drawn."""
ROUNDS = 200
"""Moves after which a run is left: it goes on for ever."""
AGAIN = 1.0
"""Seconds until a turn that failed is tried again."""


class Ending:
    """How one run ended, for invariants to look at."""

    def __init__(self, harness: Harness, run: Run, dead: Sequence[HeldEvent]) -> None:
        self.harness = harness
        self.tenant = run.tenant
        """Rows of your own tables are found by it."""
        self.rows = run.rows
        """The saga as it is stored: one row, or one per attempt."""
        self.dead = dead
        """What was given up, and waits for an operator."""
        self._run = run

    @property
    def status(self) -> str:
        """Of the saga, or of its last attempt; empty when it was never started."""
        return self.rows[-1].status if self.rows else ""

    def events(self, fact: type[W]) -> list[Event[W]]:
        """The events of one type, each once, whoever published them."""
        event_type = event_type_of(fact)
        found = {sent.event.id: sent.event for sent in self._run.said if sent.event.type == event_type.name}
        return [event.with_data(event_type.payload.decode(event.data)) for event in found.values()]

    def said(self, fact: type[W]) -> list[W]:
        """What they say."""
        return [event.data for event in self.events(fact)]

    def partner(self, kind: type[W]) -> W:
        """A partner, with what it noted."""
        return next(partner for partner in self._run.world.partners if isinstance(partner, kind))


Invariants = Callable[[Ending], Iterable[str] | AsyncIterable[str] | Awaitable[Iterable[str]]]
"""What is wrong with an ending, in sentences; none when all is well."""


class Scene(NamedTuple):
    """What the user gave."""

    start: Deed
    invariants: Invariants
    partners: Sequence[type]
    neighbours: Sequence[Service]
    before: Sequence[Deed]
    meanwhile: Mapping[str, Deed]


class Wait(NamedTuple):
    """So many seconds pass before the move of this number."""

    at: int
    seconds: float


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A run that broke an invariant. `order` plays it again alone."""

    what: str
    order: str
    story: Sequence[str]

    def __str__(self) -> str:
        lines = (f"  {number}. {line}" for number, line in enumerate(self.story, 1))
        return "\n".join([f"{self.what}, in the order {self.order!r}:", *lines])


class Played(NamedTuple):
    """One run that came to its end."""

    choices: Choices
    status: str
    violations: Sequence[Violation]


class Run:
    """One run: its tenant, its choices, what was said in it, and its story."""

    def __init__(self, tenant: str, choices: Choices, partners: Mapping[type, Mapping[str, Heard]]) -> None:
        self.tenant = tenant
        self.choices = choices
        self.world = World(partners, choices)
        self.rows: list[SagaRow] = []
        self.said: list[Sent] = []
        self.story: list[str] = []
        self.disturbed: set[str] = set()
        self.offered: object = None
        """How the saga stood when it waited and was disturbed, or might have been."""
        self.waited = 0.0
        """Seconds that passed while nothing was under way, and are not told yet."""
        self.moving = False
        """Whether there was no end to it, or to one beside it."""

    def tell(self, words: str) -> None:
        """What happens next."""
        waited, self.waited = self.waited, 0.0
        self.story += [f"{waited:g} s pass"] if waited else []
        self.story += [words] if words or not self.story else []


class Move(NamedTuple):
    """What may happen next. `kind` names a disturbance, of which a run has each once."""

    words: str
    do: Callable[[], Awaitable[object]]
    kind: str = ""


class Play:
    """Plays batches of runs."""

    def __init__(self, service: Service, saga: type[Saga], scene: Scene) -> None:
        self._service, self._scene = service, scene
        self._of = _declared(service, saga)
        own = service.declared.internal_events
        self._calls = {event_type.name for event_type in own if issubclass(event_type.payload.cls, CallWanted)}
        self._gated = {
            name for name, event_type in self._of.event_types.items() if not event_type.internal
        } | self._calls
        self._partners = {partner: heard_by(partner) for partner in scene.partners}
        self._failing: set[str] = set()
        self._unheard: set[str] = set()
        self._tenants = itertools.count()
        self.rounds = 0
        """The most moves that a run had before it waited by itself."""
        self.pauses: set[float] = set()
        """For how many seconds deadlines were set, those of undos among them."""

    async def batch(self, some: Sequence[Choices], wait: Wait | None) -> list[Played]:
        """Play runs side by side: they share the clock, and nothing else."""
        runs = [Run(f"run-{next(self._tenants)}", choices, self._partners) for choices in some]
        async with GatedHarness(self._service, *self._scene.neighbours, gated=self._gated) as harness:
            for deed in self._scene.before:
                for run in runs:
                    await deed(harness, run.tenant)
                await harness.settled()
            harness.broker.playing = {run.tenant for run in runs}
            with _failing(self._of, self._failing), _unheard(self._of, self._unheard):
                for run in runs:
                    await self._scene.start(harness, run.tenant)
                await self._to_the_end(harness, runs, wait)
            dead = [held for held in await harness.held(self._service) if held.state not in ("retrying", "waiting")]
            return [await self._judged(harness, run, wait, dead) for run in runs]

    async def _to_the_end(self, harness: GatedHarness, runs: Sequence[Run], wait: Wait | None) -> None:
        """Move by move; when no run has any left, time passes."""
        waited = False
        for number in range(1, ROUNDS + 1):
            await self._listen(harness, runs)
            if wait is not None and wait.at == number:
                await self._pass(harness, runs, wait.seconds)
                waited = True
            elif any([await self._move(harness, run) for run in runs]):
                self.rounds = self.rounds if waited else max(self.rounds, number)
            elif wait is not None and number < wait.at:
                continue  # a run waits here for the same moment, whichever others are played beside it
            elif seconds := await harness.wait_for_what_is_due():
                waited = True
                for run in runs:
                    run.waited += seconds
            else:
                return
        for run in runs:
            run.moving = True

    async def _listen(self, harness: GatedHarness, runs: Sequence[Run]) -> None:
        """Let partners answer, until nobody has more to say; then look how the sagas stand."""
        await harness.settled()
        while any(harness.broker.said.values()):
            for run in runs:
                for sent in sorted(harness.broker.said.pop(run.tenant, []), key=lambda sent: sent.event.type):
                    await self._answer(harness, run, sent)
            await harness.settled()
        self._failing.clear()
        self._unheard.clear()
        rows: dict[str, list[SagaRow]] = {}
        async for row in app_of(self._service).sagas.find(SagaFilter(saga=self._of.name)):
            rows.setdefault(row.tenant, []).append(row)
            armed = [at for at in row.deadlines.values() if row.changed_at == harness.clock.now()]
            self.pauses |= {round(at.due_at - row.changed_at, 3) for at in armed}
        for run in runs:
            before, run.rows = _standing(run), rows.get(run.tenant, [])
            if _standing(run) != before:
                run.tell("")
                run.story[-1] += f" → {_standing(run)}"

    async def _answer(self, harness: GatedHarness, run: Run, sent: Sent) -> None:
        run.said.append(sent)
        for words, facts in list(run.world.answers(sent.event)):
            run.tell(f"{sent.name} is said, and {words}")
            for fact in facts:
                await harness.publish(
                    fact, tenant=run.tenant, correlation=sent.event.correlation, causation=sent.event.id
                )

    async def _pass(self, harness: GatedHarness, runs: Sequence[Run], seconds: float) -> None:
        """Time passes for all; in some runs the turn of a deadline fails."""
        for run in runs:
            may_fail = "failure" not in run.disturbed and len(run.disturbed) < DISTURBANCES
            fails = may_fail and run.choices.among([1.0, RARE]) == 1
            if fails:
                run.disturbed.add("failure")
                self._failing.add(run.tenant)
            run.tell(f"{seconds:g} s pass{', and the next turn fails once' if fails else ''}")
        await harness.advance(seconds)

    async def _move(self, harness: GatedHarness, run: Run) -> bool:
        """Choose what happens next, and have it happen; False when nothing can, or nothing is to."""
        waiting = harness.broker.waiting(run.tenant)
        arrivals = [Move(f"{sent.name} arrives", partial(harness.broker.let_through, sent)) for sent in waiting]
        disturbances = list(self._disturbances(harness, run, waiting)) if len(run.disturbed) < DISTURBANCES else []
        if not arrivals:
            standing = _standing(run)
            if not disturbances or run.offered == standing:
                return False
            run.offered = standing
        moves = [*(arrivals or [Move("", _nothing)]), *disturbances]
        rare = RARE / max(1, len(disturbances))
        move = moves[run.choices.among([rare if move.kind else 1.0 for move in moves])]
        if move.kind:
            run.disturbed.add(move.kind)
        if move.words:
            run.tell(move.words)
            await move.do()
        return bool(move.words)

    def _disturbances(self, harness: GatedHarness, run: Run, waiting: Sequence[Sent]) -> Iterator[Move]:
        for sent in waiting:
            if "failure" not in run.disturbed:
                fail = partial(self._spoiled, harness, sent, self._failing)
                yield Move(f"{sent.name} arrives, and its turn fails once", fail, "failure")
            if "failure" not in run.disturbed and sent.event.type in self._calls:
                lose = partial(self._spoiled, harness, sent, self._unheard)
                yield Move("the call is made, and its answer is lost", lose, "failure")
            if "copy" not in run.disturbed:
                twice = partial(harness.broker.let_through, sent, again=True)
                yield Move(f"{sent.name} arrives, and a second copy is under way", twice, "copy")
        row = run.rows[-1] if run.rows else None
        if "cancel" not in run.disturbed and row is not None and row.status in ("running", "partial"):
            cancel = partial(self._cancel, row)
            yield Move("an operator cancels", cancel, "cancel")
        for words, deed in self._scene.meanwhile.items():
            if words not in run.disturbed:
                yield Move(words, partial(deed, harness, run.tenant), words)

    async def _spoiled(self, harness: GatedHarness, sent: Sent, tenants: set[str]) -> None:
        tenants.add(sent.event.tenant)
        await harness.broker.let_through(sent)

    async def _cancel(self, row: SagaRow) -> None:
        await app_of(self._service).sagas.cancel(row.saga, row.id, "cancelled in the play", tenant=row.tenant)

    async def _judged(self, harness: Harness, run: Run, wait: Wait | None, dead: Sequence[HeldEvent]) -> Played:
        ending = Ending(harness, run, [held for held in dead if held.entry.tenant == run.tenant])
        wrong = await _said_by(self._scene.invariants(ending))
        wrong += [f"{held.type} was given up: {held.reason}, {held.error}" for held in ending.dead]
        if any(row.status in ("running", "compensating") and not row.deadlines and not row.tasks for row in run.rows):
            wrong.append("the saga stands still, and says so to nobody")
        if run.moving:
            wrong.append(f"it has not come to an end after {ROUNDS} moves, or one that was played beside it has not")
        where = "" if wait is None else f"{wait.at}+{wait.seconds:g}/"
        order = where + ".".join(map(str, run.choices.path))
        violations = [Violation(what=what, order=order, story=run.story) for what in wrong]
        return Played(run.choices, ending.status, violations)


async def _said_by(found: Iterable[str] | AsyncIterable[str] | Awaitable[Iterable[str]]) -> list[str]:
    if isinstance(found, AsyncIterable):
        return [what async for what in found]
    return list(await found if inspect.isawaitable(found) else found)


async def _nothing() -> None:
    """Wait on."""


def _standing(run: Run) -> str:
    return ", ".join(f"{row.status} at turn {row.turn}" for row in run.rows)


def _declared(service: Service, saga: type[Saga]) -> SagaType:
    for of in service.declared.saga_types.values():
        if of.cls is saga:
            return of
    names = [of.cls.__name__ for of in service.declared.saga_types.values()]
    raise ConfigurationError(f"{saga.__name__} is no saga of {service.name}.{did_you_mean(saga.__name__, names)}")


@contextmanager
def _failing(of: SagaType, tenants: set[str]) -> Iterator[None]:
    """Methods of the saga fail once, after they have done everything, for these tenants."""
    undos = [undo.method for undo in of.undos.values()]
    taking = [taken.method for taken in (*of.takes, *of.lates)]
    names = {*of.steps, *undos, *taking, *of.deadlines}
    real = {name: getattr(of.cls, name) for name in names}
    for name, method in real.items():
        setattr(of.cls, name, _failing_once(method, tenants))
    try:
        yield
    finally:
        for name, method in real.items():
            setattr(of.cls, name, method)


def _failing_once(method: Callable[..., Any], tenants: set[str]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def run(saga: Saga, *given: Any) -> object:
        result = method(saga, *given)
        result = await result if inspect.isawaitable(result) else result
        tenant = next(one.tenant for one in given if isinstance(one, Turn))
        if tenant in tenants:
            tenants.discard(tenant)
            raise RetryLater("it fails once", seconds=AGAIN)
        return result

    return run


@contextmanager
def _unheard(of: SagaType, tenants: set[str]) -> Iterator[None]:
    """Calls to the outside are made, and their answer is lost, for these tenants."""
    real = dict(of.calls)
    spoiled = {
        step: msgspec.structs.replace(outside, function=_lost_once(outside.function, tenants))
        for step, outside in real.items()
    }
    calls = cast("dict[str, OutsideCall]", of.calls)
    calls.update(spoiled)
    try:
        yield
    finally:
        calls.update(real)


def _lost_once(function: Callable[..., Any], tenants: set[str]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(event: Event[object]) -> object:
        if inspect.iscoroutinefunction(function):
            answer = await function(event)
        else:
            answer = await asyncio.to_thread(function, event)
        if event.tenant in tenants:
            tenants.discard(event.tenant)
            raise RetryLater("its answer is lost", seconds=AGAIN)
        return answer

    return call
