"""A FileDescriptorProto as text in Protobuf's own language, for clients that want one where another sent a descriptor.

Custom options are left out: a descriptor has only their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from posthouse.governance.registry.formats.protobuf_options import inline, quoted, statements

MAX_NUMBER, MAX_ENUM = 2**29, 2**31 - 1
SCALARS = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}
LABELS = {
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
}


def written(file: FileDescriptorProto) -> str:
    """The text. Compiled again it gives the same descriptor, but for custom options."""
    return "\n".join(_Writer(file).lines()) + "\n"


class _Writer:
    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._proto2 = not file.edition and file.syntax in ("", "proto2")

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.edition:
            yield f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        for number, name in enumerate(file.dependency):
            word = "public " if number in file.public_dependency else "weak " if number in file.weak_dependency else ""
            yield f"import {word}{quoted(name)};"
        yield from statements(file.options)
        for message in file.message_type:
            yield from self._message(message)
        for enum in file.enum_type:
            yield from _enum(enum)
        yield from self._extensions(file.extension, [])
        for service in file.service:
            yield from _service(service)

    def _message(self, message: DescriptorProto) -> Iterator[str]:
        yield f"message {message.name} {{"
        yield from _indented(self._inside(message))
        yield "}"

    def _inside(self, message: DescriptorProto) -> Iterator[str]:
        yield from statements(message.options, skip=("map_entry",))
        yield from _reserved(
            message.reserved_range, message.reserved_name, MAX_NUMBER, edition=bool(self._file.edition)
        )
        for part in message.extension_range:
            options = inline(statements_of=part.options)
            yield f"extensions {_span(part.start, part.end - 1, MAX_NUMBER - 1)}{options};"
        done: set[int] = set()
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                if field.oneof_index not in done:
                    done.add(field.oneof_index)
                    yield from self._oneof(message, field.oneof_index)
            else:
                yield from self._field(field, message.nested_type, label=True)
        hidden = self._made_for_fields(message)
        for nested in message.nested_type:
            if nested.name not in hidden:
                yield from self._message(nested)
        for enum in message.enum_type:
            yield from _enum(enum)
        yield from self._extensions(message.extension, message.nested_type)

    def _made_for_fields(self, message: DescriptorProto) -> set[str]:
        """Nested messages that the compiler makes for maps and groups."""
        maps = {nested.name for nested in message.nested_type if nested.options.map_entry}
        fields = [*message.field, *message.extension]
        return maps | {_short(f.type_name) for f in fields if f.type == FieldDescriptorProto.TYPE_GROUP}

    def _oneof(self, message: DescriptorProto, index: int) -> Iterator[str]:
        oneof = message.oneof_decl[index]
        yield f"oneof {oneof.name} {{"
        yield from _indented(statements(oneof.options))
        for field in message.field:
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield from _indented(self._field(field, message.nested_type, label=False))
        yield "}"

    def _field(self, field: FieldDescriptorProto, nested: Sequence[DescriptorProto], *, label: bool) -> Iterator[str]:
        entry = next((m for m in nested if m.options.map_entry and _short(field.type_name) == m.name), None)
        is_map = entry is not None and field.label == FieldDescriptorProto.LABEL_REPEATED
        options = inline(statements_of=field.options, first=_own_options(field))
        if entry is not None and is_map:
            key, value = entry.field
            yield f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{options};"
        elif field.type == FieldDescriptorProto.TYPE_GROUP:
            group = next(m for m in nested if m.name == _short(field.type_name))
            yield f"{self._label(field, label)}group {group.name} = {field.number}{options} {{"
            yield from _indented(self._inside(group))
            yield "}"
        else:
            yield f"{self._label(field, label)}{_type(field)} {field.name} = {field.number}{options};"

    def _label(self, field: FieldDescriptorProto, wanted: bool) -> str:
        if not wanted:
            return ""
        single = field.label == FieldDescriptorProto.LABEL_OPTIONAL
        return "" if single and not self._proto2 and not field.proto3_optional else LABELS[field.label]

    def _extensions(
        self, extensions: Sequence[FieldDescriptorProto], nested: Sequence[DescriptorProto]
    ) -> Iterator[str]:
        for extension in extensions:
            yield f"extend {extension.extendee} {{"
            around = nested or self._file.message_type
            yield from _indented(self._field(extension, around, label=True))
            yield "}"


def _own_options(field: FieldDescriptorProto) -> list[str]:
    """What stands among the options and is none."""
    own: list[str] = []
    if field.HasField("default_value"):
        text = field.default_value
        if field.type == FieldDescriptorProto.TYPE_STRING:
            text = quoted(text)
        elif field.type == FieldDescriptorProto.TYPE_BYTES:
            text = f'"{text}"'  # a descriptor has it escaped already
        own.append(f"default = {text}")
    if field.HasField("json_name"):
        own.append(f"json_name = {quoted(field.json_name)}")
    return own


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or SCALARS[field.type]


def _enum(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from _indented(statements(enum.options))
    for value in enum.value:
        yield f"  {value.name} = {value.number}{inline(statements_of=value.options)};"
    for part in enum.reserved_range:
        yield f"  reserved {_span(part.start, part.end, MAX_ENUM)};"
    yield from _indented(_names(enum.reserved_name))
    yield "}"


def _service(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    yield from _indented(statements(service.options))
    for method in service.method:
        yield from _indented(_method(method))
    yield "}"


def _method(method: MethodDescriptorProto) -> Iterator[str]:
    takes = f"{'stream ' * method.client_streaming}{method.input_type}"
    gives = f"{'stream ' * method.server_streaming}{method.output_type}"
    options = list(statements(method.options))
    yield f"rpc {method.name} ({takes}) returns ({gives}){' {' if options else ';'}"
    if options:
        yield from _indented(iter(options))
        yield "}"


def _reserved(
    ranges: Sequence[DescriptorProto.ReservedRange], names: Sequence[str], most: int, *, edition: bool
) -> Iterator[str]:
    for part in ranges:
        yield f"reserved {_span(part.start, part.end - 1, most - 1)};"
    yield from (f"reserved {name};" for name in names) if edition else _names(names)


def _names(names: Sequence[str]) -> Iterator[str]:
    yield from (f"reserved {quoted(name)};" for name in names)


def _span(first: int, last: int, most: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last == most else last}"


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
