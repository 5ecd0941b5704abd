"""PORT: where sagas are kept: one row each, and the history of its turns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Literal, Protocol, get_args
from uuid import UUID

import msgspec

from posthouse.store.held import WAITED, HeldEvent
from posthouse.store.transaction import Transaction

SagaStatus = Literal[
    "awaited", "running", "compensating", "completed", "compensated", "partial", "compensation_failed", "cancelled"
]
"""awaited: not started yet, though events came for it. running: takes events and deadlines. compensating: undoes its steps. completed, compensated, cancelled (compensated
because an operator said so): ended. partial: rests with a part undone, and still takes events. compensation_failed: rests,
because an undo failed for good. The last two wait for an operator."""

End = Literal["completed", "compensated", "cancelled"]
"""How it may end."""

Rest = Literal["completed", "compensated", "cancelled", "partial"]
"""How it may come to rest: it ended, or a part is undone."""

ENDED: frozenset[SagaStatus] = frozenset(("completed", "compensated", "cancelled"))
NOT_OVER: tuple[SagaStatus, ...] = tuple(status for status in get_args(SagaStatus) if status not in ENDED)

SHAPED = 5_000
"""So many of the oldest, and as many of the newest, are looked at for shapes: what an old release began, and what runs now."""

FOR_AN_OPERATOR: tuple[SagaStatus, ...] = ("compensation_failed", "partial")
"""Rest until a person decides."""


Indexable = str | int | UUID | date
"""What a field may hold that sagas are found by."""

LONGEST_INDEXED = 255
"""Characters; of what is longer, and of what no database keeps as text, the hash is indexed."""


def indexed_text(value: Indexable) -> str:
    """How a value stands in the index: one text for one value."""
    text = value.isoformat() if isinstance(value, date) else str(value)
    if len(text) <= LONGEST_INDEXED and "\x00" not in text:
        return text
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"


class SagaRef(msgspec.Struct, frozen=True, gc=False):
    """One attempt of one saga, among those of a tenant; where it is asked for, attempt 0 is any."""

    saga: str
    id: str
    attempt: int = 1

    def __str__(self) -> str:
        return f"{self.saga} {self.id}" + (f" (attempt {self.attempt})" if self.attempt > 1 else "")


STOP_WAITING = "stop waiting"
"""The library's own deadline: an event that came too early has waited long enough, or nobody stands before it any more."""


def timer_name(of: SagaRef, deadline: str) -> str:
    """The name of the timer of a deadline; unique per tenant: whatever is in an id, it comes last, behind words without blanks."""
    return f"saga {of.saga} {of.attempt} {deadline.replace(' ', '-')} {of.id}"


WAITED_FOR = "ph-saga"
"""The header in which a held event that waited tells for which saga; ASCII, as all brokers take it."""


def waited_for_header(of: SagaRef) -> Mapping[str, str]:
    """What `waited_for` reads."""
    return {WAITED_FOR: json.dumps(msgspec.to_builtins(of))}


def waited_for(held: HeldEvent) -> SagaRef | None:
    """The saga that a held event waited for; None when it waited for none."""
    if not held.entry.event_id.endswith(WAITED):
        return None
    try:
        return msgspec.json.decode(held.headers.get(WAITED_FOR, ""), type=SagaRef)
    except msgspec.DecodeError:
        return None


class Armed(msgspec.Struct, frozen=True, gc=False):
    """A deadline that is set: the id of the event that will say that it passed, and when it is due. `late`: it was set when
    the saga compensated or had ended, and stays whatever becomes of it."""

    event_id: str
    due_at: float
    late: bool = False


class Done(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A step that was done and not undone, and the turn that did it: the history holds the event of that turn. `late`: its
    event came too late, and it is there only to be undone. `undoable`: it had an undo then. `event` is the subject of that event,
    empty where there was none, and `answered` says whether the history has the answer of a call too."""

    step: str
    turn: int = 0
    late: bool = False
    undoable: bool = False
    event: str = ""
    answered: bool = False


class Undoing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The compensation that a saga stands at: what is undone, how often its undo failed, and whether it was called and waits
    for its fact. `error` is what it failed with last. `fact` is the one that came while its call was out."""

    of: Done
    attempts: int = 0
    waiting: bool = False
    error: str = ""
    fact: str = ""

    @property
    def step(self) -> str:
        """The name of the step."""
        return self.of.step


class CallOut(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call to the outside that was noted and is not answered. `step`, a step, or the undo of what `undoes` names, asked for it
    in the turn `turn`; the event of that turn, or of the step that is undone, is what it is about. `event_id` is the event that leads to the next try, or to the one that is under way. `tries` were begun
    since it was asked for, or asked for again by an operator, the last one at `begun_at`, None: never; `due_at` is when it
    should be answered, or when the next one begins. `error` is what the last
    one failed with. `given_up`: nobody tries any more, and nobody knows what came of it."""

    step: str
    turn: int
    event_id: str = ""
    tries: int = 0
    begun_at: float | None = None
    due_at: float = 0.0
    error: str = ""
    given_up: bool = False
    doubtful: bool = False
    """A try before the last one began, and may have been heard."""
    rests: bool = False
    """The saga rests because of that, and for no other reason."""
    undoes: Done | None = None


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An event that came too early, and waits: for the start, for the steps before that of its `method`, or behind an earlier
    one of its `key`. Since when and until when it may; `woken`: it was handed over to those that are held, to be taken as soon
    as may be, or as a dead letter; it is in the way until it is taken or given up."""

    event_id: str
    type: str
    method: str
    since: float
    until: float
    key: str = ""
    source: str = ""
    """Who said it: ids are unique per source."""
    held_as: str = ""
    """The id under which it is parked, and held when its turn has come."""
    woken: bool = False

    def is_same(self, other: Waiting) -> bool:
        """Whether it is the same event."""
        return self.event_id == other.event_id and self.source == other.source


class SagaRow(msgspec.Struct, frozen=True, kw_only=True):
    """One saga. `state` is its typed state as JSON. `done` holds the steps that were done and not undone, in order; one that
    was done by two events is there twice. `waiting` are the events that came too early, in the order of their coming.
    `calls` are those to the outside that were noted and not answered.
    `turn` counts its changes and guards them. `cancelled`: it compensates because an operator said so. `ended_as`: how
    it had ended before a step came late, which is undone now; then it ends so again. `number` is given by the store, in the
    order of starting. `attempt` counts the sagas of one id, from 1. `parent` is the saga in whose turn it was started.
    `index` holds the fields that it is found by, as `indexed_text` writes them. `tasks` holds what waits for people, and
    since when. `traceparent` is its place in a trace, where it was started in one.

    What was purged is a tombstone: who it was, and how it ended; state, progress, index and history are gone.

    Times are the store's: `started_at` is the moment of adding, `changed_at` that of saving, and `ended_at` that of the first
    save with which it has ended.
    """

    saga: str
    tenant: str
    id: str
    status: SagaStatus = "running"
    state: bytes = b"{}"
    done: Sequence[Done] = ()
    deadlines: Mapping[str, Armed] = {}
    calls: Sequence[CallOut] = ()
    waiting: Sequence[Waiting] = ()
    undoing: Undoing | None = None
    reason: str = ""
    note: str = ""
    cancelled: bool = False
    ended_as: SagaStatus | None = None
    correlation: str | None = None
    traceparent: str | None = None
    turn: int = 0
    started_at: float = 0.0
    changed_at: float = 0.0
    ended_at: float | None = None
    number: int = 0
    attempt: int = 1
    parent: SagaRef | None = None
    index: Mapping[str, str] = {}
    tasks: Mapping[str, float] = {}
    purged_at: float | None = None

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps that were done and not undone, in order."""
        return tuple(done.step for done in self.done)

    @property
    def standing(self) -> tuple[str, ...]:
        """Of those the ones that others may build on: what came late is there only to be undone."""
        return tuple(done.step for done in self.done if not done.late)

    @property
    def ended(self) -> bool:
        """Nothing fires any more."""
        return self.status in ENDED

    @property
    def tombstone(self) -> bool:
        """Only who it was and how it ended is left."""
        return self.purged_at is not None

    @property
    def ref(self) -> SagaRef:
        """Which it is."""
        return SagaRef(self.saga, self.id, self.attempt)


class _Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a row nobody searches for."""

    done: tuple[Done, ...] = ()
    deadlines: dict[str, Armed] = {}
    calls: tuple[CallOut, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    undoing: Undoing | None = None
    note: str = ""
    cancelled: bool = False
    ended_as: SagaStatus | None = None
    index: dict[str, str] = {}
    tasks: dict[str, float] = {}
    traceparent: str | None = None


_progress = msgspec.json.Decoder(_Progress)


def progress_of(row: SagaRow) -> str:
    """What of a row nobody searches for, as a store keeps it: JSON."""
    return msgspec.json.encode(
        _Progress(
            done=tuple(row.done),
            deadlines=dict(row.deadlines),
            calls=tuple(row.calls),
            waiting=tuple(row.waiting),
            undoing=row.undoing,
            note=row.note,
            cancelled=row.cancelled,
            ended_as=row.ended_as,
            index=dict(row.index),
            tasks=dict(row.tasks),
            traceparent=row.traceparent,
        )
    ).decode()


def shape_of(row: SagaRow) -> str:
    """What a release must know to run it, as a hash: the steps that are done and what did them, the deadlines that are armed, the undo under way, the
    calls that are out, the events that wait, and the names of the fields."""
    steps = [(done.step, done.undoable, done.event, done.answered) for done in row.done]
    undoing = None if row.undoing is None else (row.undoing.step, row.undoing.waiting)
    fields = sorted(msgspec.json.decode(row.state, type=dict[str, msgspec.Raw])) if row.state.startswith(b"{") else []
    calls = sorted({call.step for call in row.calls})
    waiting = sorted({event.type for event in row.waiting})
    shape = msgspec.json.encode((steps, sorted(row.deadlines), undoing, calls, waiting, fields))
    return hashlib.blake2b(shape, digest_size=8).hexdigest()


def with_progress(row: SagaRow, progress: str | bytes) -> SagaRow:
    """The row with what `progress_of` kept of it."""
    kept = _progress.decode(progress)
    return msgspec.structs.replace(
        row,
        done=kept.done,
        deadlines=kept.deadlines,
        calls=kept.calls,
        waiting=kept.waiting,
        undoing=kept.undoing,
        note=kept.note,
        cancelled=kept.cancelled,
        ended_as=kept.ended_as,
        index=kept.index,
        tasks=kept.tasks,
        traceparent=kept.traceparent,
    )


class SagaInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a turn was about. `type` is the subject of an event, the name of a deadline, the method that starts, the step whose
    call begins, or the operator's verb. `data` is the payload, or the state that it was started with; where it is no JSON,
    base64 text. An answer is recorded with the event that its call was about."""

    kind: Literal["event", "deadline", "start", "operator", "call", "answer"]
    type: str
    event_id: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")
    source: str = ""
    """Of an event, as are the fields below: who said it."""
    time: str = ""
    """When it became true, as its producer wrote it."""
    key: str | None = None
    correlation: str | None = None
    causation: str | None = None
    call: int = 0
    """Of a call and its answer: the turn that asked for it."""
    answer: msgspec.Raw = msgspec.Raw(b"null")
    """What the outside answered; null also where the call failed."""
    error: str = ""
    """What the call failed with, in words."""
    refused: bool = False
    """The outside has refused: nothing was done there, by this try."""
    every_try: bool = False
    """Nor by any other."""


class Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that a turn published; `after` so many seconds, or `at` a moment. `undoes` is what it was to undo."""

    type: str
    event_id: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    after: float = 0.0
    at: datetime | None = None
    undoes: Done | None = None


class SagaTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn in a saga's history: what came in, what went out, and how it stood afterwards. `deadlines_set` holds
    seconds, or moments. `state` is the typed state afterwards."""

    turn: int
    at: float
    input: SagaInput
    status: SagaStatus
    method: str = ""
    """The method that was called; empty when none was, as for what came late."""
    published: tuple[Said, ...] = ()
    deadlines_set: Mapping[str, float | datetime] = {}
    deadlines_cleared: tuple[str, ...] = ()
    steps_done: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    undo_failed: str = ""
    """The undo that failed, with the error, in words."""
    late: bool = False
    waits_for: str = ""
    """What its event waits for, in words; it will have another turn."""
    note: str = ""
    state: msgspec.Raw = msgspec.Raw(b"null")


class SagaFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sagas; None means any. `where` are fields that they are indexed by. Tombstones are left out unless asked for;
    by fields none is found. `tenants` are those whose sagas may be seen: of none, nothing."""

    saga: str | None = None
    status: SagaStatus | None = None
    tenant: str | None = None
    id: str | None = None
    attempt: int | None = None
    parent: SagaRef | None = None
    where: Mapping[str, Indexable] = {}
    tombstones: bool = False
    tenants: Collection[str] | None = None
    correlation: str | None = None


class SagaTable(Protocol):
    """Rows of sagas, each with its history. One per (saga, tenant, id, attempt), until its tombstone is deleted."""

    async def add(self, tx: Transaction, row: SagaRow) -> bool:
        """Add it, with `turn` 0, and lock it until `tx` ends. False, and no effect, when there is one, or its tombstone;
        waits for a transaction that is adding the same. Its index is written with its first turn."""
        ...

    async def load(
        self,
        tx: Transaction,
        saga: str,
        tenant: str,
        id: str,
        *,
        attempt: int | None = None,
        correlation: str | None = None,
    ) -> SagaRow | None:
        """The row as it stands, locked until `tx` ends; waits for a transaction that holds it. Of several attempts the one
        that is named, or the newest with this correlation, or else the newest."""
        ...

    async def save(self, tx: Transaction, row: SagaRow, turn: SagaTurn, *, cancel: Sequence[str] = ()) -> bool:
        """Store the row as given, but for its times, its correlation and its parent, with its index; add `turn` to its
        history, and cancel these timers of its tenant. False, and no effect, unless the row stands at the turn before
        `row.turn`."""
        ...

    async def begin(self, tx: Transaction, row: SagaRow) -> None:
        """What was `awaited` is started now, with this correlation and parent."""
        ...

    async def drop(self, tx: Transaction, row: SagaRow) -> None:
        """Delete one that is `awaited`, with its history: it was never started."""
        ...

    async def park(self, tx: Transaction, row: SagaRow, event: HeldEvent) -> None:
        """Keep an event that came too early for a row that was loaded, by the id that it has as it would be held."""
        ...

    async def unpark(self, tx: Transaction, row: SagaRow, event_id: str) -> HeldEvent | None:
        """Take it out; None when it is not there any more."""
        ...

    async def find(self, wanted: SagaFilter, *, after: int = 0, limit: int = 100) -> Sequence[SagaRow]:
        """Sagas in the order of starting, those with a number above `after`."""
        ...

    async def history(self, saga: str, tenant: str, id: str, *, attempt: int | None = None) -> Sequence[SagaTurn]:
        """Every turn of this attempt, or of the newest, first to last; empty when there is no such saga."""
        ...

    async def turns_in(self, tx: Transaction, row: SagaRow) -> Sequence[SagaTurn]:
        """The history of a row that was loaded, with what `tx` has saved."""
        ...

    async def shapes(self, sagas: Sequence[str], each: int, *, among: int = SHAPED) -> Sequence[tuple[SagaRow, int]]:
        """Of the sagas of these names that are not over up to `each` of every shape (see `shape_of`), and for how many each
        stands. Looked at are the `among` oldest of each name and status and as many of the newest, so that it costs as much however
        many there are: a shape that only others have is not found, and the numbers are of those that were looked at."""
        ...

    async def counts(self) -> Mapping[tuple[str, SagaStatus], int]:
        """How many there are per (saga, status), tombstones left out."""
        ...

    async def purge(self, age: float, limit: int) -> int:
        """Leave only the tombstones of up to `limit` sagas that ended more than `age` seconds ago by the store's clock.
        One for which an event waits is left alone. Returns how many."""
        ...

    async def forget(self, age: float, limit: int) -> int:
        """Delete up to `limit` tombstones of sagas that ended more than `age` seconds ago. Returns how many."""
        ...
