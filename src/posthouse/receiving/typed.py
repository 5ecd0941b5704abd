"""What a type checker knows about `on`: a handler takes the events that it is registered for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

from posthouse.receiving.handler import Calling
from posthouse.receiving.policy import Policy

E = TypeVar("E")
OnReplay = Literal["apply", "skip", "without_calls"]
Rest = ParamSpec("Rest")
Result = TypeVar("Result")


class ReadingOptions(TypedDict, total=False):
    """What may be said about a handler of a projection: see `Projection.on`."""

    policy: Policy | None
    reads: Sequence[str] | None


class HandlerOptions(ReadingOptions, total=False):
    """What may be said about a handler: see `Service.on`."""

    consumer: str | None
    publishes: Sequence[type[object]]
    calling: Calling | None
    replay: OnReplay | None


class Handles(Protocol[E]):
    """Takes a function whose first argument is such an event, or a list of them; what follows is up to the function."""

    @overload
    def __call__(self, function: Callable[Concatenate[E, Rest], Result]) -> Callable[Concatenate[E, Rest], Result]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[list[E], Rest], Result]
    ) -> Callable[Concatenate[list[E], Rest], Result]: ...
