"""Comparing: the sagas that are stored and not over, with the classes that will run them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from posthouse.checks import Check
from posthouse.errors import ConfigurationError, ContractError
from posthouse.events.limits import UNREADABLE
from posthouse.processes.saga.declared import SagaType
from posthouse.processes.saga.recorded import event_of
from posthouse.processes.saga.transition import OWN_DEADLINES
from posthouse.redaction import words_of
from posthouse.store import Store
from posthouse.store.sagas import NOT_OVER, SHAPED, Done, SagaFilter, SagaRow, SagaTable, SagaTurn, shape_of

PAGE = 1_000
EACH = 20
"""So many of each shape are read at a start, of the oldest and newest (`SHAPED`), …"""
HISTORIES = 3
"""… and of so many of these the history."""

BACK = "bring it back until no saga has it, or let the release before run these to their end"


class Misfit(msgspec.Struct, frozen=True):
    """What does not fit about a saga. `fail`: it could not go on. `warn`: it could, and somebody should know."""

    judgement: Literal["warn", "fail"]
    found: str
    fix: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What does not fit about `count` sagas of one name, one of which is the example."""

    saga: str
    judgement: Literal["warn", "fail"]
    found: str
    fix: str
    count: int
    tenant: str
    id: str

    def __str__(self) -> str:
        return f"{self.found} ({self.count:,} of them, as {self.id} of {self.tenant})"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: how many that are not over were compared, by name, and what does not fit, what could not go on first.
    `besides`: how many more are stored of a name, where there are too many to compare all."""

    counts: Mapping[str, int]
    findings: Sequence[Finding]
    besides: Mapping[str, int] = {}

    def checks(self) -> list[Check]:
        """One for each finding, and one for each saga without any."""
        found = [
            Check(name=f"saga {one.saga}", found=str(one), judgement=one.judgement, fix=one.fix)
            for one in self.findings
        ]
        at_odds = {one.saga for one in self.findings}
        return found + [
            Check(name=f"saga {name}", found=f"{count:,} that are not over fit the class{self._besides(name)}")
            for name, count in self.counts.items()
            if name not in at_odds
        ]

    def _besides(self, name: str) -> str:
        more = self.besides.get(name, 0)
        return (
            f"; {more:,} more, begun between these, were not compared: `posthouse saga check --all` does"
            if more
            else ""
        )


async def compare_stored(
    store: Store, declared: Mapping[str, Mapping[str, SagaType]], *, every: bool = False
) -> Comparison:
    """What is stored and not over with what services declare, each by its name. Of each shape some states are decoded, and what the
    undos of some would be given, or every one."""
    types = {name: of for sagas in declared.values() for name, of in sagas.items()}
    known = {(use.party.partition(".")) for use in await store.version_usage.seen() if use.role == "release"}
    gone = {saga: service for service, _, saga in known if service in declared and saga not in types}
    elsewhere = {saga for service, _, saga in known if service not in declared}
    names = [*types, *(saga for saga in gone if saga not in elsewhere)]
    if not names:
        return Comparison(counts={}, findings=[])
    rows = (not_over if every else samples)(store.sagas, names)
    compared = await compare(types, _with_given(types, store.sagas, rows, every=every), gone)
    if every or max(compared.counts.values(), default=0) < SHAPED:
        return compared
    return msgspec.structs.replace(compared, besides=await _besides(store.sagas, compared.counts))


async def _besides(table: SagaTable, compared: Mapping[str, int]) -> Mapping[str, int]:
    stored: Counter[str] = Counter()
    for (saga, status), number in (await table.counts()).items():
        if status in NOT_OVER:
            stored[saga] += number
    return {name: stored[name] - number for name, number in compared.items() if stored[name] > number}


Compared = tuple[SagaRow, int, Sequence[SagaTurn] | None]
"""A row, for how many it stands, and its history, where that is to be looked at."""


async def _with_given(
    types: Mapping[str, SagaType], table: SagaTable, rows: AsyncIterable[tuple[SagaRow, int]], *, every: bool
) -> AsyncIterator[Compared]:
    """Rows with the histories of those in which something is that a call or an undo would be given."""
    read: Counter[str] = Counter()
    async for row, times in rows:
        of, history = types.get(row.saga), None
        shape = f"{row.saga} {shape_of(row)}"
        if of is not None and next(_given(of, row), None) is not None and (every or read[shape] < HISTORIES):
            read[shape] += 1
            history = await table.history(row.saga, row.tenant, row.id, attempt=row.attempt)
        yield row, times, history


async def not_over(table: SagaTable, names: Sequence[str]) -> AsyncIterator[tuple[SagaRow, int]]:
    """Every saga of these names that is not over, each for itself."""
    for name, status in itertools.product(names, NOT_OVER):
        after, wanted = 0, SagaFilter(saga=name, status=status)
        while page := await table.find(wanted, after=after, limit=PAGE):
            for row in page:
                yield row, 1
            after = page[-1].number


async def samples(table: SagaTable, names: Sequence[str]) -> AsyncIterator[tuple[SagaRow, int]]:
    """Some of each shape of the sagas of these names that are not over, and for how many each stands."""
    for sample in await table.shapes(names, EACH, among=SHAPED):
        yield sample


async def compare(types: Mapping[str, SagaType], rows: AsyncIterable[Compared], gone: Mapping[str, str]) -> Comparison:
    """Compare rows, each with how many it stands for, with the classes of these names. `gone` are names that a service declared
    once and does not any more."""
    counts = dict.fromkeys(types, 0)
    found: dict[tuple[str, Misfit], Finding] = {}
    async for row, times, history in rows:
        of = types.get(row.saga)
        counts[row.saga] = counts.get(row.saga, 0) + times
        for misfit in (_orphan(gone[row.saga]),) if of is None else misfits(of, row, history):
            known = found.get((row.saga, misfit))
            found[row.saga, misfit] = Finding(
                saga=row.saga,
                judgement=misfit.judgement,
                found=misfit.found,
                fix=misfit.fix,
                count=times + (0 if known is None else known.count),
                tenant=row.tenant if known is None else known.tenant,
                id=row.id if known is None else known.id,
            )
    order = sorted(found.values(), key=lambda one: (one.judgement, one.saga, -one.count))
    return Comparison(counts=counts, findings=order)


def _orphan(service: str) -> Misfit:
    return Misfit("fail", f"it is not over, and {service} does not declare such a saga any more", BACK)


def misfits(of: SagaType, row: SagaRow, history: Sequence[SagaTurn] | None = None) -> Iterator[Misfit]:
    """What of a stored saga does not fit its class; with its history, also what its undos would be given."""
    cls = of.cls.__name__
    for subject in dict.fromkeys(event.type for event in row.waiting):
        if subject not in of.event_types:
            yield Misfit("fail", f"an event {subject} waits for its turn, and {cls} does not take it", BACK)
    if row.status == "awaited":
        return
    yield from _state_misfits(of, row, cls)
    for step, undoable in dict.fromkeys((done.step, done.undoable) for done in row.done):
        if step not in of.steps:
            yield Misfit("fail", f"the step {step!r} is done, and {cls} does not declare it", BACK)
        elif undoable and step not in of.undos:
            yield Misfit("fail", f"the step {step!r} is done and had an undo, and {cls} declares none", BACK)
    yield from dict.fromkeys(_undo_misfits(of, row, cls))
    if history is not None:
        yield from dict.fromkeys(_given_misfits(of, row, history, cls))
    for name in row.deadlines:
        if name not in of.deadlines and name not in OWN_DEADLINES:
            yield Misfit("fail", f"the deadline {name!r} is armed, and {cls} does not declare it", BACK)
    for step in dict.fromkeys(call.step for call in row.calls):
        if step not in of.calls:
            yield Misfit("fail", f"the call of {step!r} is out, and {cls} makes none there", BACK)
    if row.undoing is not None and row.undoing.waiting:
        undo = of.undos.get(row.undoing.step)
        if undo is None or undo.until is None:
            what = f"the undo of {row.undoing.step!r} waits for its fact, and {cls} declares none"
            yield Misfit("fail", what, BACK)


def _to_undo(of: SagaType, row: SagaRow) -> list[Done]:
    """The steps that are done by an event, by the class as it is now, and may be undone."""
    done = [*row.done, *([row.undoing.of] if row.undoing is not None else [])]
    return [one for one in dict.fromkeys(done) if one.step in of.undos and one.step in of.given_events]


def _undo_misfits(of: SagaType, row: SagaRow, cls: str) -> Iterator[Misfit]:
    """Undos that could not be given the event of their step, or the answer of its call."""
    for done in _to_undo(of, row):
        undo = of.undos[done.step].method
        if not done.event:
            what = f"the step {done.step!r} was done without an event, and {cls}.{undo} would be given one"
            yield Misfit("fail", what, BACK)
        elif done.event not in of.events_of(done.step):
            what = f"the step {done.step!r} was done by {done.event}, which it does not take any more, and {cls}.{undo} would be given that"
            yield Misfit("fail", what, BACK)
        elif done.step in of.calls and not done.answered:
            what = f"the step {done.step!r} was done without a call, and {cls}.{undo} would be given its answer"
            yield Misfit(
                "fail", what, "let the step that calls have another name, and keep this one until no saga has it"
            )


def _given(of: SagaType, row: SagaRow) -> Iterator[tuple[str, int, bool]]:
    """What of the history would be needed: the step, the turn, and whether an answer is."""
    for done in _to_undo(of, row):
        if done.event in of.events_of(done.step):
            yield done.step, done.turn, done.answered and done.step in of.calls
    for call in row.calls:
        if not call.undoes and call.step in of.calls:
            yield call.step, call.turn, False


def _given_misfits(of: SagaType, row: SagaRow, history: Sequence[SagaTurn], cls: str) -> Iterator[Misfit]:
    """Events and answers that could not be read with the classes as they are now."""
    turns = {turn.turn: turn for turn in history}
    for step, number, answered in _given(of, row):
        turn = turns.get(number)
        if turn is None:
            yield Misfit("fail", f"the step {step!r} is done, and the history has no event of it", BACK)
            continue
        try:
            event_of(of, turn.input, row.tenant, turn.at)
            what = f"what the call of {step!r} was answered"
            if answered:
                of.calls[step].decode(turn.input.answer)
        except (ContractError, ConfigurationError) as error:
            yield Misfit("fail", f"the event of {step!r} does not fit: {words_of(error.__cause__ or error)}", BACK)
        except UNREADABLE as error:
            fix = "let the type read what was answered before, as in `str | Receipt`, until no saga has it"
            yield Misfit("fail", f"{what} does not fit {cls} any more: {words_of(error)}", fix)


def _state_misfits(of: SagaType, row: SagaRow, cls: str) -> Iterator[Misfit]:
    try:
        of.decode(row.state, row.id)
    except ContractError as error:
        words = words_of(error.__cause__ or error)
        yield Misfit("fail", f"the state does not fit {cls}: {words}", "a field that was added needs a default")
        return
    known = {*(field.encode_name for field in msgspec.structs.fields(of.cls)), *of.renamed.values()}
    for name in msgspec.json.decode(row.state, type=dict[str, msgspec.Raw]):
        if name not in known:
            fix = f"it is kept as it is; if it has another name now, say so: field(was={name!r})"
            yield Misfit("warn", f"the field {name!r} is stored, and {cls} does not know it", fix)
