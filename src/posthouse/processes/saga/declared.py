"""SagaType: a saga as it was declared, for whoever runs, lists or draws it."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from posthouse.contracts import EventType
from posthouse.contracts.kept import changed
from posthouse.contracts.payload import lost_number
from posthouse.errors import ConfigurationError, ContractError
from posthouse.events import Event
from posthouse.events.limits import UNREADABLE
from posthouse.processes.calendar import Working
from posthouse.processes.saga.marks import Early, Kind, Late
from posthouse.processes.saga.saga import Saga, renamed
from posthouse.processes.saga.stored import under_new_names, with_others
from posthouse.receiving import Policy
from posthouse.store.sagas import Indexable, SagaRow, SagaStatus, indexed_text

OPERATOR = "operator"
"""Who decides when a saga rests, unless it says otherwise."""


CALLS = ".calls"
"""What follows the name of a saga's consumer in that of the one that makes its calls."""
EARLY_WITHIN = 3600.0
"""Seconds that an event waits for its saga unless one is told otherwise."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A method that takes an event: a step, a reaction, what comes late, or the start. `correlate` names the field of the
    event that holds the saga's id."""

    method: str
    kind: Kind
    event_type: EventType[object]
    correlate: str
    early: Early = "wait"
    early_within: float = EARLY_WITHIN
    """Seconds that it waits when it comes too early."""
    after: tuple[str, ...] = ()
    """The steps that must be done before."""
    late: Late = "undo"
    by: str | None = None
    """Who brings it about, where people do."""


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """The compensation of a step. With `until` it waits for a fact, at most `within` seconds, and fails when the fact
    `unless` comes; `correlate` names the field of both that holds the saga's id."""

    step: str
    method: str
    until: EventType[object] | None = None
    unless: EventType[object] | None = None
    within: float = 0.0
    correlate: str = ""
    same: tuple[str, ...] = ()
    """The fields that a fact shares with the event of the step, where it is about that one."""

    @property
    def answers(self) -> Sequence[EventType[object]]:
        """The facts that may follow."""
        return [answer for answer in (self.until, self.unless) if answer is not None]

    def is_answered_by(self, subject: str) -> bool:
        """Whether a fact of this kind may follow."""
        return any(answer.name == subject for answer in self.answers)


class OutsideCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a step or an undo asks the outside: the function, and the type of its answer."""

    function: Callable[..., object]
    answer: object

    @property
    def name(self) -> str:
        """What the function is called."""
        return str(getattr(self.function, "__name__", self.function))

    def encode(self, answer: object) -> msgspec.Raw:
        """An answer as the history keeps it. Raises ContractError for one that would not read back."""
        try:
            kept = msgspec.json.encode(answer)
            self.decode(msgspec.Raw(kept))
        except (*UNREADABLE, TypeError) as error:
            raise ContractError(f"what {self.name} answered cannot be kept: {error}") from error
        return msgspec.Raw(kept)

    def decode(self, kept: msgspec.Raw) -> object:
        """An answer that was kept."""
        found: object = msgspec.json.decode(bytes(kept), type=self.answer)
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class SagaType:
    """What is known about a saga from its class. Methods are named as they are in the class."""

    name: str
    service: str
    cls: type[Saga]
    correlate: str
    """The field of the class that holds the saga's id."""
    policy: Policy
    starts: str
    """The method that starts it; a step like the others."""
    started_by: Taken | None
    """The event that starts it; None when `start_saga` does."""
    steps: tuple[str, ...]
    """Every step in the order of the class, joins among them, the start first."""
    joins: Mapping[str, tuple[str, ...]]
    """By the method of a join: the steps with the last of which it is done."""
    takes: tuple[Taken, ...]
    """What takes events in time, the start left out."""
    lates: tuple[Taken, ...]
    """What takes events late."""
    undos: Mapping[str, Undo]
    """By the step that is undone."""
    deadlines: Mapping[str, float | Working | None]
    """What to wait for, seconds or working time, by the method that is called then; None where `turn.set` says it."""
    partial_retry: str | None
    partial_resume: str | None = None
    description: str = ""
    index: tuple[str, ...] = ()
    """The fields that it is found by, besides its id."""
    again: tuple[SagaStatus, ...] = ()
    """What it must have ended as, so that one with its id may begin again."""
    operator: str = OPERATOR
    """Who decides when it rests."""
    policies: Mapping[str, Policy] = dataclasses.field(default_factory=dict)
    """By the method that has one of its own."""
    calls: Mapping[str, OutsideCall] = dataclasses.field(default_factory=dict)
    """By the step, or the undo, that asks the outside first."""

    def policy_of(self, method: str) -> Policy:
        """How the failures of a method are answered."""
        return self.policies.get(method, self.policy)

    def named(self, row: SagaRow) -> str:
        """One of them for people: its id, and its attempt where an id may have several."""
        return f"{row.id} (attempt {row.attempt})" if self.again or row.attempt > 1 else row.id

    def asked_as(self, row: SagaRow) -> str:
        """One of them as a command takes it, this very attempt of its id, also when another has begun meanwhile."""
        attempt = f" --attempt {row.attempt}" if self.again or row.attempt > 1 else ""
        return f"{row.saga} {shlex.quote(row.id)} --tenant {shlex.quote(row.tenant)}{attempt}"

    @property
    def consumer(self) -> str:
        """The consumer group in which it takes events."""
        return f"{self.service}.{self.name}"

    @property
    def caller(self) -> str:
        """The consumer group in which its calls are made: no turn waits for the outside."""
        return f"{self.consumer}{CALLS}"

    @cached_property
    def release(self) -> str:
        """What two releases of the class differ in, as a hash: events, steps and their order, undos with the facts that they wait for,
        deadlines, calls with what they are answered, and fields. Not what methods do."""
        started = [] if self.started_by is None else [self.started_by]
        fields = [(field.encode_name, str(field.type)) for field in msgspec.structs.fields(self.cls)]
        parts = (
            self.steps,
            dict(self.joins),
            sorted(map(_words, (*started, *self.takes, *self.lates))),
            sorted(map(_words, self.undos.values())),
            sorted(self.deadlines),
            sorted((step, _schema(call.answer)) for step, call in self.calls.items()),
            fields,
            sorted(self.renamed.items()),
        )
        return hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()

    @cached_property
    def event_types(self) -> Mapping[str, EventType[object]]:
        """Every event that it reads, by subject."""
        started = [] if self.started_by is None else [self.started_by]
        taken = [take.event_type for take in (*started, *self.takes, *self.lates)]
        awaited = [answer for undo in self.undos.values() for answer in undo.answers]
        return {event_type.name: event_type for event_type in (*taken, *awaited)}

    def events_of(self, step: str) -> Collection[str]:
        """The subjects of the events that do a step."""
        started = [] if self.started_by is None else [self.started_by]
        return {take.event_type.name for take in (*started, *self.takes) if take.method == step}

    @cached_property
    def in_time(self) -> Mapping[str, Taken]:
        """By subject: what takes it while the saga runs."""
        return {take.event_type.name: take for take in self.takes}

    @cached_property
    def needs(self) -> Mapping[str, tuple[str, ...]]:
        """By step: the steps that must be done before; a step that waits for none is left out."""
        return {**self.joins, **{take.method: take.after for take in self.takes if take.after}}

    def needed(self, step: str) -> set[str]:
        """Every step that must be done before, however far."""
        found = {other for before in self.needs.get(step, ()) for other in self.needed(before)}
        return found | {*self.needs.get(step, ())}

    def missing(self, step: str, done: Collection[str]) -> list[str]:
        """What a step still waits for."""
        return [other for other in self.needs.get(step, ()) if other not in done]

    @cached_property
    def people(self) -> Mapping[str, str]:
        """By step: the role of those who bring it about."""
        return {take.method: take.by for take in self.takes if take.by is not None}

    @cached_property
    def given_events(self) -> frozenset[str]:
        """The steps that an event does: their undos are given it."""
        started = [] if self.started_by is None else [self.started_by]
        return frozenset(take.method for take in (*started, *self.takes) if take.method in self.steps)

    @cached_property
    def undone_late(self) -> frozenset[str]:
        """The steps that are undone when they turn out to be done too late."""
        started = () if self.started_by is None else (self.started_by,)
        taken = (take for take in (*started, *self.takes) if take.kind != "on" and take.late == "undo")
        return frozenset(take.method for take in taken if take.method in self.undos)

    @cached_property
    def too_late(self) -> Mapping[str, Taken]:
        """By subject: what takes it when the saga compensates or has ended."""
        return {take.event_type.name: take for take in self.lates}

    @property
    def correlated(self) -> Iterable[tuple[EventType[object], str]]:
        """Every type of event that it hears, with the field that holds the saga's id; of a type twice the last one counts."""
        started = () if self.started_by is None else (self.started_by,)
        awaited = [(answer, undo.correlate) for undo in self.undos.values() for answer in undo.answers]
        return [*awaited, *((take.event_type, take.correlate) for take in (*self.lates, *self.takes, *started))]

    @cached_property
    def _fields(self) -> Mapping[str, str]:
        """By subject: the field that holds the saga's id."""
        return {known.name: field for known, field in self.correlated}

    def id_in(self, subject: str, event: Event[object]) -> str | None:
        """The id of the saga that an event is about; None when it carries none."""
        found: object = getattr(event.data, self._fields[subject])
        return None if found is None or found == "" else str(found)

    def id_of(self, saga: Saga) -> str:
        """The id of a saga, from its state."""
        return str(getattr(saga, self.correlate))

    def index_of(self, saga: Saga) -> Mapping[str, str]:
        """What it is found by now, as it stands in the index; a field that holds None is not."""
        found: Iterable[tuple[str, Indexable | None]] = ((field, getattr(saga, field)) for field in self.index)
        return {field: indexed_text(value) for field, value in found if value is not None}

    def asked_for(self, field: str, value: Indexable) -> Indexable:
        """What an indexed field is asked for, read as what it holds: '7' finds 7. Raises ConfigurationError."""
        kind = next(known.type for known in msgspec.structs.fields(self.cls) if known.name == field)
        try:
            found: Indexable = msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"{field}={value!s:.60} finds no {self.name}: {error}") from error
        return found

    def fresh(self, id: str) -> Saga:
        """A saga that an event starts: its id, and the defaults."""
        kind = next(field.type for field in msgspec.structs.fields(self.cls) if field.name == self.correlate)
        try:
            return self.cls(**{self.correlate: msgspec.convert(id, kind, strict=False)})
        except msgspec.ValidationError as error:
            raise ContractError(f"{id!r} is no {self.correlate} of {self.cls.__name__}: {error}") from error

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Saga]:
        return msgspec.json.Decoder(self.cls)

    @cached_property
    def renamed(self) -> Mapping[str, str]:
        """The names under which fields were stored, by the name under which each is stored now."""
        names = {field.name: field.encode_name for field in msgspec.structs.fields(self.cls)}
        return {names[name]: was for name, was in renamed(self.cls).items()}

    def encode(self, saga: Saga, stored: bytes = b"{}") -> bytes:
        """The state as it is stored, with what `stored` holds for other releases. Raises ContractError for one that would not read
        back."""
        try:
            state = msgspec.json.encode(saga)
            heard = self._decoder.decode(state)
            if lost := lost_number(state, saga) or changed(saga, heard, msgspec.json.encode(heard) == state):
                raise ValueError(lost)
        except (*UNREADABLE, TypeError) as error:
            raise ContractError(f"the state of the saga {self.name!r} cannot be stored: {error}") from error
        known = b"{}" if stored == b"{}" else msgspec.json.encode(self._read(stored))
        whole = with_others(state, self.renamed, stored, known)
        return whole if self._reads(whole, heard) else with_others(state, self.renamed, stored, known, inside=False)

    def _reads(self, state: bytes, expected: Saga) -> bool:
        """Whether a state is read as it should be: what is kept for others may not fit what it stands beside now."""
        try:
            return self._read(state) == expected
        except UNREADABLE:
            return False

    def decode(self, state: bytes, id: str) -> Saga:
        """A stored state, read with the class as it is now. Raises ContractError."""
        try:
            return self._read(state)
        except UNREADABLE as error:
            raise ContractError(
                f"the stored state of {self.name} {id} does not fit {self.cls.__name__} any more: {error}. A field that was "
                "added needs a default"
            ) from error

    def _read(self, state: bytes) -> Saga:
        return self._decoder.decode(under_new_names(state, self.renamed))


def _words(one: Taken | Undo) -> str:
    """All that is said of it, with events by their names."""
    said = (getattr(one, name) for name in one.__struct_fields__)
    return repr([value.name if isinstance(value, EventType) else value for value in said])


def _schema(kind: object) -> str:
    """A type as its JSON is, whatever it is called."""
    try:
        return repr(msgspec.json.schema(kind))
    except TypeError:
        return str(kind)
