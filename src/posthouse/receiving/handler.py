"""Handler: a user's function, what it wants to be given, and how it is run within its deadline."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

from posthouse.contracts import EventType, is_event_class
from posthouse.contracts.versions import Cast
from posthouse.errors import ConfigurationError
from posthouse.events import Event
from posthouse.receiving.policy import Policy
from posthouse.receiving.uses import Uses
from posthouse.seam import Seam
from posthouse.seam.current import Current, during
from posthouse.seam.handling import call_async, call_plain
from posthouse.sending import Tx
from posthouse.store import Store, Transaction

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,98}[A-Za-z0-9])?")

Answer = tuple[object, ...]
"""What the outside answered, alone; empty where nobody was asked."""


Calling = Callable[[Event[Any]], object]
"""A function that asks the outside world something about an event; what it returns, or awaits to, is the answer."""


class Call(NamedTuple):
    """One call of a handler: the transaction it may speak in, its event or list of events, and the answer it waits for."""

    tx: Tx
    argument: object
    answer: Answer
    current: Current
    """On whose behalf it runs."""


@dataclasses.dataclass(frozen=True)
class Handler:
    """One function of one consumer. `shape` is the type of its second argument, None when it takes only the event;
    `many` means that its first argument is a list of events. `calling` is asked before its transaction begins."""

    name: str
    function: Callable[..., object]
    event_types: Sequence[EventType[object]]
    policy: Policy
    shape: type | None
    many: bool
    threaded: bool
    uses: Uses
    lifts: Mapping[str, Sequence[Cast]] = dataclasses.field(default_factory=dict, compare=False)
    """Subjects of older versions that it is also given, each with the casts that lift it."""
    calling: Callable[[Any], object] | None = None
    preparing: Callable[[Event[object], Tx], Awaitable[object]] | None = None
    """Run before the call, in a transaction of its own: what it returns is given to `calling` instead of the event; None:
    there is nothing to call, and the answer is None."""

    replay: str | None = None
    """What becomes of it when events are applied once more: "apply", "skip", "without_calls"; None: its author did not say."""

    waits: bool = False
    """Whether events wait here for more than their turn, and run later under a name of their own."""
    policy_for: Callable[[Event[Any]], Policy] | None = None
    """Where events of one subject are answered differently: by the event, whose data may be raw still."""

    def answers(self, event: object) -> Policy:
        """How failures with an event are answered."""
        return self.policy_for(event) if self.policy_for is not None and isinstance(event, Event) else self.policy

    async def ask(self, seam: Seam, about: object) -> Answer:
        """Call outside, while no transaction is open. It may be called again for the same event, after a failure or a
        crash. DeadlineExceeded comes on time, as in `run`."""
        if self.calling is None:
            return ()
        work, deadline, name = (
            partial(cast("Callable[[object], object]", self.calling), about),
            self.policy.deadline,
            f"{self.name} (calling)",
        )
        if inspect.iscoroutinefunction(self.calling):
            return (await call_async(seam, cast("Awaitable[object]", work()), deadline, name),)
        return (await call_plain(seam, work, deadline, name),)

    @cached_property
    def by_name(self) -> Mapping[str, EventType[object]]:
        """Its event types by their subjects."""
        return {event_type.name: event_type for event_type in self.event_types}

    @property
    def view(self) -> type | None:
        """What the store must make of the transaction; None where it is wrapped in a Tx, or not given at all."""
        return None if self.shape is Tx else self.shape

    @property
    def most_at_once(self) -> int:
        """How many events may be executed in one transaction."""
        return self.policy.group_size if self.policy.grouped or self.many else 1

    def problems(self, store: Store) -> Sequence[str]:
        """Why it could not run on this store."""
        refusal = None if self.view is None else store.refusal(self.view, plain=self.threaded)
        return [] if refusal is None else [f"{self.name}: {refusal}"]

    async def run(self, seam: Seam, store: Store, transaction: Transaction, calls: Sequence[Call]) -> Sequence[object]:
        """Call the function for each, one after the other, inside an open transaction; what it returned each time.

        DeadlineExceeded comes on time, even if the function does not listen: it is left alone with a transaction that
        is closed to it. The deadline is for all calls together.
        """
        deadline, name = self.answers(calls[0].argument).deadline, self.name
        if self.threaded:
            work = partial(self._call_plain, store, transaction, calls)
            results = await call_plain(seam, work, deadline, name, transaction.submit)
        else:
            results = await call_async(seam, self._call_async(store, transaction, calls), deadline, name)
        return cast("Sequence[object]", results)

    def _call_plain(self, store: Store, transaction: Transaction, calls: Sequence[Call]) -> Sequence[object]:
        if self.shape is None:
            return [self._called(call) for call in calls]
        with store.view(transaction, self.shape) as theirs:
            return [self._called(call, theirs, *call.answer) for call in calls]

    def _called(self, call: Call, *more: object) -> object:
        with during(call.current):
            return self.function(call.argument, *more)

    async def _call_async(self, store: Store, transaction: Transaction, calls: Sequence[Call]) -> Sequence[object]:
        if self.shape is None:
            return [await self._awaited(call) for call in calls]
        if self.shape is Tx:
            return [await self._call_with_tx(call, last=call is calls[-1]) for call in calls]
        with store.view(transaction, self.shape) as theirs:
            return [await self._awaited(call, theirs, *call.answer) for call in calls]

    async def _awaited(self, call: Call, *more: object) -> object:
        function = cast("Callable[..., Awaitable[object]]", self.function)
        with during(call.current):
            return await function(call.argument, *more)

    async def _call_with_tx(self, call: Call, *, last: bool) -> object:
        """The next of a group finds all that this one did, as if it had a transaction of its own: statements, streams and
        sagas are written at once, timers before it begins."""
        result = await self._awaited(call, call.tx, *call.answer)
        if not last:
            await call.tx.flush_timers()
        return result


def handler_of(
    function: Callable[..., object],
    event_types: Sequence[EventType[object]],
    policy: Policy,
    uses: Uses,
    calling: Calling | None = None,
    replay: str | None = None,
) -> Handler:
    """Read what a function wants, and what it says, from its signature."""
    name = name_of(function)
    parameters = list(inspect.signature(function).parameters.values())
    if any(
        parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    ):
        raise ConfigurationError(
            f"{name} is called with its arguments by place: leave `*` and `**` out of its signature"
        )
    if calling is not None:
        if len(parameters) != 3:
            raise ConfigurationError(
                f"{name} takes {len(parameters)} arguments: with calling=… a handler takes the event, a Tx and the answer"
            )
    elif not 1 <= len(parameters) <= 2:
        raise ConfigurationError(
            f"{name} takes {len(parameters)} arguments: a handler takes the event and, if it writes, a Tx"
        )
    if replay == "without_calls" and calling is None:
        raise ConfigurationError(f'{name} calls nobody: replay="without_calls" is for a handler with calling=…')
    hints = hints_of(function)
    _refuse_first(name, hints.get(parameters[0].name), event_types)
    many = is_list(hints.get(parameters[0].name))
    shape = _shape(name, hints.get(parameters[1].name, Tx)) if len(parameters) > 1 else None
    if calling is not None and (many or policy.grouped):
        raise ConfigurationError(f"{name} calls outside for each event: it cannot take a list or share a transaction")
    threaded = not inspect.iscoroutinefunction(function)
    if threaded and shape is Tx:
        raise ConfigurationError(
            f"{name} is a plain function and cannot await a Tx: make it async, or let its second argument be a connection or "
            "a session, annotated as such"
        )
    return Handler(
        name,
        function,
        tuple(event_types),
        policy,
        shape,
        many,
        threaded,
        uses.with_result(hints.get("return")),
        calling=calling,
        replay=replay,
    )


def consumer_name(word: str) -> str:
    """What a consumer may be called: brokers and tables have it in their names."""
    if not NAME.fullmatch(word):
        raise ConfigurationError(f"consumer={word!r}: it is a name of letters, digits and `_.-`, as in 'invoices'")
    return word


def name_of(function: Callable[..., object]) -> str:
    """What a handler is called. ConfigurationError for what is no function, or yields."""
    if not inspect.isroutine(function):
        raise ConfigurationError(f"{function!r:.80} is no function: decorate one, `async def` or `def`")
    name = f"{function.__module__}.{function.__qualname__}"
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigurationError(f"{name} yields: a handler returns what it publishes, one event or a list of them")
    return name


def _refuse_first(name: str, hint: object, event_types: Sequence[EventType[object]]) -> None:
    """A handler's first argument is the event: its payload is inside."""
    if hint is Tx or (isinstance(hint, type) and is_event_class(hint)):
        wanted = event_types[0].payload.cls.__name__
        raise ConfigurationError(
            f"{name}: its first argument is annotated as {hint.__name__}, and will be the event: write `event: Event[{wanted}]`; "
            "its payload is event.data"
        )
    said = [one for one in _inside(hint) if isinstance(one, type) and is_event_class(one)]
    if wrong := [one.__name__ for one in said if not any(issubclass(known.payload.cls, one) for known in event_types)]:
        wanted = " | ".join(known.payload.cls.__name__ for known in event_types)
        raise ConfigurationError(
            f"{name} is annotated for {', '.join(wrong)}, and is run for {wanted}: write Event[{wanted}]"
        )


def _inside(hint: object) -> Iterator[object]:
    """What a hint is about: `list[Event[A | B]]` is about A and B."""
    arguments = typing.get_args(hint)
    if not arguments:
        yield hint
    for argument in arguments:
        yield from _inside(argument)


def is_list(hint: object) -> bool:
    """Whether a handler whose first argument is of this type takes a list of events."""
    return typing.get_origin(hint) in (list, Sequence) or str(hint).startswith(("list[", "Sequence["))


def hints_of(function: Callable[..., object]) -> dict[str, Any]:
    """Resolved annotations, or their text where a name is local to some function."""
    try:
        return typing.get_type_hints(function)
    except NameError:
        return dict(function.__annotations__)


def _shape(name: str, hint: object) -> type:
    if isinstance(hint, str):
        if hint.rpartition(".")[2] == "Tx":
            return Tx
        raise ConfigurationError(f"{name}: the type {hint!r} of its second argument cannot be found at module level")
    if not isinstance(hint, type):
        raise ConfigurationError(f"{name}: its second argument must be a Tx, a connection or a session, not {hint!r}")
    return hint
