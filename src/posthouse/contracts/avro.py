"""`@avro`: let a payload class travel as Avro instead of JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, overload

T = TypeVar("T")

MARK = "__posthouse_avro__"
GENERATED: Mapping[str, object] = {}
"""Stands for a schema that is made from the class."""


@overload
def avro(cls: type[T], /) -> type[T]: ...
@overload
def avro(*, schema: str | Mapping[str, object]) -> Callable[[type[T]], type[T]]: ...


def avro(
    cls: type[T] | None = None, /, *, schema: str | Mapping[str, object] = GENERATED
) -> type[T] | Callable[[type[T]], type[T]]:
    """Put it below `@service.event`. The Avro schema is made from the fields, or given as a mapping or as JSON text; its
    records, fields and logical types must then fit the class.

    Bytes are in Avro's single-object encoding: a fingerprint tells the writer's schema. Readers know their own; the
    others come from the frozen schemas, so give such services `schemas=…`. Needs `posthouse[avro]`.
    """

    def marked(cls: type[T]) -> type[T]:
        setattr(cls, MARK, schema)
        return cls

    return marked if cls is None else marked(cls)
