"""Deadlines: the service's own event that says that one has passed."""

from __future__ import annotations

import msgspec

from posthouse.contracts import EventType, Terms, declare
from posthouse.events import Subject


class DeadlinePassed(msgspec.Struct, kw_only=True):
    """The payload: whose deadline it was. Whether it still counts is told by the event's id."""

    saga: str
    id: str
    deadline: str
    attempt: int = 1


def deadline_event(service: str, namespace: str | None) -> EventType[DeadlinePassed]:
    """`<service>.saga.deadline_passed.v1`. It has no key: order among deadlines means nothing, and a key would leave a row
    per saga behind."""
    subject = Subject.build(namespace=namespace, service=service, aggregate="saga", verb="deadline_passed")

    class Passed(DeadlinePassed):
        """A class of its own, for it belongs to one event."""

    return declare(Passed, subject, key=None, topics="aggregate", terms=Terms(), internal=True)
