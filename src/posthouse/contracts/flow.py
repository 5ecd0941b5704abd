"""Flow: a choreography that its owner declares. One fact starts it, others must follow, and some may."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from posthouse.contracts.catalogue import EventType, event_type_of, is_event_class
from posthouse.errors import ConfigurationError

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """What has to follow from one fact, whoever says it. `then` are facts that must come, `may` those that may; neither
    says in which order: that follows from who hears what."""

    name: str
    starts: EventType[object]
    then: tuple[EventType[object], ...]
    may: tuple[EventType[object], ...] = ()
    description: str = ""


def flow_of(
    name: str,
    starts: type[object],
    then: Sequence[type[object]],
    may: Sequence[type[object]] = (),
    description: str = "",
    *,
    known: Mapping[str, Flow],
) -> Flow:
    """The flow, checked. Raises ConfigurationError with every problem: facts that are none, that stand in it twice, a name
    that is taken among those `known`."""
    facts = (starts, *then, *may)
    problems = [f"{_called(fact)} is not an event: a flow is made of event classes" for fact in facts if not _is(fact)]
    twice = sorted(fact for fact, number in Counter(map(_called, facts)).items() if number > 1)
    problems += [f"{fact} stands in it more than once" for fact in twice]
    if not then:
        problems.append("nothing follows from it: name the facts that must come in then=(…)")
    if not _NAME.fullmatch(name):
        problems.append("its name must be lower-case letters, digits, hyphens and underscores, as in 'late-checkout'")
    if name in known:
        problems.append(f"it is declared already, from {known[name].starts.name} on")
    if problems:
        raise ConfigurationError(*(f"flow {name!r}: {problem}" for problem in problems))
    first, *rest = (event_type_of(fact) for fact in facts)
    return Flow(
        name=name, starts=first, then=tuple(rest[: len(then)]), may=tuple(rest[len(then) :]), description=description
    )


def _is(fact: object) -> bool:
    return isinstance(fact, type) and is_event_class(fact)


def _called(fact: object) -> str:
    if isinstance(fact, type):
        return event_type_of(fact).name if is_event_class(fact) else fact.__name__
    return repr(fact)
