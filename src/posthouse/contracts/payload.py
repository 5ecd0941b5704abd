"""How a payload type becomes bytes and back, whichever library declared it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, dataclass_transform

import msgspec

from posthouse.errors import ConfigurationError, ContractError

T = TypeVar("T")

_PROSE = frozenset(("title", "description", "examples", "$comment"))


@dataclass_transform(frozen_default=True)
class Payload(msgspec.Struct, frozen=True):
    """The shortest way to declare a payload that type checkers understand: subclass it and annotate the fields.
    Dataclasses, msgspec Structs, pydantic models and plain annotated classes do as well."""


class PayloadType(Protocol[T]):
    """A payload type with its codec. Both directions raise ContractError, which names the field and what is wrong."""

    cls: type[T]
    schema: dict[str, object]

    def encode(self, value: T) -> bytes:
        """JSON bytes that are known to read back as the declared type."""
        ...

    def decode(self, data: bytes) -> T:
        """The typed value. Unknown fields are ignored, so that a producer may add some."""
        ...


class _MsgspecPayload(Generic[T]):
    """Dataclasses and msgspec Structs."""

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        self.schema: dict[str, object] = msgspec.json.schema(cls)
        self._decoder = msgspec.json.Decoder(cls)
        self._encoder = msgspec.json.Encoder()

    def encode(self, value: T) -> bytes:
        try:
            data = self._encoder.encode(value)
            self._decoder.decode(data)
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise _misfit(self.cls, error) from error
        return data

    def decode(self, data: bytes) -> T:
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise _misfit(self.cls, error) from error


class _PydanticPayload(Generic[T]):
    """pydantic models; the library is reached through the model itself."""

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        self._load: Callable[[bytes], T] = cls.model_validate_json  # type: ignore[attr-defined]
        self._dump: Callable[[T], str] = cls.model_dump_json  # type: ignore[attr-defined]
        self.schema: dict[str, object] = cls.model_json_schema()  # type: ignore[attr-defined]

    def encode(self, value: T) -> bytes:
        try:
            data = self._dump(value).encode()
            self._load(data)
        except ValueError as error:
            raise _misfit(self.cls, error) from error
        return data

    def decode(self, data: bytes) -> T:
        try:
            return self._load(data)
        except ValueError as error:
            raise _misfit(self.cls, error) from error


def payload_of(cls: type[T]) -> PayloadType[T]:
    """The codec for a dataclass, msgspec Struct or pydantic model; ConfigurationError for anything else."""
    if hasattr(cls, "model_validate_json"):
        return _PydanticPayload(cls)
    if not dataclasses.is_dataclass(cls) and not issubclass(cls, msgspec.Struct):
        raise ConfigurationError(
            f"{cls.__name__} is not a payload: declare it with @service.event, as a dataclass, msgspec Struct or pydantic model"
        )
    try:
        return _MsgspecPayload(cls)
    except TypeError as error:
        raise ConfigurationError(f"{cls.__name__} has a field that cannot travel as JSON: {error}") from error


def as_payload_class(cls: type[T]) -> type[T]:
    """The class itself if a library made it a payload already, otherwise a frozen dataclass of its annotations."""
    if hasattr(cls, "model_validate_json") or dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct):
        return cls
    return dataclasses.dataclass(frozen=True)(cls)


def schema_hash(schema: dict[str, object]) -> str:
    """`sha256-…` of the schema's meaning: key order and prose do not count."""
    text = json.dumps(_without_prose(schema), sort_keys=True, separators=(",", ":"))
    return "sha256-" + hashlib.sha256(text.encode()).hexdigest()


def _without_prose(node: object, *, names: bool = False) -> object:
    """`names` is True where keys are the user's own names, such as a property that is called title."""
    if isinstance(node, dict):
        kept = ((k, v) for k, v in node.items() if names or k not in _PROSE)
        return {k: _without_prose(v, names=not names and k in ("properties", "$defs")) for k, v in kept}
    if isinstance(node, list):
        return [_without_prose(item) for item in node]
    return node


def _misfit(cls: type, error: Exception) -> ContractError:
    return ContractError(f"not a valid {cls.__name__}: {error}")
