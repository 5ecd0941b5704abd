"""PORT  How a payload type becomes bytes and back, whichever library declared it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar, dataclass_transform

import msgspec

from posthouse.contracts.schema import Schema
from posthouse.errors import ContractError

T = TypeVar("T")

JSON = "application/json"


@dataclass_transform(frozen_default=True)
class Payload(msgspec.Struct, frozen=True):
    """The shortest way to declare a payload that type checkers understand: subclass it and annotate the fields.
    Dataclasses, msgspec Structs, pydantic models and plain annotated classes do as well."""


class PayloadType(Protocol[T]):
    """A payload type with its codec. Both directions raise ContractError, which names the field and what is wrong."""

    cls: type[T]
    schema: Schema
    content_type: str
    """What the envelope says about the bytes."""
    fields: Sequence[str]
    """The names of the payload's own fields, as they travel."""

    @property
    def plain(self) -> type[T] | None:
        """The class, where msgspec reads JSON as that class just as `decode` does: then a payload can be read together with
        what is around it."""
        ...

    def encode(self, value: T) -> bytes:
        """Bytes that are known to read back as the declared type."""
        ...

    def decode(self, data: bytes) -> T:
        """The typed value. Unknown fields are ignored, so that a producer may add some."""
        ...

    def learn(self, writers: Iterable[str]) -> None:
        """Take note of schemas that other writers of this type use, or used. Only an encoding whose bytes cannot be read
        without them has a use for it."""
        ...


class SelfExplaining:
    """What encodings have in common whose bytes can be read without the writer's schema."""

    def learn(self, writers: Iterable[str]) -> None:
        """Nothing to learn."""


def misfit(cls: type, error: Exception | str) -> ContractError:
    """The one way in which codecs say that a value or its bytes do not fit."""
    return ContractError(f"not a valid {cls.__name__}: {error}")
