"""The payload types that are known, each with its codec."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Protocol, TypeVar, cast

import msgspec

from posthouse.contracts.avro import MARK as AVRO
from posthouse.contracts.payload import PayloadType
from posthouse.errors import ConfigurationError

__all__ = ["as_payload_class", "payload_of"]

T = TypeVar("T")

MARKS = {
    AVRO: ("avro", "avro"),
    "DESCRIPTOR": ("protobuf", "protobuf"),
    "model_validate_json": ("pydantic", "pydantic"),
}
"""By an attribute of the class: the module of its codec, and the extra that brings its library."""


class _Opener(Protocol):
    def __call__(self, cls: type[T]) -> PayloadType[T]: ...


def payload_of(cls: type[T]) -> PayloadType[T]:
    """The codec of a payload class; ConfigurationError for anything else."""
    mark = _mark(cls)
    module, extra = ("typed", "") if mark is None else MARKS[mark]
    if mark in (None, AVRO) and not _is_typed(cls):
        raise ConfigurationError(
            f"{cls.__name__} is not a payload: declare it with @service.event, as a dataclass, msgspec Struct or pydantic model"
        )
    try:
        opened = cast("_Opener", import_module(f"posthouse.contracts.payloads.{module}").payload)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{cls.__name__} needs the package {error.name}: pip install 'posthouse[{extra}]'"
        ) from error
    return opened(cls)


def as_payload_class(cls: type[T]) -> type[T]:
    """The class itself if a library made it a payload already, otherwise a frozen dataclass of its annotations."""
    if _is_typed(cls) or _mark(cls) not in (None, AVRO):
        return cls
    return dataclasses.dataclass(frozen=True)(cls)


def _mark(cls: type) -> str | None:
    found = [mark for mark in MARKS if hasattr(cls, mark)]
    if AVRO in found[:-1]:
        raise ConfigurationError(f"{cls.__name__}: @avro is for dataclasses and msgspec Structs")
    return found[0] if found else None


def _is_typed(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct)
