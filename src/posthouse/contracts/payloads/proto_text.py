"""A protobuf message as `.proto` text in one spelling: itself first, then what it needs, sorted, with full names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from posthouse.errors import ConfigurationError

Type = FieldDescriptorProto.Type
_SCALARS: Mapping[int, str] = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_WELL_KNOWN = "google/protobuf/"


def proto_text(descriptor: Descriptor) -> str:
    """The text. Raises ConfigurationError for what it cannot say: editions, groups, extensions, and types of other files
    than google.protobuf's own."""
    file = FileDescriptorProto()
    descriptor.file.CopyToProto(file)
    if file.syntax not in ("", "proto2", "proto3"):
        raise ConfigurationError(f"{file.name} is written in {file.syntax}: only proto2 and proto3 are read")
    if descriptor.containing_type is not None:
        raise ConfigurationError(
            f"{descriptor.full_name} lies inside another message: an event is a message of its own"
        )
    return _File(file, _defined_elsewhere(descriptor)).text(descriptor.name)


class _File:
    def __init__(self, file: FileDescriptorProto, elsewhere: Mapping[str, str]) -> None:
        self._file = file
        self._elsewhere = elsewhere
        self._prefix = f".{file.package}." if file.package else "."
        self._proto3 = file.syntax == "proto3"
        self._tops: dict[str, DescriptorProto | EnumDescriptorProto] = {
            **{message.name: message for message in file.message_type},
            **{enum.name: enum for enum in file.enum_type},
        }

    def text(self, root: str) -> str:
        needed = self._needed(root)
        head = [f'syntax = "{self._file.syntax or "proto2"}";']
        head += [f"package {self._file.package};"] if self._file.package else []
        head += [f'import "{name}";' for name in self._imports(needed)]
        blocks = [self._top(self._tops[name]) for name in (root, *sorted(needed - {root}))]
        return "\n\n".join(["\n".join(head), *("\n".join(block) for block in blocks)]) + "\n"

    def _needed(self, root: str) -> set[str]:
        """The messages and enums of the file that can be reached."""
        found, waiting = {root}, [root]
        while waiting:
            top = self._tops[waiting.pop()]
            names = {self._top_of(name) for name in _types_in(top)} if isinstance(top, DescriptorProto) else set()
            new = {name for name in names if name is not None} - found
            found |= new
            waiting += new
        return found

    def _top_of(self, type_name: str) -> str | None:
        """The top-level type of this file that a full name lies in."""
        if not type_name.startswith(self._prefix):
            return None
        name = type_name.removeprefix(self._prefix).partition(".")[0]
        return name if name in self._tops else None

    def _imports(self, needed: set[str]) -> list[str]:
        foreign = {
            name
            for top in needed
            if isinstance(message := self._tops[top], DescriptorProto)
            for name in _types_in(message)
            if self._top_of(name) is None
        }
        others = sorted(name for name in foreign if not self._elsewhere.get(name, "").startswith(_WELL_KNOWN))
        if others:
            raise ConfigurationError(
                f"{self._file.name} uses {', '.join(others)} of another file: an event and its types belong in one file "
                "(google.protobuf's own are fine)"
            )
        return sorted({self._elsewhere[name] for name in foreign})

    def _top(self, top: DescriptorProto | EnumDescriptorProto) -> list[str]:
        return list(self._message(top) if isinstance(top, DescriptorProto) else _enum(top))

    def _message(self, message: DescriptorProto) -> Iterator[str]:
        if message.extension_range or message.extension:
            raise ConfigurationError(f"{message.name} has extensions, which have no place in an event's schema")
        yield f"message {message.name} {{"
        for line in self._inside(message):
            yield f"  {line}"
        yield "}"

    def _inside(self, message: DescriptorProto) -> Iterator[str]:
        yield from _reserved(message)
        for enum in sorted(message.enum_type, key=lambda enum: enum.name):
            yield from _enum(enum)
        entries = {inner.name: inner for inner in message.nested_type if inner.options.map_entry}
        for inner in sorted(message.nested_type, key=lambda inner: inner.name):
            if inner.name not in entries:
                yield from self._message(inner)
        ordered = sorted(message.field, key=lambda field: field.number)
        choices: dict[int, list[FieldDescriptorProto]] = {}
        for field in ordered:
            if _is_choice(field):
                choices.setdefault(field.oneof_index, []).append(field)
        for field in ordered:
            if not _is_choice(field):
                yield self._field(field, entries)
            elif field is choices[field.oneof_index][0]:
                yield f"oneof {message.oneof_decl[field.oneof_index].name} {{"
                yield from (f"  {self._field(each, entries)}" for each in choices[field.oneof_index])
                yield "}"

    def _field(self, field: FieldDescriptorProto, entries: Mapping[str, DescriptorProto]) -> str:
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.label == field.LABEL_REPEATED else None
        if entry is not None:
            key, value = (_type_name(inner) for inner in sorted(entry.field, key=lambda inner: inner.number))
            return f"map<{key}, {value}> {field.name} = {field.number};"
        return f"{self._label(field)}{_type_name(field)} {field.name} = {field.number}{self._options(field)};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == field.LABEL_REPEATED:
            return "repeated "
        if _is_choice(field):
            return ""
        if self._proto3:
            return "optional " if field.proto3_optional else ""
        return "required " if field.label == field.LABEL_REQUIRED else "optional "

    def _options(self, field: FieldDescriptorProto) -> str:
        said = [f"default = {_default(field)}"] if field.HasField("default_value") else []
        said += [f"packed = {str(field.options.packed).lower()}"] if field.options.HasField("packed") else []
        return f" [{', '.join(said)}]" if said else ""


def _defined_elsewhere(descriptor: Descriptor) -> dict[str, str]:
    """The files that are imported, by the full names of their types."""
    return {
        f".{kind.full_name}": file.name
        for file in descriptor.file.dependencies
        for kind in (*file.message_types_by_name.values(), *file.enum_types_by_name.values())
    }


def _types_in(message: DescriptorProto) -> Iterator[str]:
    for field in message.field:
        if field.type_name:
            yield field.type_name
    for inner in message.nested_type:
        yield from _types_in(inner)


def _is_choice(field: FieldDescriptorProto) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _type_name(field: FieldDescriptorProto) -> str:
    if field.type == field.TYPE_GROUP:
        raise ConfigurationError(
            f"{field.name} is a group, which proto3 and other languages do not know: use a message"
        )
    return field.type_name or _SCALARS[field.type]


def _default(field: FieldDescriptorProto) -> str:
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        escaped = field.default_value.replace("\\", "\\\\") if field.type == field.TYPE_STRING else field.default_value
        return '"' + escaped.replace('"', '\\"').replace("\n", "\\n") + '"'
    return field.default_value


def _enum(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    if enum.options.allow_alias:
        yield "  option allow_alias = true;"
    for first, last in sorted((span.start, span.end) for span in enum.reserved_range):
        yield f"  reserved {_span(first, last)};"
    if enum.reserved_name:
        yield f"  reserved {_names(enum.reserved_name)};"
    for value in enum.value:
        yield f"  {value.name} = {value.number};"
    yield "}"


def _reserved(message: DescriptorProto) -> Iterator[str]:
    for first, end in sorted((span.start, span.end) for span in message.reserved_range):
        yield f"reserved {_span(first, end - 1)};"
    if message.reserved_name:
        yield f"reserved {_names(message.reserved_name)};"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _names(names: object) -> str:
    return ", ".join(f'"{name}"' for name in sorted(map(str, names)))  # type: ignore[call-overload]  # repeated strings
