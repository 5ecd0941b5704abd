"""ProtobufFormat: Protobuf files in the registry, as text or as the base64 of a FileDescriptorProto.

Confluent's clients send either: Java the text, Python the base64. Both are the same schema when they say the same.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from posthouse.governance.evolution import Mode, Verdict
from posthouse.governance.evolution.protobuf import compare
from posthouse.governance.evolution.protobuf_types import read_protobuf
from posthouse.governance.local.protoc import MAIN, compiled, compiled_imports
from posthouse.governance.registry.format import Import, Reading
from posthouse.governance.registry.formats.protobuf_text import written

SERIALIZED = "serialized"
"""The style in which Python's client wants schemas."""


class ProtobufFormat:
    """Compiled: a FileDescriptorSet of the imports and, last, the schema."""

    name = "PROTOBUF"

    def read(self, text: str, imports: Sequence[Import]) -> Reading:
        known = {item.name: item.text for item in imports}
        given = _descriptor(text)
        files = FileDescriptorSet.FromString(compiled(text, known)) if given is None else _with_imports(given, known)
        main = _plain(files.file[-1])
        read_protobuf(files.SerializeToString())
        normal = _sorted(main)
        return Reading(
            text=text if given is None else written(main),
            canonical=_identity(main),
            normal_text=written(normal),
            normal=_identity(normal),
            compiled=files.SerializeToString(),
        )

    def compare(self, old: bytes, new: bytes, mode: Mode) -> Verdict:
        return compare(old, new, mode)

    def shown(self, text: str, compiled: bytes, style: str) -> str:
        if style != SERIALIZED:
            return text
        main = FileDescriptorSet.FromString(compiled).file[-1]
        main.name = "default" if main.name == MAIN else main.name
        return base64.b64encode(main.SerializeToString(deterministic=True)).decode()


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor whose base64 the text is; None for a text in the language itself."""
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    found.name = MAIN
    return found


def _with_imports(main: FileDescriptorProto, known: Mapping[str, str]) -> FileDescriptorSet:
    files = FileDescriptorSet()
    if main.dependency:
        files.ParseFromString(compiled_imports(known, list(main.dependency)))
        del files.file[-1]
    files.file.append(main)
    return files


def _plain(file: FileDescriptorProto) -> FileDescriptorProto:
    """Without what says nothing about the data: the file's own name, positions in the text, names that are the default."""
    plain = FileDescriptorProto()
    plain.CopyFrom(file)
    plain.ClearField("name")
    plain.ClearField("source_code_info")
    if plain.syntax == "proto2":
        plain.ClearField("syntax")
    for extension in plain.extension:
        extension.ClearField("json_name")
    for message in _messages(list(plain.message_type)):
        for field in [*message.field, *message.extension]:
            if field.json_name == _json_name(field.name):
                field.ClearField("json_name")
    return plain


def _messages(waiting: list[DescriptorProto]) -> list[DescriptorProto]:
    found: list[DescriptorProto] = []
    while waiting:
        message = waiting.pop()
        found.append(message)
        waiting += message.nested_type
    return found


def _json_name(name: str) -> str:
    """As the compiler makes it: each underscore goes, and the letter after it becomes a capital."""
    head, *tail = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in tail)


def _sorted(file: FileDescriptorProto) -> FileDescriptorProto:
    """The same with everything in order whose order says nothing. Messages keep theirs: their places are on the wire."""
    normal = FileDescriptorProto()
    normal.CopyFrom(file)
    if not normal.public_dependency and not normal.weak_dependency:
        normal.dependency.sort()
    for message in _messages(list(normal.message_type)):
        message.field.sort(key=lambda field: (field.HasField("oneof_index"), field.oneof_index, field.number))
        message.reserved_name.sort()
        message.reserved_range.sort(key=lambda part: part.start)
    return normal


def _identity(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()
