"""Options of Protobuf, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def statements(options: Message, *, skip: Sequence[str] = ()) -> Iterator[str]:
    """`option name = value;` for each option that is set."""
    return (f"option {setting};" for setting in _settings(options, "", skip))


def inline(*, statements_of: Message, first: Sequence[str] = ()) -> str:
    """` [name = value, …]`, or nothing."""
    found = [*first, *_settings(statements_of, "", ())]
    return f" [{', '.join(found)}]" if found else ""


def quoted(text: str) -> str:
    """A text between quotes."""
    data = text.encode()
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:03o}" for b in data) + '"'


def _settings(options: Message, prefix: str, skip: Sequence[str]) -> Iterator[str]:
    for field, value in options.ListFields():
        if field.is_extension or field.name in skip:
            continue
        name = f"{prefix}{field.name}"
        if field.is_repeated:
            yield from (f"{name} = {_value(field, item)}" for item in value)
        elif isinstance(value, Message):
            yield from _settings(value, f"{name}.", ())
        else:
            yield f"{name} = {_value(field, value)}"


def _value(field: FieldDescriptor, value: object) -> str:
    if isinstance(value, Message):
        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if field.enum_type is not None and isinstance(value, int):
        return str(field.enum_type.values_by_number[value].name)
    return quoted(value) if isinstance(value, str) else str(value)
