"""Protobuf files as values: what comparisons need of a compiled schema, with names and features resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    FileDescriptor,
    MethodDescriptor,
)
from google.protobuf.message import DecodeError

from posthouse.errors import SchemaError

TYPE_NAMES: dict[int, str] = {
    number: name.removeprefix("TYPE_").lower() for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}


@dataclass(frozen=True)
class Reserved:
    """Numbers and names that may not be used."""

    numbers: tuple[range, ...] = ()
    names: frozenset[str] = frozenset()

    def __contains__(self, number: int) -> bool:
        return any(number in numbers for numbers in self.numbers)

    def without(self, other: Reserved) -> list[range]:
        """The numbers that the other does not reserve."""
        left = list(self.numbers)
        for gone in other.numbers:
            left = [
                part
                for numbers in left
                for part in (
                    range(numbers.start, min(numbers.stop, gone.start)),
                    range(max(numbers.start, gone.stop), numbers.stop),
                )
                if part
            ]
        return left


@dataclass(eq=False)
class Enum:
    """`closed`: a reader does not see the numbers that it has no name for (proto2)."""

    name: str
    names: dict[int, str]
    """The first name of each number."""
    numbers: dict[str, int]
    """The number of each name; several may have one."""
    closed: bool
    reserved: Reserved
    fits_json: bool
    """Whether the compiler sees to it that no two names are one in JSON."""


@dataclass(eq=False)
class Field:
    number: int
    name: str
    type: str
    """A scalar's name, or `message`, `group`, `enum`."""
    repeated: bool
    required: bool
    presence: bool
    oneof: str | None
    message: Message | None = None
    enum: Enum | None = None
    extension: bool = False
    json_name: str = ""
    default: object = None
    """What a reader sees where it is unset, if that can be said in the schema; an enum's is a number."""
    checks_utf8: bool = False
    """Whether a text must be UTF-8 to be read."""

    @property
    def is_map(self) -> bool:
        """Whether it is a map: a repeated message that the compiler made."""
        return self.message is not None and self.message.map_entry


@dataclass(eq=False)
class Message:
    name: str
    """Without the package."""
    map_entry: bool
    reserved: Reserved
    message_set: bool
    """Written in the old encoding of message sets."""
    fits_json: bool
    """Whether the compiler sees to it that no two names are one in JSON."""
    fields: dict[int, Field] = field(default_factory=dict)

    def reserves(self, number: int) -> bool:
        """Whether the number may not be used."""
        return number in self.reserved

    def named(self, name: str) -> Field | None:
        """The field of that name."""
        return next((field for field in self.fields.values() if field.name == name), None)


@dataclass(frozen=True)
class Call:
    """A method of a service."""

    request: str
    response: str
    client_streaming: bool
    server_streaming: bool
    idempotency: str


@dataclass(eq=False)
class File:
    package: str
    syntax: str
    messages: dict[str, Message]
    """Those of this file, nested ones too, by their names without the package."""
    enums: dict[str, Enum]
    calls: dict[str, Call]
    """The methods of its services, as `Service/method`."""


def read_protobuf(compiled: bytes) -> File:
    """The last file of a serialised FileDescriptorSet; the others are what it imports, each after what it needs."""
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(compiled)
        for proto in files.file:
            pool.Add(proto)
        if not files.file:
            raise SchemaError("the set has no file")
        return _Reader().file(pool.FindFileByName(files.file[-1].name), files.file[-1])
    except (TypeError, KeyError, DecodeError) as error:
        raise SchemaError(f"the files do not fit together: {error}") from error


class _Reader:
    """Makes values of descriptors, each once: types may contain themselves."""

    def __init__(self) -> None:
        self._messages: dict[str, Message] = {}
        self._enums: dict[str, Enum] = {}

    def file(self, file: FileDescriptor, proto: descriptor_pb2.FileDescriptorProto) -> File:
        messages = list(_nested(file.message_types_by_name.values()))
        enums = [*file.enum_types_by_name.values(), *(enum for m in messages for enum in m.enum_types)]
        found = File(
            package=file.package,
            syntax="editions" if proto.edition else proto.syntax or "proto2",
            messages={_local(m): self._message(m) for m in messages if not m.GetOptions().map_entry},
            enums={_local(enum): self._enum(enum) for enum in enums},
            calls={
                f"{service.name}/{method.name}": _call(method)
                for service in file.services_by_name.values()
                for method in service.methods
            },
        )
        own = [*file.extensions_by_name.values(), *(extension for m in messages for extension in m.extensions)]
        for extension in own:
            added = self._field(extension)
            added.extension = True
            if extension.containing_type is not None:  # every extension has one; its type does not say so
                self._message(extension.containing_type).fields.setdefault(added.number, added)
        return found

    def _message(self, message: Descriptor) -> Message:
        known = self._messages.get(message.full_name)
        if known is not None:
            return known
        proto = descriptor_pb2.DescriptorProto()
        message.CopyToProto(proto)
        reserved = Reserved(
            tuple(range(part.start, part.end) for part in proto.reserved_range), frozenset(proto.reserved_name)
        )
        options = message.GetOptions()
        made = Message(
            _local(message), options.map_entry, reserved, options.message_set_wire_format, _fits_json(message)
        )
        self._messages[message.full_name] = made
        for part in message.fields:
            made.fields[part.number] = self._field(part)
        return made

    def _field(self, part: FieldDescriptor) -> Field:
        oneof = part.containing_oneof
        real = oneof is not None and not _is_synthetic(oneof.name, len(oneof.fields), part.name)
        return Field(
            number=part.number,
            name=part.full_name if part.is_extension else part.name,
            type=TYPE_NAMES[part.type],
            repeated=bool(part.is_repeated),
            required=bool(part.is_required),
            presence=part.has_presence,
            oneof=oneof.name if real and oneof is not None else None,
            message=self._message(part.message_type) if part.message_type is not None else None,
            enum=self._enum(part.enum_type) if part.enum_type is not None else None,
            json_name=part.json_name,
            default=None if part.is_repeated or part.message_type is not None else part.default_value,
            checks_utf8=_checks_utf8(part),
        )

    def _enum(self, enum: EnumDescriptor) -> Enum:
        known = self._enums.get(enum.full_name)
        if known is None:
            names = {value.number: value.name for value in reversed(enum.values)}
            numbers = {value.name: value.number for value in enum.values}
            proto = descriptor_pb2.EnumDescriptorProto()
            enum.CopyToProto(proto)
            reserved = Reserved(
                tuple(range(part.start, part.end + 1) for part in proto.reserved_range), frozenset(proto.reserved_name)
            )  # the end of an enum's range is the last of it, and that of a message's range is the next one
            known = Enum(_local(enum), names, numbers, enum.is_closed, reserved, _fits_json(enum))
            self._enums[enum.full_name] = known
        return known


def _checks_utf8(part: FieldDescriptor) -> bool:
    """The resolved feature: proto3 checks, proto2 does not, and editions say."""
    features = part._GetFeatures()  # type: ignore[attr-defined]  # not public, and no other place has it resolved
    return part.type == part.TYPE_STRING and features.utf8_validation == descriptor_pb2.FeatureSet.VERIFY


def _fits_json(thing: Descriptor | EnumDescriptor) -> bool:
    """The resolved feature: proto3 does, proto2 as well as it can, and editions say."""
    features = thing._GetFeatures()  # type: ignore[union-attr]  # not public, and no other place has it resolved
    return bool(features.json_format == descriptor_pb2.FeatureSet.ALLOW)


def _call(method: MethodDescriptor) -> Call:
    return Call(
        request=_local(method.input_type),
        response=_local(method.output_type),
        client_streaming=method.client_streaming,
        server_streaming=method.server_streaming,
        idempotency=descriptor_pb2.MethodOptions.IdempotencyLevel.Name(method.GetOptions().idempotency_level),
    )


def _is_synthetic(oneof: str, members: int, field: str) -> bool:
    """Whether the compiler made the oneof for a proto3 `optional` field."""
    return members == 1 and oneof.lstrip("X") == f"_{field}"


def _nested(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    waiting = list(messages)
    while waiting:
        message = waiting.pop()
        yield message
        waiting += message.nested_types


def _local(thing: Descriptor | EnumDescriptor) -> str:
    package = thing.file.package
    return thing.full_name.removeprefix(f"{package}.") if package else thing.full_name
