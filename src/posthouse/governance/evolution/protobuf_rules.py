"""The rules by which one Protobuf file reads what another has written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import msgspec

from posthouse.governance.evolution.finding import Finding, Reader, Weight
from posthouse.governance.evolution.protobuf_scalars import Fit, fit, sample
from posthouse.governance.evolution.protobuf_types import Call, Enum, Field, File, Message, Reserved

MOST_PAIRS = 20_000
"""Pairs of messages that one comparison looks at."""


class Comparison:
    """One direction: `findings` says what the reader makes wrong of what the other writes."""

    def __init__(self, old: File, new: File, who: Reader, *, additive: bool) -> None:
        self._who = who
        self._additive = additive
        self._takes_away = additive and who is Reader.NEW
        self.findings: list[Finding] = []
        self._seen: set[tuple[Message, Message]] = set()
        self._waiting: list[tuple[Message, Message]] = []
        self._files(*((new, old) if who is Reader.NEW else (old, new)))

    def _files(self, reader: File, writer: File) -> None:
        if reader.package != writer.package:
            self._add(
                "",
                "package-changed",
                f"the package {writer.package!r} is read as {reader.package!r}, which makes every type another one",
                "keep the package, and make a new one for a new version",
            )
        if reader.syntax != writer.syntax:
            self._note(
                "", "syntax-changed", f"{writer.syntax} is read as {reader.syntax}", "check which fields may be unset"
            )
        for name, written in writer.messages.items():
            mine = reader.messages.get(name)
            if mine is None:
                self._add(f"/{name}", "message-removed", f"the reader has no message {name}", "keep the message")
            else:
                self._waiting.append((mine, written))
        for name, listed in writer.enums.items():
            if name in reader.enums:
                self._enum(f"/{name}", reader.enums[name], listed)
        for name, written_call in writer.calls.items():
            if name in reader.calls:
                self._call(f"/{name}", reader.calls[name], written_call)
        while self._waiting:
            self._message(*self._waiting.pop(0))

    def _message(self, reader: Message, writer: Message) -> None:
        if (reader, writer) in self._seen:
            return
        self._seen.add((reader, writer))
        if len(self._seen) > MOST_PAIRS:
            self._waiting.clear()
            sentence = f"the files have more than {MOST_PAIRS:,} pairs of messages to compare"
            self._unjudged("", "too-large", sentence, "split the file into smaller ones")
            return
        if reader.message_set != writer.message_set:
            self._add(
                f"/{reader.name}",
                "message-set-changed",
                "one side writes it as a message set, which is another encoding, and the other does not",
                "keep the option `message_set_wire_format`, and make another message",
            )
        self._json_format(f"/{reader.name}", reader, writer)
        self._reservations(f"/{reader.name}", reader.reserved, writer.reserved, reader.fields)
        for number in sorted({*reader.fields, *writer.fields}):
            mine, theirs = reader.fields.get(number), writer.fields.get(number)
            if mine is not None and theirs is not None:
                self._field(reader, writer, mine, theirs)
            elif mine is not None:
                self._unwritten(reader, writer, mine)
            elif theirs is not None:
                self._unread(reader, writer, theirs)
        self._oneofs(reader, writer)

    def _field(self, reader: Message, writer: Message, mine: Field, theirs: Field) -> None:
        path = f"/{reader.name}/{theirs.name}"
        if mine.name != theirs.name:
            self._renamed(path, reader, writer, mine, theirs)
        elif mine.json_name != theirs.json_name:
            self._json_renamed(path, mine, theirs)
        if mine.is_map != theirs.is_map or (mine.message is None) != (theirs.message is None):
            self._type_changed(path, mine, theirs)
            return
        self._label(path, mine, theirs)
        if mine.message is not None and theirs.message is not None:
            self._message_type(path, mine, theirs, mine.message, theirs.message)
        elif mine.type != theirs.type:
            self._scalar(path, mine, theirs)
        elif mine.enum is not None and theirs.enum is not None:
            self._enum_type(path, mine.enum, theirs.enum)
        if mine.message is None:
            self._unset(path, mine, theirs)
        self._utf8(path, mine, theirs)
        self._membership(path, mine, theirs)

    def _unset(self, path: str, mine: Field, theirs: Field) -> None:
        """What is not written is read as the reader's default."""
        if mine.repeated or theirs.repeated or repr(mine.default) == repr(theirs.default):
            return
        if type(mine.default) is not type(theirs.default) and not (mine.default or theirs.default):
            return  # nothing, in two types
        self._add(
            path,
            "default-changed",
            f"where it is unset the writer means {theirs.default!r} and the reader sees {mine.default!r}",
            "keep the default, or add a field with the new one",
            {},
        )

    def _utf8(self, path: str, mine: Field, theirs: Field) -> None:
        if theirs.type == mine.type == "string" and mine.checks_utf8 != theirs.checks_utf8:
            if mine.checks_utf8:
                self._unjudged(
                    path,
                    "utf8-checked",
                    "texts that are no UTF-8 may be written, and the reader refuses them",
                    "keep `utf8_validation`, or see to it that every writer writes UTF-8 first",
                )
            else:
                self._note(path, "utf8-unchecked", "the reader takes texts that are no UTF-8", "expect only what is")

    def _membership(self, path: str, mine: Field, theirs: Field) -> None:
        if (mine.oneof is None) != (theirs.oneof is None):
            self._note(
                path,
                "oneof-changed",
                f"{theirs.name!r} is {'in' if theirs.oneof else 'outside'} a oneof, and for the reader "
                f"{'in' if mine.oneof else 'outside'} one",
                "expect it beside the others, or alone",
            )

    def _message_type(self, path: str, mine: Field, theirs: Field, reads: Message, writes: Message) -> None:
        if mine.type != theirs.type:  # a group and a message are encoded in two ways
            self._type_changed(path, mine, theirs)
        elif not mine.is_map and reads.name != writes.name:
            self._add(
                path,
                "message-type-changed",
                f"a {writes.name} is written and a {reads.name} is read",
                "add a field with the new type and keep the old one",
                {theirs.name: {}},
            )
        else:
            self._waiting.append((reads, writes))

    def _scalar(self, path: str, mine: Field, theirs: Field) -> None:
        found = fit(theirs.type, mine.type)
        if found is Fit.NO or self._additive:
            self._type_changed(path, mine, theirs)
        elif found is Fit.SOME:
            self._unjudged(
                path,
                "type-narrowed",
                f"{theirs.type} is read as {mine.type}: values that do not fit are changed without an error",
                "add a field with the new type and keep the old one",
                {theirs.name: sample(theirs.type)},
            )
        else:
            self._note(
                path, "type-widened", f"{theirs.type} is read as {mine.type}", "readers in JSON see another type"
            )

    def _label(self, path: str, mine: Field, theirs: Field) -> None:
        if mine.is_map:
            return
        if theirs.repeated and not mine.repeated:
            value = sample(theirs.type)
            self._add(
                path,
                "repeated-to-single",
                "a list is written, and the reader keeps only its last item",
                "add a field for the single value and keep the list",
                {theirs.name: [value, value]},
            )
        elif mine.repeated and not theirs.repeated:
            self._repeated(path, mine, theirs)
        elif mine.required and not theirs.required:
            self._add(
                path,
                "required-added",
                f"the reader refuses messages without {mine.name!r}, and it may be left unset",
                "make it optional",
                {},
            )
        elif mine.presence and not theirs.presence and mine.oneof is None:
            self._note(
                path, "presence-added", "zero is written as nothing, so the reader takes it for unset", "expect both"
            )

    def _repeated(self, path: str, mine: Field, theirs: Field) -> None:
        if mine.message is not None or mine.type in ("string", "bytes"):
            self._note(path, "single-to-repeated", "a single value is read as a list of one", "expect empty lists too")
            return
        self._add(
            path,
            "single-to-repeated",
            f"one {theirs.type} is written and a list is read; not every reader takes a number outside a packed list",
            "add a field for the list and keep the single value",
            {theirs.name: sample(theirs.type)},
        )

    def _unwritten(self, reader: Message, writer: Message, mine: Field) -> None:
        """The reader has a field that the writer has not."""
        path = f"/{reader.name}/{mine.name}"
        if mine.required:
            sentence = f"the reader refuses messages without {mine.name!r}, and it is not written"
            self._add(path, "required-added", sentence, "make it optional", {})
        if self._who is Reader.NEW and writer.reserves(mine.number):
            self._add(
                path,
                "reserved-number-used",
                f"the number {mine.number} was reserved because it once had another meaning, and {mine.name!r} uses it",
                "take another number",
            )

    def _unread(self, reader: Message, writer: Message, theirs: Field) -> None:
        """The writer has a field that the reader has not."""
        path = f"/{reader.name}/{theirs.name}"
        moved = reader.named(theirs.name)
        example: dict[str, object] = {theirs.name: sample(theirs.type)}
        if moved is not None:
            self._add(
                path,
                "number-changed",
                f"{theirs.name!r} is written as number {theirs.number} and read as {moved.number}: it is lost",
                f"keep the number {theirs.number}",
                example,
            )
        elif theirs.required:
            sentence = f"{theirs.name!r} was required, and those who still require it refuse messages without it"
            self._add(path, "required-removed", sentence, "make it optional first", example)
        elif theirs.oneof is not None and self._siblings(reader, writer, theirs):
            self._add(
                path,
                "oneof-member-removed",
                f"{theirs.name!r} may be the one that is set, and the reader then sees none",
                "keep it in the oneof",
                example,
            )
        elif self._takes_away:
            self._add(path, "field-removed", f"{theirs.name!r} was removed", "keep it, or make a new version", example)
        else:
            self._freed(path, reader.reserved, theirs.number, theirs.name)

    def _freed(self, path: str, reserved: Reserved, number: int, name: str) -> None:
        """What a field or a value leaves behind that nothing keeps from being used again."""
        if self._who is not Reader.NEW:
            return
        if number not in reserved:
            sentence = f"{name!r} was removed and its number {number} is free to be used again"
            self._note(path, "number-not-reserved", sentence, f"say `reserved {number};`")
        if name not in reserved.names:
            sentence = f"{name!r} was removed and its name, which JSON has, is free to be used again"
            self._note(path, "name-not-reserved", sentence, f'say `reserved "{name}";` where JSON is used')

    def _siblings(self, reader: Message, writer: Message, theirs: Field) -> list[Field]:
        """What the reader has of the other members of a field's oneof."""
        numbers = [f.number for f in writer.fields.values() if f.oneof == theirs.oneof]
        return [reader.fields[number] for number in numbers if number in reader.fields] or [
            f for f in reader.fields.values() if f.oneof == theirs.oneof
        ]

    def _oneofs(self, reader: Message, writer: Message) -> None:
        """Fields that could be set together must not exclude each other for the reader."""
        groups: dict[str, dict[str, Field]] = defaultdict(dict)
        for mine in reader.fields.values():
            theirs = writer.fields.get(mine.number)
            if mine.oneof is not None and theirs is not None:
                groups[mine.oneof][f"oneof {theirs.oneof}" if theirs.oneof else f"field {theirs.number}"] = theirs
        for oneof, origins in groups.items():
            if len(origins) > 1:
                names = [f.name for f in origins.values()]
                self._add(
                    f"/{reader.name}/{names[0]}",
                    "moved-into-oneof",
                    f"{' and '.join(names[:4])} can be set together, and in the reader's oneof {oneof!r} the last one wins",
                    "leave them outside the oneof",
                    {f.name: sample(f.type) for f in origins.values()},
                )

    def _call(self, path: str, mine: Call, theirs: Call) -> None:
        """A method of a service: what callers and servers must agree on."""
        for what, reads, writes in (
            ("request", mine.request, theirs.request),
            ("response", mine.response, theirs.response),
            ("client streaming", mine.client_streaming, theirs.client_streaming),
            ("server streaming", mine.server_streaming, theirs.server_streaming),
            ("idempotency", mine.idempotency, theirs.idempotency),
        ):
            if reads != writes:
                rule = f"rpc-{what.replace(' ', '-')}-changed"
                self._add(path, rule, f"its {what} is {writes} for one side and {reads} for the other", "add a method")

    def _json_format(self, path: str, reader: Message | Enum, writer: Message | Enum) -> None:
        if self._who is Reader.NEW and writer.fits_json and not reader.fits_json:
            self._note(
                path,
                "json-format-loosened",
                "the compiler no longer sees to it that no two of its names are one in JSON",
                "keep `json_format` where JSON is used",
            )

    def _reservations(self, path: str, reader: Reserved, writer: Reserved, used: Collection[int]) -> None:
        """What was reserved stays so: the numbers had another meaning once."""
        if self._who is not Reader.NEW:
            return
        gone = [part for part in writer.without(reader) if not (len(part) == 1 and part.start in used)]
        names = sorted(writer.names - reader.names)
        if gone or names:
            freed = [*(_range(part) for part in gone[:10]), *(repr(name) for name in names[:10])]
            put = self._add if self._additive else self._note
            put(path, "reservation-dropped", f"{', '.join(freed)} may be used again", "keep it reserved")

    def _enum_type(self, path: str, reader: Enum, writer: Enum) -> None:
        """A field of another enum reads the same where numbers have the same names."""
        other = [name for number, name in writer.names.items() if reader.names.get(number, name) != name]
        if reader.name != writer.name and other:
            self._add(
                path,
                "enum-type-changed",
                f"{writer.name} is written and {reader.name} is read, in which {other[0]} has another name",
                "add a field with the new enum, under a new number",
            )
        else:
            self._enum(path, reader, writer)

    def _enum(self, path: str, reader: Enum, writer: Enum) -> None:
        self._json_format(path, reader, writer)
        self._reservations(path, reader.reserved, writer.reserved, reader.names)
        for number, name in reader.names.items():
            if self._who is Reader.NEW and number in writer.reserved and number not in writer.names:
                sentence = f"the number {number} was reserved because it once had another meaning, and {name} uses it"
                self._add(path, "reserved-number-used", sentence, "take another number")
        if reader.closed and not writer.closed:
            self._note(path, "enum-closed", "numbers without a name are unset for the reader", "write only named ones")
        missing = [number for number in writer.names if number not in reader.names]
        for number in missing:
            self._freed(path, reader.reserved, number, writer.names[number])
        if missing:
            names = ", ".join(writer.names[number] for number in missing[:10])
            if reader.closed:
                self._add(
                    path,
                    "enum-value-missing",
                    f"{names} may be written, and for the reader the field is then unset: its enum is closed",
                    "keep the value, or use an open enum (proto3)",
                )
            elif self._takes_away:
                self._add(path, "enum-value-removed", f"{names} was removed", "keep it, or make a new version")
            else:
                self._note(
                    path, "enum-value-missing", f"{names} is read as a number without a name", "expect such numbers"
                )
        for name, number in writer.numbers.items():
            if reader.numbers.get(name, number) != number:
                self._add(
                    path,
                    "enum-number-changed",
                    f"{name} is written as {number}, and for the reader it is {reader.numbers[name]}",
                    f"keep the number {number} for {name}",
                )
            elif name not in reader.numbers and number in reader.names:
                sentence = f"{name} ({number}) is called {reader.names[number]}"
                if self._additive:
                    self._add(path, "enum-value-renamed", sentence, "keep its name")
                else:
                    self._note(path, "enum-value-renamed", sentence, "JSON has the name, so keep it where JSON is used")

    def _renamed(self, path: str, reader: Message, writer: Message, mine: Field, theirs: Field) -> None:
        """One name instead of another is a new name, unless one of them is known elsewhere: then numbers were moved."""
        sentence = f"{theirs.name!r} ({theirs.number}) is called {mine.name!r}"
        example: dict[str, object] = {theirs.name: sample(theirs.type)}
        if reader.named(theirs.name) is not None or writer.named(mine.name) is not None:
            self._add(
                path,
                "number-changed",
                f"{theirs.name!r} is written as number {theirs.number}, and the reader takes it for {mine.name!r}",
                f"keep the number {theirs.number} for {theirs.name!r}",
                example,
            )
        elif self._additive:
            self._add(path, "field-renamed", sentence, "keep its name", example)
        else:
            self._note(path, "field-renamed", sentence, "JSON has the name, so keep it where JSON is used")

    def _json_renamed(self, path: str, mine: Field, theirs: Field) -> None:
        sentence = f"in JSON {theirs.json_name!r} is called {mine.json_name!r}"
        if self._additive:
            self._add(path, "json-name-changed", sentence, "keep its `json_name`")
        else:
            self._note(path, "json-name-changed", sentence, "keep its `json_name` where JSON is used")

    def _type_changed(self, path: str, mine: Field, theirs: Field) -> None:
        self._add(
            path,
            "type-changed",
            f"{_described(theirs)} is written and {_described(mine)} is read",
            "add a field with the new type, under a new number",
            {theirs.name: sample(theirs.type)},
        )

    def _add(self, path: str, rule: str, sentence: str, way_out: str, example: object = msgspec.UNSET) -> None:
        self._put(path, rule, sentence, way_out, Weight.BREAKS, example)

    def _unjudged(self, path: str, rule: str, sentence: str, way_out: str, example: object = msgspec.UNSET) -> None:
        self._put(path, rule, sentence, way_out, Weight.UNJUDGED, example)

    def _note(self, path: str, rule: str, sentence: str, way_out: str) -> None:
        self._put(path, rule, sentence, way_out, Weight.NOTE, msgspec.UNSET)

    def _put(self, path: str, rule: str, sentence: str, way_out: str, weight: Weight, example: object) -> None:
        found = Finding(
            path=path, rule=rule, breaks=self._who, sentence=sentence, way_out=way_out, weight=weight, example=example
        )
        if found not in self.findings:
            self.findings.append(found)


def _range(numbers: range) -> str:
    return str(numbers.start) if len(numbers) == 1 else f"{numbers.start} to {numbers.stop - 1}"


def _described(field: Field) -> str:
    if field.is_map:
        return "a map"
    name = (
        field.message.name if field.message is not None else field.enum.name if field.enum is not None else field.type
    )
    return f"a list of {name}" if field.repeated else name
