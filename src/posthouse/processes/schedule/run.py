"""Run: one run of a schedule, as the function sees it and as it travels."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from posthouse.contracts import EventType, Terms, declare
from posthouse.events import Event, Subject


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run. The same at every try of it."""

    schedule: str
    """The name of the schedule."""
    moment: datetime
    """The moment that it stands for, in the zone of the schedule; not the time at which it runs."""
    missed: int = 0
    """How many moments before it were missed, and have no run of their own."""
    by_hand: bool = False
    """An operator asked for it: `moment` is when."""
    tenant: str
    id: str
    """Of the event that began it: an idempotency key for what is done outside."""


class RunDue(msgspec.Struct, kw_only=True):
    """The payload of the service's own event that begins a run."""

    schedule: str
    moment: datetime
    missed: int = 0
    by_hand: bool = False


def run_of(event: Event[object], tz: str) -> Run:
    """What the function is given."""
    data = event.data
    if not isinstance(data, RunDue):
        raise TypeError(f"{event.type} begins no run")
    return Run(
        schedule=data.schedule,
        moment=data.moment.astimezone(ZoneInfo(tz)),
        missed=data.missed,
        by_hand=data.by_hand,
        tenant=event.tenant,
        id=event.id,
    )


DUE = "_due"


def run_subject(service: str, namespace: str | None, name: str) -> Subject:
    """`<service>.schedule.<name>_due.v1`."""
    verb = name + DUE
    return Subject.build(namespace=namespace, service=service, aggregate="schedule", verb=verb, exceptions=(verb,))


def is_run(subject: str, service: str, namespace: str | None) -> bool:
    """Whether the event that it names begins runs of some schedule of the service."""
    *owner, verb, _ = subject.split(".")
    return owner == [*filter(None, (namespace, service)), "schedule"] and verb.endswith(DUE)


def run_event(service: str, namespace: str | None, name: str) -> EventType[RunDue]:
    """What begins runs. It has no key: a run that failed holds up no other."""

    class Due(RunDue):
        """A class of its own, for it belongs to one event."""

    subject = run_subject(service, namespace, name)
    return declare(Due, subject, key=None, topics="aggregate", terms=Terms(), internal=True)
