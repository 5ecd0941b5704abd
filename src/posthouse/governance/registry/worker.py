"""A process that reads and compares schemas for a registry: `python -m posthouse.governance.registry.worker`.

Tasks come in on the standard input and answers go out on the standard output, each with its length before it. The process
ends with its input, and may be killed at any time.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from typing import BinaryIO

import msgspec

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode
from posthouse.governance.registry.comparing import Known, complaints
from posthouse.governance.registry.format import Format, Import, Reading
from posthouse.governance.registry.formats import known_formats

LENGTH = 4
"""Bytes that say how long a frame is."""


class Read(msgspec.Struct, frozen=True, tag=True, tag_field="task"):
    """Understand a schema."""

    type: str
    text: str
    imports: tuple[Import, ...]


class Compare(msgspec.Struct, frozen=True, tag=True, tag_field="task"):
    """Hold a schema against those of the past."""

    past: tuple[Known, ...]
    new: Known
    level: Mode


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a task; `refused` says why a schema is none."""

    reading: Reading | None = None
    complaints: tuple[str, ...] = ()
    refused: str | None = None


Task = Read | Compare


def framed(value: Task | Answer) -> bytes:
    """As it travels."""
    data = msgspec.msgpack.encode(value)
    return len(data).to_bytes(LENGTH, "big") + data


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the registry ends it, also when a person interrupts both
    formats = known_formats()
    while data := _frame(sys.stdin.buffer):
        task = msgspec.msgpack.decode(data, type=Task)
        sys.stdout.buffer.write(framed(_answer(formats, task)))
        sys.stdout.buffer.flush()


def _frame(source: BinaryIO) -> bytes:
    return source.read(int.from_bytes(source.read(LENGTH), "big"))


def _answer(formats: Mapping[str, Format], task: Task) -> Answer:
    try:
        if isinstance(task, Read):
            return Answer(reading=formats[task.type].read(task.text, task.imports))
        return Answer(complaints=tuple(complaints(formats, task.past, task.new, task.level)))
    except SchemaError as error:
        return Answer(refused=str(error))
    except RecursionError:
        return Answer(refused="the schema is nested too deep")


if __name__ == "__main__":
    main()
