"""Histories: run a new release of a saga against what stored ones went through, and name the first turn that differs."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from datetime import datetime

import msgspec

from posthouse.app import app_of
from posthouse.errors import ConfigurationError, ContractError
from posthouse.events.limits import UNREADABLE
from posthouse.processes import Saga, SagaType, SagaView
from posthouse.processes.calendar import Working
from posthouse.processes.saga.answering import GIVEN_UP
from posthouse.processes.saga.calls import Answered, Failed, Refused
from posthouse.processes.saga.recorded import event_of
from posthouse.processes.saga.transition import RETRY_UNDO, call_of
from posthouse.redaction import without_carried
from posthouse.seam import EventContext
from posthouse.service import Service
from posthouse.store.sagas import STOP_WAITING, CallOut, SagaFilter, SagaInput, SagaRow, SagaTurn, Said
from posthouse.testing.sagas_bench import Answers, Bench


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first turn of a saga that the new release takes otherwise. `what` holds one sentence per difference."""

    saga: str
    tenant: str
    id: str
    turn: int
    input: str
    what: Sequence[str]

    def __str__(self) -> str:
        place = f"{self.saga} {self.id} of {self.tenant}, turn {self.turn} ({self.input})"
        return "\n".join([f"{place}:", *(f"  {sentence}" for sentence in self.what)])


async def histories(service: Service, wanted: SagaFilter | None = None) -> AsyncIterator[SagaView]:
    """The stored histories of a service that is open, to be replayed or written to a file (`dump`)."""
    async for row in app_of(service).sagas.find(wanted):
        turns = await app_of(service).store.sagas.history(row.saga, row.tenant, row.id, attempt=row.attempt)
        yield SagaView(row=row, history=turns)


def way(view: SagaView) -> tuple[tuple[str, str, str, str], ...]:
    """The way that a saga took: what came, what was called, and how it stood then, turn by turn."""
    return tuple((turn.input.kind, turn.input.type, turn.method, turn.status) for turn in view.history)


def dump(views: Iterable[SagaView]) -> bytes:
    """Histories as JSON lines, for a file beside the tests. What sagas carry encrypted is masked: the same by the same mask."""
    return without_carried("".join(f"{msgspec.json.encode(view).decode()}\n" for view in views)).encode()


def load(lines: bytes) -> list[SagaView]:
    """What `dump` wrote. Raises ConfigurationError, which names the line."""
    found = []
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            found.append(msgspec.json.decode(line, type=SagaView))
        except UNREADABLE as error:
            raise ConfigurationError(f"line {number} is not the history of a saga: {error}") from error
    return found


async def replay(
    service: Service, views: Iterable[SagaView], *, ignore: Collection[str] = (), answers: Answers | None = None
) -> list[Difference]:
    """Run each history again with the classes as they are now, without a store; the first turn of each that differs.

    Compared are the status, the method that was called, what was published (type and data, in order), deadlines set and
    cleared, steps done and undone, and the state. `ignore` names fields of payloads and states that are new in every run, as
    ids made by the method. Statements answer as `answers` say, see `given`. An undo that had failed fails again.
    """
    found = []
    for view in views:
        of = _declared(service, view.row)
        difference = await _Replay(service, of, view, frozenset(ignore), answers or {}).run()
        found += [] if difference is None else [difference]
    return found


async def assert_replays(
    service: Service, views: Iterable[SagaView], *, ignore: Collection[str] = (), answers: Answers | None = None
) -> None:
    """As `replay`. Raises AssertionError with every difference, and when there is no history: that would prove nothing."""
    views = list(views)
    if not views:
        raise AssertionError("there is no history to replay: that proves nothing")
    if found := await replay(service, views, ignore=ignore, answers=answers):
        raise AssertionError("\n".join(map(str, found)))


def _declared(service: Service, row: SagaRow) -> SagaType:
    if row.saga not in service.declared.saga_types:
        raise ConfigurationError(f"{service.name} has no saga {row.saga!r} any more, and {row.id} is one")
    return service.declared.saga_types[row.saga]


class _Replay:
    def __init__(
        self, service: Service, of: SagaType, view: SagaView, ignore: frozenset[str], answers: Answers
    ) -> None:
        self._of = of
        self._view = view
        self._ignore = ignore
        self._bench = Bench(of, service.namespace)
        self._bench.answers = answers
        self._bench.wakes = False  # each turn is in the history
        self._ids: dict[str, str] = {}
        """By the id under which an event was published then: that of now."""

    async def run(self) -> Difference | None:
        for turn in self._view.history:
            self._bench.clock.advance(turn.at - self._bench.clock.now())
            failed = await self._take(turn)
            what = [failed] if failed else list(self._differences(turn))
            self._ids |= {
                was.event_id: now.event_id for was, now in zip(turn.published, self._turns[-1].published, strict=False)
            }
            if what:
                row = self._view.row
                given = f"{turn.input.kind} {turn.input.type}"
                return Difference(saga=row.saga, tenant=row.tenant, id=row.id, turn=turn.turn, input=given, what=what)
        return None

    async def _take(self, turn: SagaTurn) -> str:
        """Run one input; why it could not be, in words. What the user's own code raises is a difference too."""
        bench = self._bench
        bench.use(_failing(self._of, turn))
        before = len(self._turns)
        try:
            await self._input(turn)
        except Exception as error:
            return f"it raises {type(error).__name__}: {error}"
        return "" if len(self._turns) > before else "nothing happens: the saga is not there, or waits for it no more"

    async def _input(self, turn: SagaTurn) -> None:
        bench, row, given = self._bench, self._view.row, turn.input
        match given.kind:
            case "start":
                async with bench.turn(EventContext(tenant=row.tenant)) as tx:
                    await bench.conductor.start(tx, bench.conductor.of.decode(bytes(given.data), row.id))
            case "event":
                cause = self._ids.get(given.causation or "", given.causation)
                given = msgspec.structs.replace(given, causation=cause)
                event = event_of(self._of, given, row.tenant, bench.clock.now())
                await bench.take(event)
            case "deadline":
                armed = bench.row_of(row.saga, row.tenant, row.id).deadlines.get(given.type)
                timer = next((t for t in bench.timers.values() if armed and t.row.event_id == armed.event_id), None)
                if timer is not None:
                    await bench.passed(bench.timers.pop(timer.name), EventContext(tenant=row.tenant))
            case "operator":
                await self._operate(given)
            case "call" | "answer":
                await self._call(turn)

    async def _call(self, turn: SagaTurn) -> None:
        """A call begins, or comes to what it came to then; nobody is called."""
        bench, view, given = self._bench, self._view.row, turn.input
        row = bench.row_of(view.saga, view.tenant, view.id)
        call = call_of(row, given.call) or CallOut(step=given.type, turn=given.call)
        if given.kind == "call":
            await bench.begin_call(row, call)
        elif given.refused:
            await bench.answer_call(row, call, Refused(given.error, given.every_try))
        elif given.error:
            error = ContractError(given.error) if turn.note.startswith(GIVEN_UP) else RuntimeError(given.error)
            await bench.answer_call(row, call, Failed(error, given.error))
        else:
            await bench.answer_call(row, call, Answered(given.answer))

    async def _operate(self, given: SagaInput) -> None:
        row, desk = self._view.row, self._bench.desk
        said = msgspec.json.decode(bytes(given.data), type=dict[str, str])
        key, tenant, by, note = (row.saga, row.id), row.tenant, said.get("by", ""), said.get("note", "")
        match given.type:
            case "retry":
                await desk.retry(*key, tenant=tenant, by=by)
            case "resume":
                await desk.resume(*key, tenant=tenant, by=by, note=note)
            case "cancel":
                await desk.cancel(*key, note, tenant=tenant, by=by)
            case "index":
                await desk.fill_index(row.saga, by=by)

    @property
    def _turns(self) -> Sequence[SagaTurn]:
        row = self._view.row
        return self._bench.sagas.turns_of(row.saga, row.tenant, row.id)

    def _differences(self, was: SagaTurn) -> Iterable[str]:
        now = self._turns[-1]
        pairs: list[tuple[str, object, object]] = [
            ("status", was.status, now.status),
            ("method", was.method, now.method),
            ("published", self._said(was.published), self._said(now.published)),
            ("deadlines set", self._waits(was), self._waits(now)),
            ("deadlines cleared", sorted(was.deadlines_cleared), sorted(now.deadlines_cleared)),
            ("steps done", list(was.steps_done), list(now.steps_done)),
            ("undone", list(was.undone), list(now.undone)),
            ("state", self._plain(was.state), _known_to(self._plain(was.state), self._plain(now.state))),
        ]
        for name, before, after in pairs:
            if before != after:
                yield f"{name}: was {_words(before)}, is {_words(after)}"

    def _waits(self, turn: SagaTurn) -> dict[str, float | datetime | None]:
        """Deadlines with their seconds or moments; not those of a failed undo, which are drawn anew each time, nor those by a
        calendar, which may have other holidays today; and not when to look at what waits, which follows from the moment."""
        found: dict[str, float | datetime | None] = {}
        for name, wait in turn.deadlines_set.items():
            if name == STOP_WAITING:
                continue
            by_calendar = isinstance(self._of.deadlines.get(name), Working) and isinstance(wait, datetime)
            drawn = name == RETRY_UNDO or by_calendar
            found[name] = None if drawn else wait if isinstance(wait, datetime) else round(float(wait), 6)
        return found

    def _said(self, published: Iterable[Said]) -> list[tuple[str, object, float, datetime | None]]:
        return [(said.type, self._plain(said.data), said.after, said.at) for said in published]

    def _plain(self, data: msgspec.Raw) -> object:
        """JSON without the fields that are new in every run."""
        value = msgspec.json.decode(bytes(data))
        if isinstance(value, dict):
            return {name: part for name, part in value.items() if name not in self._ignore}
        return value


def _failing(of: SagaType, turn: SagaTurn) -> SagaType:
    """The saga as it was in this turn: an undo that had failed, for whatever reason outside of it, fails again."""
    method = turn.undo_failed.partition(":")[0]
    undos = {undo.method for undo in of.undos.values()}
    if method not in undos:
        return of
    real = getattr(of.cls, method)

    @functools.wraps(real)
    def fails(self: object, *given: object) -> None:
        raise RuntimeError("it failed in the history")

    body = {method: fails, "__module__": of.cls.__module__}
    cls: type[Saga] = types.new_class(of.cls.__name__, (of.cls,), exec_body=lambda namespace: namespace.update(body))
    return dataclasses.replace(of, cls=cls)


def _known_to(was: object, now: object) -> object:
    """A state without the fields that were added since: those are no difference."""
    if isinstance(was, dict) and isinstance(now, dict):
        return {name: part for name, part in now.items() if name in was}
    return now


def _words(value: object) -> str:
    return msgspec.json.encode(value).decode()
