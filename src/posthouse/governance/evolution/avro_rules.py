"""The rules for one pair of Avro types, apart from what is inside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from posthouse.governance.evolution.avro_sample import sample
from posthouse.governance.evolution.avro_types import (
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    described,
    unqualified,
)
from posthouse.governance.evolution.finding import Weight

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What may be read as what."""

LOSSY = {("int", "float"), ("long", "float"), ("long", "double")}
"""Promotions that the specification allows and that round large numbers."""


@dataclass(frozen=True)
class Trouble:
    """What is wrong with one pair. `step` leads from the pair to the part that is meant."""

    rule: str
    sentence: str
    way_out: str
    example: Callable[[], object]
    """A value of the writer that shows it; may raise NoSample."""
    weight: Weight = Weight.BREAKS
    step: str = ""


@dataclass(frozen=True)
class Rules:
    """`additive` allows no change of type or name, though it resolves; `takes_away` looks for what the reader lost."""

    additive: bool = False
    takes_away: bool = False

    def troubles(self, reader: AvroType, writer: AvroType) -> Iterator[Trouble]:
        """What stands between a reader and a writer, neither of which is a union, leaving aside what they contain."""
        match reader, writer:
            case Primitive(), Primitive():
                yield from self._primitive(reader, writer)
            case (Array(), Array()) | (Map(), Map()):
                return
            case Fixed(), Fixed():
                yield from self._fixed(reader, writer)
            case Enum(), Enum():
                yield from self._enum(reader, writer)
            case Record(), Record():
                yield from self._record(reader, writer)
            case _:
                yield _type_changed(reader, writer)

    def _primitive(self, reader: Primitive, writer: Primitive) -> Iterator[Trouble]:
        if reader.name == writer.name:
            yield from _logical(reader, writer)
        elif self.additive or reader.name not in PROMOTIONS.get(writer.name, ()):
            yield _type_changed(reader, writer)
        else:
            if (writer.name, reader.name) in LOSSY:
                yield _note(
                    "type-promoted",
                    f"{writer.name} is read as {reader.name}, which rounds large numbers",
                    "make sure that the numbers are small enough",
                )
            yield from _logical(reader, writer)

    def _fixed(self, reader: Fixed, writer: Fixed) -> Iterator[Trouble]:
        if not same_name(reader, writer):
            yield _name_changed(reader, writer)
        elif reader.size != writer.size:
            yield Trouble(
                "fixed-size-changed",
                f"{writer.size} bytes are written and {reader.size} are read",
                "add a field of the new size and keep the old one",
                partial(sample, writer),
            )
        else:
            yield from _logical(reader, writer)

    def _enum(self, reader: Enum, writer: Enum) -> Iterator[Trouble]:
        if not same_name(reader, writer):
            yield _name_changed(reader, writer)
            return
        missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
        if missing and (reader.default is None or self.takes_away):
            yield Trouble(
                "enum-symbol-missing",
                f"the reader does not know {', '.join(missing[:10])}, which may be written",
                "keep the symbol" if self.takes_away else "keep the symbol, or give the reader's enum a default",
                lambda: missing[0],
            )

    def _record(self, reader: Record, writer: Record) -> Iterator[Trouble]:
        if not same_name(reader, writer):
            yield _name_changed(reader, writer)
            return
        pairs = [(mine, written_as(mine, writer)) for mine in reader.fields]
        for mine, theirs in pairs:
            if theirs is None and not mine.has_default:
                yield Trouble(
                    "field-without-default",
                    f"the reader needs the field {mine.name!r}, and it is not written",
                    f"give {mine.name!r} a default",
                    partial(sample, writer),
                    step=f"/{mine.name}",
                )
            elif theirs is not None and theirs.name != mine.name and self.additive:
                yield _kept(writer, theirs, "field-renamed", f"the field {theirs.name!r} is called {mine.name!r}")
        if self.takes_away:
            taken = {theirs.name for _, theirs in pairs if theirs is not None}
            for gone in writer.fields:
                if gone.name not in taken:
                    yield _kept(writer, gone, "field-removed", f"the field {gone.name!r} was removed")


def same_name(reader: Named, writer: Named) -> bool:
    """Records, enums and fixed types are the same when their names are, without namespaces, or when an alias says so."""
    return unqualified(reader.name) == unqualified(writer.name) or writer.name in reader.aliases


def written_as(mine: Field, writer: Record) -> Field | None:
    """The writer's field that a reader's field is filled from: the one of its name, else of one of its aliases."""
    by_name = {f.name: f for f in writer.fields}
    if mine.name in by_name:
        return by_name[mine.name]
    return next((by_name[alias] for alias in sorted(mine.aliases) if alias in by_name), None)


def _logical(reader: Primitive | Fixed, writer: Primitive | Fixed) -> Iterator[Trouble]:
    mine, theirs = reader.logical, writer.logical
    if mine is None or theirs is None:
        if mine is not theirs:
            yield _note(
                "logical-type-added" if theirs is None else "logical-type-removed",
                f"the same value is written as {described(writer)} and read as {described(reader)}",
                "make sure that readers take both kinds of value",
            )
    elif (mine.name, mine.precision, mine.scale) != (theirs.name, theirs.precision, theirs.scale):
        yield Trouble(
            "logical-type-changed",
            f"{theirs} is read as {mine}: without an error, as another value",
            "add a field with the new logical type and keep the old one",
            partial(sample, writer),
        )


def _type_changed(reader: AvroType, writer: AvroType) -> Trouble:
    return Trouble(
        "type-changed",
        f"{described(writer)} is written and {described(reader)} is read",
        "add a field with the new type and keep the old one",
        partial(sample, writer),
    )


def _name_changed(reader: Named, writer: Named) -> Trouble:
    return Trouble(
        "name-changed",
        f"{described(writer)} is read as {described(reader)}",
        f"add the alias {writer.name!r} to {reader.name!r}",
        partial(sample, writer),
    )


def _kept(writer: Record, theirs: Field, rule: str, sentence: str) -> Trouble:
    return Trouble(
        rule,
        sentence,
        "keep it, or make a new version of the event",
        partial(sample, writer),
        step=f"/{theirs.name}",
    )


def _note(rule: str, sentence: str, way_out: str) -> Trouble:
    return Trouble(rule, sentence, way_out, lambda: None, Weight.NOTE)
