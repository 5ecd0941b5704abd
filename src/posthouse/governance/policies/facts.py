"""Facts: everything that the rules look at, as one value. Whoever gathers it does the reading of files and classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

import msgspec

from posthouse.governance.document import Document, EventEntry, HandlerEntry
from posthouse.governance.policies.code import Code, Identified, Publish
from posthouse.governance.policies.finding import Place
from posthouse.governance.policies.settings import Settings
from posthouse.governance.policies.shapes import Field, fields_of
from posthouse.governance.policies.words import is_inventory, is_money
from posthouse.trust.rights import Party, Rights


class PayloadClass(msgspec.Struct, frozen=True, kw_only=True):
    """The class that an event was declared with: its full name, those of its ancestors, and the fields that its author
    marked as personal: where they travel, and `marked`, what code and travellers call them."""

    name: str
    ancestors: tuple[str, ...] = ()
    personal: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()

    def is_marked(self, path: str) -> bool:
        """Whether a field, or one that it is inside of, is marked."""
        return any(path == marked or path.startswith(f"{marked}.") for marked in self.personal)


class Identifier(msgspec.Struct, frozen=True, kw_only=True):
    """A field by whose value something is known, and which stays readable therefore. `owner` is the class that is declared,
    `where` what it is called, `role` what the field does there; `marked` whether its author calls it personal."""

    where: str
    owner: str
    field: str
    role: str
    marked: bool = False


class LogAge(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds the log of a topic keeps frames, as the broker's URL says, beside what the classes of its events ask for: at
    least `log`, and at most `archive`."""

    topic: str
    said: float
    log: float
    archive: float


@dataclass(frozen=True)
class Facts:
    """`classes` is by subject, `inbox_retention` by service, in seconds, `logs` the topics whose age a broker's URL decides, `sagas` are classes by their full names, those that
    they derive from among them, `identifiers` the fields that name things, `schedules` the functions that schedules run, `parties` the
    services as rights name them, `rights` those of their Apps; all may lack some: then the rules that need them say nothing."""

    document: Document
    today: date
    settings: Settings = field(default_factory=Settings)
    classes: Mapping[str, PayloadClass] = field(default_factory=dict)
    inbox_retention: Mapping[str, float] = field(default_factory=dict)
    logs: tuple[LogAge, ...] = ()
    sagas: frozenset[str] = frozenset()
    identifiers: tuple[Identifier, ...] = ()
    schedules: frozenset[str] = frozenset()
    code: Code = field(default_factory=Code)
    parties: Mapping[str, Party] = field(default_factory=dict)
    rights: tuple[Rights, ...] = ()

    @cached_property
    def fields(self) -> Mapping[str, tuple[Field, ...]]:
        """The fields of each event, by subject."""
        return {entry.subject: fields_of(entry) for entry in self.document.events}

    @cached_property
    def money(self) -> frozenset[str]:
        """Subjects whose payload holds an amount of money."""
        return frozenset(subject for subject in self.fields if next(self.amounts(subject), None) is not None)

    def amounts(self, subject: str) -> Iterator[Field]:
        """The fields of a payload that hold money."""
        return (field for field in self.fields.get(subject, ()) if is_money(field.name) and _can_count(field))

    def stocks(self, subject: str) -> Iterator[Field]:
        """The fields of a payload that count what can be sold once."""
        return (field for field in self.fields.get(subject, ()) if is_inventory(field.name) and _can_count(field))

    def entry_of(self, publish: Publish | Identified) -> EventEntry | None:
        """The event that is published: by the full name of its class, or by its own name where that is the only one."""
        subject = self._by_class.get(publish.event) or self._by_name.get(publish.event.rpartition(".")[2])
        return None if subject is None else self._by_subject.get(subject)

    def in_transaction(self, function: str) -> str | None:
        """The handler, the method of a saga or the function of a schedule that a function is or is inside of: a transaction is open while it runs, and
        what it says is said once."""
        parts = function.split(".<locals>")
        names = (".<locals>".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((n for n in names if n in self._handlers or n.rpartition(".")[0] in self.sagas), None)

    def place_of(self, entry: EventEntry | HandlerEntry) -> Place | None:
        """Where an event or a handler is declared."""
        if isinstance(entry, HandlerEntry):
            return self.code.declarations.get(entry.name)
        declared = self.classes.get(entry.subject)
        return None if declared is None else self.code.declarations.get(declared.name)

    @cached_property
    def _by_subject(self) -> Mapping[str, EventEntry]:
        return {entry.subject: entry for entry in self.document.events}

    @cached_property
    def _handlers(self) -> frozenset[str]:
        return self.schedules | {handler.name for handler in self.document.handlers}

    @cached_property
    def _by_class(self) -> Mapping[str, str]:
        return {declared.name: subject for subject, declared in self.classes.items()}

    @cached_property
    def _by_name(self) -> Mapping[str, str]:
        short = {subject: declared.name.rpartition(".")[2] for subject, declared in self.classes.items()}
        times = Counter(short.values())
        return {name: subject for subject, name in short.items() if times[name] == 1}


def _can_count(field: Field) -> bool:
    """A number, a decimal in a text, or an object that holds one; `refund: bool` is none."""
    return bool({"integer", "number", "object", "string"} & field.kinds)
