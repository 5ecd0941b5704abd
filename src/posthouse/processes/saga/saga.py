"""Saga: a long-running process as a class. Its fields are its durable state, its methods what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, dataclass_transform, overload

import msgspec

from posthouse.errors import ConfigurationError

T = TypeVar("T")

WAS = "__posthouse_was__"


class Renamed(NamedTuple):
    """What `field` hands to the class that is being made."""

    was: str
    field: object


@overload
def field(*, was: str) -> Any: ...
@overload
def field(*, was: str, default: T) -> T: ...
@overload
def field(*, was: str, default_factory: Callable[[], T]) -> T: ...
def field(*, was: str, default: Any = msgspec.NODEFAULT, default_factory: Any = msgspec.NODEFAULT) -> Any:
    """A field of a saga that had another name in the release before: `score: int = field(was="points", default=0)`. It is read
    under either name and stored under both, so that both releases can run. `was` is the name as it is stored."""
    given: object = was
    if not isinstance(given, str) or not given:
        raise ConfigurationError(f"field(was={was!r}): it is the name that the field had, as in field(was='points')")
    options: dict[str, Any] = {"default": default, "default_factory": default_factory}
    return Renamed(was, msgspec.field(**options))


def renamed(cls: type[Saga]) -> Mapping[str, str]:
    """The names that fields had, by the name that each has now."""
    found: Mapping[str, str] = getattr(cls, WAS, {})
    return found


class _Keywords(msgspec.StructMeta):
    """Fields by keyword only: those with defaults may stand before those without. Notes what they were called."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _Keywords:
        options.setdefault("kw_only", True)
        was = {name: value for name, value in namespace.items() if isinstance(value, Renamed)}
        if was:
            before = {name: old for base in reversed(bases) for name, old in getattr(base, WAS, {}).items()}
            namespace |= {name: value.field for name, value in was.items()}
            namespace[WAS] = before | {name: value.was for name, value in was.items()}
        made: _Keywords = super().__new__(mcls, name, bases, namespace, **options)
        return made


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field, field))
class Saga(msgspec.Struct, metaclass=_Keywords):
    """The state of one process. Subclass it, annotate the fields, and mark the methods with `starts`, `step`, `on`, `undo`
    and `deadline`. Methods are plain or asynchronous, change the fields of `self`, and say the rest through their turn.
    Stored states are read with the class as it is now: what is added between releases needs a default, what is renamed says so
    (`field`), and what a newer release has added is kept.
    """
