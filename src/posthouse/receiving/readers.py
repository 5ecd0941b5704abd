"""Readers: the handlers of a service by consumer and subject, and what about them could not work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from posthouse.receiving.handler import Handler
from posthouse.store import Store

Handlers = Mapping[str, Handler]
"""The handlers of one consumer, by subject."""


def topics_of(handlers: Handlers) -> set[str]:
    """The topics that a consumer reads."""
    return {event_type.topic for handler in handlers.values() for event_type in handler.event_types}


def is_ordered(handlers: Handlers, topic: str) -> bool:
    """Whether a consumer applies the events of a topic in the order of their keys."""
    return all(handler.policy.order == "key" for handler in _readers(handlers, topic))


def problems_of(
    consumer: str, handlers: Handlers, store: Store, *, remembers: float, redelivery: float
) -> Iterator[str]:
    """Why a consumer could not run. `remembers` are the seconds of the inbox, `redelivery` those after which the broker may
    still deliver an event again."""
    for handler in set(handlers.values()):
        yield from handler.problems(store)
        horizon = handler.policy.horizon + redelivery
        if remembers < horizon:
            yield (
                f"{handler.name}: an event may come again after {horizon:,.0f} s ({redelivery:,.0f} s by the broker, the rest "
                f"by its retries), but the inbox remembers only {remembers:,.0f} s: raise inbox_retention, or shorten the "
                "retries or the broker's retention"
            )
    for topic in sorted(topics_of(handlers)):
        if len({handler.policy.order for handler in _readers(handlers, topic)}) > 1:
            yield (
                f"consumer {consumer!r}: its handlers of {topic} do not agree on order: give those without order a consumer "
                "of their own"
            )


def _readers(handlers: Handlers, topic: str) -> list[Handler]:
    return [h for h in handlers.values() if any(event_type.topic == topic for event_type in h.event_types)]
