"""Lifting: handlers of a version that also get the older ones, lifted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from posthouse.contracts.versions import Cast, Casts, chain
from posthouse.receiving.handler import Handler


def lifted(handlers: Mapping[str, Handler], upcasts: Casts) -> dict[str, Handler]:
    """The handlers of one consumer by subject, together with the subjects that are lifted to theirs. A version goes to
    the nearest handler; one that has a handler of its own is left to it."""
    gained: dict[Handler, dict[str, Sequence[Cast]]] = {}
    for name in upcasts:
        steps = () if name in handlers else chain(upcasts, name, handlers)
        if steps:
            gained.setdefault(handlers[steps[-1].target.name], {})[name] = steps
    if not gained:
        return dict(handlers)
    wider = {handler: _widened(handler, lifts) for handler, lifts in gained.items()}
    found = {name: wider.get(handler, handler) for name, handler in handlers.items()}
    for handler, lifts in gained.items():
        found.update(dict.fromkeys(lifts, wider[handler]))
    return found


def _widened(handler: Handler, lifts: Mapping[str, Sequence[Cast]]) -> Handler:
    older = [steps[0].source for steps in lifts.values()]
    return dataclasses.replace(handler, event_types=(*handler.event_types, *older), lifts=lifts)
