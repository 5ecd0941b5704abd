"""Message classes that protobuf's compiler made, in their own encoding. Unknown fields are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from posthouse.contracts.payload import PayloadType, SelfExplaining, misfit
from posthouse.contracts.payloads.proto_text import proto_text
from posthouse.contracts.schema import Schema
from posthouse.errors import ConfigurationError

T = TypeVar("T")


def payload(cls: type[T]) -> PayloadType[T]:
    """The codec of a message class."""
    if not issubclass(cls, Message):
        raise ConfigurationError(f"{cls.__name__} has a DESCRIPTOR, but is no protobuf message class")
    return cast("PayloadType[T]", _ProtobufPayload(cls))


M = TypeVar("M", bound=Message)


class _ProtobufPayload(SelfExplaining, Generic[M]):
    content_type = "application/protobuf"
    plain = None

    def __init__(self, cls: type[M]) -> None:
        self.cls = cls
        descriptor = cast("Descriptor", cls.DESCRIPTOR)
        self.schema = Schema("protobuf", proto_text(descriptor))
        self.fields: Sequence[str] = tuple(field.name for field in descriptor.fields)

    def encode(self, value: M) -> bytes:
        """Setting a field checks its type; what is left to go wrong is a required field that was never set, and more levels
        than a reader takes."""
        try:
            data = value.SerializeToString(deterministic=True)
        except (EncodeError, ValueError) as error:
            raise misfit(self.cls, error if value.IsInitialized() else f"it lacks {_missing(value)}") from error
        heard = self.decode(data)
        if heard != value and heard.SerializeToString(deterministic=True) != data:  # NaN is not equal to itself
            raise misfit(self.cls, "readers would hear another one")
        return data

    def decode(self, data: bytes) -> M:
        made = self.cls()
        try:
            made.ParseFromString(data)
        except (DecodeError, ValueError, RecursionError) as error:
            raise misfit(self.cls, error) from error
        if not made.IsInitialized():
            raise misfit(self.cls, f"it lacks {_missing(made)}")
        return made


def _missing(message: Message) -> str:
    """Required fields that are not set; the stubs of protobuf do not know this method."""
    return ", ".join(cast("list[str]", message.FindInitializationErrors()))  # type: ignore[attr-defined]
