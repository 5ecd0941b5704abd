"""Dataclasses and msgspec Structs, as JSON. The typed decoder is the validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from posthouse.contracts.kept import changed
from posthouse.contracts.normal import fields_of
from posthouse.contracts.payload import JSON, PayloadType, SelfExplaining, lost_number, misfit
from posthouse.contracts.payloads.formats import with_formats
from posthouse.contracts.schema import json_schema
from posthouse.errors import ConfigurationError

T = TypeVar("T")


def payload(cls: type[T]) -> PayloadType[T]:
    """The codec of a dataclass or Struct."""
    try:
        return _TypedPayload(cls)
    except TypeError as error:
        raise ConfigurationError(f"{cls.__name__} has a field that cannot travel as JSON: {error}") from error


class _TypedPayload(SelfExplaining, Generic[T]):
    content_type = JSON

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        self.plain = cls
        document = with_formats(cls, msgspec.json.schema(cls))
        self.schema = json_schema(document)
        self.fields: Sequence[str] = fields_of(document)
        self._decoder = msgspec.json.Decoder(cls)
        self._encoder = msgspec.json.Encoder()

    def encode(self, value: T) -> bytes:
        data = b""
        try:
            data = self._encoder.encode(value)
            heard = self._decoder.decode(data)
            other = changed(value, heard, self._encoder.encode(heard) == data)
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise misfit(self.cls, lost_number(data, value) or error) from error
        if lost := lost_number(data, value) or other:
            raise misfit(self.cls, lost)
        return data

    def decode(self, data: bytes) -> T:
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise misfit(self.cls, error) from error
