"""PORT  How a payload type becomes bytes and back, whichever library declared it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Protocol, TypeVar, dataclass_transform
from uuid import UUID

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
        """Bytes that are known to read back as this value, of the declared type."""
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


def not_finite(value: object, path: str = "$") -> str | None:
    """Where in a value there is a number that JSON has no word for, in words; None when there is none. Encoders write null in
    its place, and nobody would know."""
    if isinstance(value, float | Decimal):
        if isfinite(value):
            return None
        return (
            f"{value} at `{path}` is no number that JSON can say: leave it out, or make the field one that may be None"
        )
    inner: Iterable[tuple[str, object]] = ()
    if isinstance(value, Mapping):
        inner = (
            (f"{path}.{name}", one)
            for name, held in value.items()
            for one in ((name, held) if isinstance(name, float | Decimal) else (held,))
        )
    elif isinstance(value, list | tuple | set | frozenset):
        inner = ((f"{path}[{place}]", one) for place, one in enumerate(value))
    return next((found for where, one in inner if (found := not_finite(one, where))), None)


def may_lack_number(data: bytes) -> bool:
    """Whether JSON could stand for a number that it cannot say; most does not, and need not be looked through."""
    return b"null" in data or b"NaN" in data or b"nfinity" in data or b'nan"' in data or b'inf"' in data


def lost_number(data: bytes, value: object) -> str | None:
    """`not_finite` of a value that was encoded as this JSON, looked for only where the bytes let one suspect it."""
    if not may_lack_number(data):
        return None
    return not_finite(msgspec.to_builtins(value, builtin_types=(Decimal, datetime, date, time, timedelta, UUID)))


def misfit(cls: type, error: Exception | str) -> ContractError:
    """The one way in which codecs say that a value or its bytes do not fit."""
    return ContractError(f"not a valid {cls.__name__}: {error}")
